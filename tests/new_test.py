"""Goal: what `tools/new` writes compiles as it stands and says what is wrong with a name.
Method: run it in a copy of the tools, compile what it wrote against the tree."""

from __future__ import annotations

import pathlib
import shutil
import subprocess
import tempfile
import unittest

from tidy import source

_COMPILE = ["g++", "-std=c++20", "-fsyntax-only", "-Wall", "-Wextra", "-Werror",
            "-Wno-missing-field-initializers"]  # as .bazelrc


class NewTest(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        shutil.copytree(source.ROOT / "tools", self.root / "tools")

    def new(self, *arguments: str) -> subprocess.CompletedProcess:
        return subprocess.run([self.root / "tools/new", *arguments], capture_output=True, text=True,
                              timeout=60, check=False)

    def check_compiles(self, paths: list) -> None:
        for path in paths:
            includes = ["-I", str(self.root), "-I", str(source.ROOT)]
            done = subprocess.run([*_COMPILE, *includes, str(self.root / path)],
                                  capture_output=True, text=True, timeout=240, check=False)
            self.assertEqual(done.returncode, 0, done.stderr)

    def test_a_codec_compiles_and_is_not_overwritten(self) -> None:
        done = self.new("codec", "two_bits")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.check_compiles(["ops/codecs/two_bits.cc",
                             "tests/unit/ops/codecs/two_bits_test.cc"])
        again = self.new("codec", "two_bits")
        self.assertIn("ops/codecs/two_bits.cc is already there", again.stderr)

    def test_an_algorithm_compiles(self) -> None:
        done = self.new("algorithm", "allreduce_star")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.check_compiles(["ops/algorithms/allreduce_star.cc",
                             "tests/unit/ops/algorithms/allreduce_star_test.cc"])

    def test_a_wrong_name_is_refused(self) -> None:
        self.assertIn("8bit is no NAME", self.new("codec", "8bit").stderr)
        self.assertIn("star is no KIND_NAME", self.new("algorithm", "star").stderr)


if __name__ == "__main__":
    unittest.main()
