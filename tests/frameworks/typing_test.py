"""Goal: a script of a user passes `mypy --strict` with each front-end, and a wrong one does not;
the extension's stub has what the extension has.
Method: mypy on the scripts in typed/, with Covey as a package that is installed: its own files are
read for their types and not reported on. The stub's names are compared with the extension's."""

from __future__ import annotations

import ast
import importlib.util
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
from typing import List, Tuple

import covey
from covey import _native

_SCRIPTS = pathlib.Path(__file__).parent / "typed"
_PACKAGES = pathlib.Path(covey.__file__).parents[1]
_LIMIT_S = 280
_HAS_MYPY = importlib.util.find_spec("mypy") is not None
# Each line is wrong once; a name that mypy does not find would be right as anything.
_WRONG = """
import torch
import covey.torch as hvd

first: int = hvd.allreduce(torch.ones(1))
second = hvd.allgather(torch.ones(1), root_rank=0)
third: str = hvd.rank()
fourth = hvd.allreduce_async(torch.ones(1)).results
fifth = hvd.DistributedOptimizer(torch.nn.Linear(1, 1))
sixth = hvd.Compression.fp8
"""


@unittest.skipUnless(_HAS_MYPY, "mypy is not installed: tools/setup installs it")
class TypingTest(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def mypy(self, *paths: pathlib.Path) -> Tuple[int, str]:
        """Its exit code, and what it says."""
        command = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent"]
        command += ["--python-version", "3.10", "--cache-dir", str(self.folder / "cache")]
        ran = subprocess.run(
            [*command, *map(str, paths)],
            cwd=self.folder,
            env={**os.environ, "MYPYPATH": str(_PACKAGES)},
            timeout=_LIMIT_S,
            capture_output=True,
            text=True,
            check=False,
        )
        return ran.returncode, ran.stdout + ran.stderr

    def test_scripts_pass_and_each_wrong_line_is_found(self) -> None:
        scripts = sorted(_SCRIPTS.glob("*_user.py"))
        self.assertEqual(len(scripts), 5)
        code, said = self.mypy(*scripts)
        self.assertEqual(code, 0, said)
        wrong = self.folder / "wrong.py"
        wrong.write_text(_WRONG, encoding="utf-8")
        code, said = self.mypy(wrong)
        found: List[str] = re.findall(r"^wrong\.py:(\d+): error", said, re.M)
        self.assertEqual(sorted(set(map(int, found))), list(range(5, 11)), said)
        self.assertEqual(code, 1, said)


class StubTest(unittest.TestCase):
    def test_it_names_what_the_extension_has(self) -> None:
        stub = ast.parse((_PACKAGES / "covey" / "_native.pyi").read_text(encoding="utf-8"))
        kinds = (ast.FunctionDef, ast.ClassDef)
        named = {it.name for it in stub.body if isinstance(it, kinds)}
        there = {name for name in dir(_native) if callable(getattr(_native, name))}
        there = {name for name in there if not name.startswith("__")}
        self.assertEqual(sorted(there - named), [])
        self.assertEqual(sorted(named - there), ["Method"])  # Opaque: of method_parse.


if __name__ == "__main__":
    unittest.main()
