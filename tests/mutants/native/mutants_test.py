"""The C extension without one of its rules must fail its tests.

Method: a copy of the package `covey` whose extension holds all mutants; which of them is on says
the environment variable MUTANT of a process that is forked for each. The tests that are to fail
stand in the mutants' texts. Control: with none on they pass.
"""

from __future__ import annotations

import importlib
import os
import pathlib
import shutil
import sys
import tempfile
import time
import unittest
from typing import Dict, List

import covey

TESTS = pathlib.Path(__file__).absolute().parents[2]
WITHOUT_TORCH = ("dropped_test", "life_test")
LIMIT_SECONDS = 60.0
LIMIT_OF_MUTANTS = 10.0


def caught_by(text: str) -> List[str]:
    """The tests that a mutant's text names."""
    (line,) = [line for line in text.splitlines() if line.startswith("# caught by ")]
    return line[len("# caught by ") :].split()


def mutants() -> Dict[str, List[str]]:
    """The tests that are to fail, by mutant."""
    texts = sorted((TESTS / "mutants/native").glob("*.txt"))
    return {path.stem: caught_by(path.read_text(encoding="utf-8")) for path in texts}


def make_package(folder: pathlib.Path) -> None:
    """The package in `folder`, with the extension that holds the mutants."""
    package = folder / "covey"
    package.mkdir()
    for path in pathlib.Path(covey.__file__).parent.iterdir():
        if path.name != "_native.abi3.so":
            (package / path.name).symlink_to(path.absolute())
    shutil.copy(TESTS / "mutants/native/_native.abi3.so", package)


def passes(mutant: str, tests: List[str], package: pathlib.Path) -> bool:
    """Runs the tests in this process."""
    os.environ["MUTANT"] = mutant
    for name in [name for name in sys.modules if name.split(".")[0] == "covey"]:
        del sys.modules[name]
    sys.path[:0] = [str(package), str(TESTS / "frameworks")]
    suite = unittest.defaultTestLoader.loadTestsFromNames(tests)
    native = importlib.import_module("covey._native")
    assert pathlib.Path(native.__file__).parent.parent == package, native.__file__
    return unittest.TextTestRunner().run(suite).wasSuccessful()


def run(mutant: str, tests: List[str], package: pathlib.Path) -> str:
    """Runs the tests in a forked process with the mutant on. Their output if one fails, else ""."""
    output = package / "output"
    child = os.fork()
    if child == 0:
        code = 1
        try:
            with output.open("w") as stream:
                os.dup2(stream.fileno(), 1)
                os.dup2(stream.fileno(), 2)
                code = 0 if passes(mutant, tests, package) else 1
        finally:
            os._exit(code)
    deadline = time.monotonic() + (LIMIT_OF_MUTANTS if mutant else LIMIT_SECONDS)
    pid, status = 0, 0
    while pid == 0 and time.monotonic() < deadline:
        pid, status = os.waitpid(child, os.WNOHANG)
        time.sleep(0.01)  # A poll: only a wait without limit can be told.
    if pid == 0:
        os.kill(child, 9)
        os.waitpid(child, 0)
        return "it does not end"
    return "" if status == 0 else output.read_text(encoding="utf-8") or f"ended with {status}"


class MutantsTest(unittest.TestCase):
    def check(self, *modules: str) -> None:
        found = {n: tests for n, tests in mutants().items() if tests[0].split(".")[0] in modules}
        self.assertTrue(found)
        with tempfile.TemporaryDirectory() as folder:
            package = pathlib.Path(folder).resolve()
            make_package(package)
            every = sorted({test for tests in found.values() for test in tests})
            self.assertEqual(run("", every, package), "")
            for name, tests in found.items():
                with self.subTest(name):
                    self.assertNotEqual(run(name, tests, package), "", f"passed: {tests}")

    def test_without_torch(self) -> None:
        self.check(*WITHOUT_TORCH)

    def test_with_torch(self) -> None:
        importlib.import_module("torch")  # Once: the processes are forks of this one.
        every = {tests[0].split(".")[0] for tests in mutants().values()}
        self.check(*every.difference(WITHOUT_TORCH))


if __name__ == "__main__":
    unittest.main()
