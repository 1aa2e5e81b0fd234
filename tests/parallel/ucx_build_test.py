"""Goal: `covey build ucx` says clearly which UCX is missing or too old, and where it looks.
Method: folders that look like an installed UCX; nothing is compiled. What it makes is tested by
cluster_ucx_test."""

from __future__ import annotations

import pathlib
import sys
import tempfile
import unittest
from typing import Any

from mpi_job import run_here

_BUILD = "import sys; from covey.cli import main; sys.exit(main(['build', 'ucx', *sys.argv[1:]]))"


class UcxBuildTest(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.prefix = pathlib.Path(folder.name)

    def install(self, version: str) -> None:
        """Headers of this version, and a library that is none."""
        major, minor = version.split(".")
        header = self.prefix / "include" / "ucp" / "api" / "ucp_version.h"
        header.parent.mkdir(parents=True)
        header.write_text(f"#define UCP_API_MAJOR    {major}\n#define UCP_API_MINOR    {minor}\n")
        (self.prefix / "lib").mkdir()
        (self.prefix / "lib" / "libucp.so").write_text("")

    def build(self, *arguments: str) -> Any:
        command = [sys.executable, "-c", _BUILD, "--out", str(self.prefix), *arguments]
        return run_here(command)

    def check_refused(self, done: Any, *words: str) -> None:
        self.assertEqual((done.returncode, done.stderr.count("\n")), (2, 1), done.stderr)
        for word in ("covey build ucx: ", *words):
            self.assertIn(word, done.stderr)
        self.assertFalse((self.prefix / "libcovey_ucx.so").exists())

    def test_a_prefix_without_ucx(self) -> None:
        done = self.build("--prefix", str(self.prefix))
        self.check_refused(done, f"--prefix {self.prefix}: there is no UCX with headers",
                           "libucx-dev")

    def test_an_old_ucx(self) -> None:
        self.install("1.10")
        done = self.build("--prefix", str(self.prefix))
        self.check_refused(done, f"the UCX in {self.prefix}/include is 1.10: 1.11 or newer")

    def test_a_compiler_that_fails(self) -> None:
        self.install("1.13")
        done = self.build("--prefix", str(self.prefix), "--cxx", "false")
        self.check_refused(done, f"-I{self.prefix}/include", f"-Wl,-rpath,{self.prefix}/lib",
                           "-lucp", "ended with code 1")


if __name__ == "__main__":
    unittest.main()
