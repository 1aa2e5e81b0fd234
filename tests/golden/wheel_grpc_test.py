"""Goal: two launchers become one job from the wheel alone, once `covey build grpc` has been typed,
and until then they are told to. Method: the wheel in an empty environment; both on this host."""

from __future__ import annotations

import shutil
import subprocess
import unittest

from installed import Installed

_WORDS = ("covey", "build", "grpc")
_RANK = "import covey; covey.init(); print('rank', covey.rank(), 'of', covey.size())"


class WheelGrpcTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        cls.there = Installed()

    @classmethod
    def tearDownClass(cls) -> None:
        cls.there.close()

    def test_what_is_missing_is_named(self) -> None:
        bare = {"PATH": str(self.there.bin)}
        said = self.there.run(list(_WORDS), fails=True, **bare)
        self.assertIn("there is no g++ in PATH", said)
        (self.there.bin / "g++").symlink_to("/bin/true")
        try:
            said = self.there.run(list(_WORDS), fails=True, **bare)
        finally:
            (self.there.bin / "g++").unlink()
        self.assertIn("there is no protoc in PATH", said)
        self.assertIn("apt-get install libgrpc++-dev", said)

    def compile_in_haste(self) -> None:
        """The compiler in PATH optimises nothing from now on."""
        path = self.there.bin / "g++"
        path.write_text(f'#!/bin/sh\nexec {shutil.which("g++")} "$@" -O0\n', encoding="utf-8")
        path.chmod(0o755)
        self.addCleanup(path.unlink)

    @unittest.skipIf(shutil.which("grpc_cpp_plugin") is None, "there is no gRPC for C++")
    def test_two_launchers_become_one_job(self) -> None:
        serve = ["coveyrun", "-np", "1", "--nodes", "2", "--serve", "localhost:0"]
        serve += ["--secret-file", "job.key", "python", "-c", _RANK]
        self.assertIn(" ".join(_WORDS) + " makes it", self.there.run(serve, fails=True))
        self.compile_in_haste()
        said = self.there.run(list(_WORDS))
        self.assertRegex(said, r"makes \S+/site-packages/covey/libcovey_grpc.so")
        with subprocess.Popen(
            serve,
            cwd=self.there.folder,
            env=self.there.environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as first:
            try:
                address = ""
                while not address:
                    line = first.stdout.readline()
                    self.assertTrue(line, "it ended")
                    address = line.partition("--join ")[2].partition(" ")[0]
                join = ["coveyrun", "-np", "1", "--join", address.strip()]
                second = self.there.run([*join, *serve[7:]])
                said = second + first.communicate(timeout=60)[0]
            finally:
                first.kill()
        self.assertEqual(first.returncode, 0, said)
        for rank in range(2):
            self.assertIn(f"rank {rank} of 2", said)


if __name__ == "__main__":
    unittest.main()
