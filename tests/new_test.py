"""Goal: what tools/new starts is there, builds, passes its own test and is found by being linked.
Method: tools/new in a copy of its folder, then the compiler on the files it wrote, which are linked
with what core has for them."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest
from typing import List

_ROOT = pathlib.Path(__file__).absolute().parents[1]
_LIMIT_S = 240
_FLAGS = ["-std=c++20", "-O0", "-Wall", "-Wextra", "-Werror", "-Wno-missing-field-initializers"]
_ARCHIVES = [str(path) for path in sorted(_ROOT.glob("core/*/*.a"))]
_ALGORITHM = [("ops/algorithms/", ""), ("tests/unit/ops/algorithms/", "_test")]
_LIBRARIES = ["-Wl,--start-group", *_ARCHIVES, "-Wl,--end-group"]
_LIBRARIES += ["-lgtest_main", "-lgtest", "-lpthread"]


class NewTest(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.copy = pathlib.Path(folder.name)
        (self.copy / "tools").mkdir()
        for name in ("new", "common.sh"):
            shutil.copy(_ROOT / "tools" / name, self.copy / "tools")
        shutil.copytree(_ROOT / "tools" / "templates", self.copy / "tools" / "templates")

    def new(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        command = [str(self.copy / "tools" / "new"), *arguments]
        return subprocess.run(
            command, timeout=_LIMIT_S, capture_output=True, text=True, check=False
        )

    def build_and_run(self, written: List[str], *arguments: str) -> str:
        """Builds the files written here. Returns what they print."""
        sources = [str(self.copy / name) for name in written]
        program = str(self.copy / "program")
        compiler = os.environ.get("CXX", "g++")
        command = [compiler, *_FLAGS, f"-I{_ROOT}", *sources, "-o", program, *_LIBRARIES]
        built = subprocess.run(
            command, timeout=_LIMIT_S, capture_output=True, text=True, check=False
        )
        self.assertEqual(built.returncode, 0, built.stderr)
        ran = subprocess.run(
            [program, *arguments], timeout=_LIMIT_S, capture_output=True, text=True, check=False
        )
        self.assertEqual(ran.returncode, 0, ran.stdout + ran.stderr)
        return ran.stdout

    def start(self, kind: str, name: str, room: str) -> str:
        made = self.new(kind, name)
        self.assertEqual(made.returncode, 0, made.stderr)
        written = [f"ops/{room}/{name}.cc", f"tests/unit/ops/{room}/{name}_test.cc"]
        for path in written:
            self.assertIn(f"wrote {path}", made.stdout)
            self.assertNotIn("@", (self.copy / path).read_text(), path)
        again = self.new(kind, name)
        self.assertEqual((again.returncode, "already there" in again.stderr), (1, True))
        return self.build_and_run(written)

    def test_a_method(self) -> None:
        self.assertIn("PASSED", self.start("method", "swap_pairs", "methods"))

    def test_an_algorithm(self) -> None:
        told = self.start("algorithm", "allreduce_hops", "algorithms")
        self.assertIn("not written yet", told)
        # As soon as it fits, its name is all that is needed for it to be taken.
        written = [f"{room}allreduce_hops{end}.cc" for room, end in _ALGORITHM]
        source = self.copy / written[0]
        unwritten = source.read_text()
        source.write_text(unwritten.replace("{ return false; }", "{ return true; }"))
        self.assertNotEqual(source.read_text(), unwritten)
        told = self.build_and_run(written, "--gtest_filter=*ItsName*")
        self.assertIn("[  PASSED  ] 1 test", told)

    def test_a_codec(self) -> None:
        # Its test needs every kernel and codec; that it compiles is enough here.
        made = self.new("codec", "two_bits")
        self.assertEqual(made.returncode, 0, made.stderr)
        for path in ("ops/codecs/two_bits.cc", "tests/unit/ops/codecs/two_bits_test.cc"):
            command = [os.environ.get("CXX", "g++"), *_FLAGS, "-fsyntax-only", f"-I{self.copy}"]
            command += [f"-I{_ROOT}", str(self.copy / path)]
            built = subprocess.run(
                command, timeout=_LIMIT_S, capture_output=True, text=True, check=False
            )
            self.assertEqual(built.returncode, 0, built.stderr)

    def test_wrong_names_are_refused(self) -> None:
        for arguments in (["method"], ["method", "Swap"], ["method", "a/b"], ["method", "a-b"],
                          ["method", "a", "b"], ["algorithm", "hops"], ["nothing", "x"], []):
            refused = self.new(*arguments)
            self.assertEqual((refused.returncode, refused.stdout), (1, ""), arguments)
        self.assertEqual(sorted(path.name for path in self.copy.iterdir()), ["tools"])


if __name__ == "__main__":
    unittest.main()
