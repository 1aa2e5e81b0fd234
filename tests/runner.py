"""Runs one file of unittest tests and writes what happened where Bazel looks for it.

A file is run as `runner.py tests/folder/x_test.py [TestCase[.method] ...]`; modules beside it can
be imported. The report has one entry per test, as GoogleTest's, so that tests can be counted.
"""

from __future__ import annotations

import atexit
import importlib.util
import os
import pathlib
import re
import resource
import sys
import time
import traceback
import types
import unittest
from typing import Dict, List, Optional, Tuple
from xml.sax.saxutils import escape, quoteattr

Outcome = Tuple[str, str, float]  # ("passed" | "failed" | "skipped", text, seconds)


class Result(unittest.TextTestResult):
    """Remembers the outcome of every test. A failing subtest fails its test."""

    def __init__(self, *arguments, **options) -> None:  # type: ignore[no-untyped-def]
        super().__init__(*arguments, **options)
        self.outcomes: Dict[str, Outcome] = {}
        self._begun = 0.0

    def startTest(self, test: unittest.TestCase) -> None:
        super().startTest(test)
        self._begun = time.monotonic()
        self.outcomes[test.id()] = ("passed", "", 0.0)

    def stopTest(self, test: unittest.TestCase) -> None:
        super().stopTest(test)
        kind, text, _ = self.outcomes[test.id()]
        self.outcomes[test.id()] = (kind, text, time.monotonic() - self._begun)

    def _failed(self, test: unittest.TestCase, err) -> None:  # type: ignore[no-untyped-def]
        text = "".join(traceback.format_exception(*err))
        self.outcomes[test.id()] = ("failed", text, 0.0)

    def addError(self, test, err) -> None:  # type: ignore[no-untyped-def]
        super().addError(test, err)
        self._failed(test, err)

    def addFailure(self, test, err) -> None:  # type: ignore[no-untyped-def]
        super().addFailure(test, err)
        self._failed(test, err)

    def addSubTest(self, test, subtest, err) -> None:  # type: ignore[no-untyped-def]
        super().addSubTest(test, subtest, err)
        if err is not None:
            self._failed(test, err)

    def addSkip(self, test, reason) -> None:  # type: ignore[no-untyped-def]
        super().addSkip(test, reason)
        self.outcomes[test.id()] = ("skipped", reason, 0.0)

    def addUnexpectedSuccess(self, test) -> None:  # type: ignore[no-untyped-def]
        super().addUnexpectedSuccess(test)
        self.outcomes[test.id()] = ("failed", "passed, but a failure was expected", 0.0)


def load(path: pathlib.Path) -> types.ModuleType:
    """Imports the test file under its own name, its folder first on the search path."""
    sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise SystemExit(f"runner: {path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def _say_what_was_used() -> None:
    """Seconds of the processor, which a busy machine does not change."""
    kinds = resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN
    test, started = (sum(resource.getrusage(kind)[:2]) for kind in kinds)
    print(f"runner: processor {test:.1f} s, what it started {started:.1f} s", file=sys.stderr)


def be_lean() -> None:
    """torch starts in half the time (lean/sitecustomize.py), here and in what the test starts."""
    folder = pathlib.Path(__file__).absolute().parent / "lean"
    if folder.is_dir():
        sys.path.insert(0, str(folder))
        spec = importlib.util.spec_from_file_location("lean", folder / "sitecustomize.py")
        assert spec is not None and spec.loader is not None
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


def hide_cards(path: pathlib.Path) -> None:
    """Tests do the same on all machines; one of them is for the card, where there is one."""
    if path.stem != "card_test":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""


def prepare_ranks(path: pathlib.Path) -> None:
    """Ranks of a test of torch are forks of this process (frameworks/starter.py), as are those of a
    test of TensorFlow in a process that has it."""
    if path.parent.name != "frameworks":
        return
    framework = next((name for name in ("tensorflow", "torch") if name in sys.modules), "")
    if not framework and re.search(r"^import torch\b", path.read_text("utf-8"), re.MULTILINE):
        framework = "torch"
    if not framework:
        return
    sys.path.insert(0, str(path.parent))
    starter = importlib.import_module("starter")
    starter.ready[framework] = starter.Starter.forked(framework)
    sys.path.pop(0)


def write_report(path: str, suite: str, outcomes: Dict[str, Outcome]) -> None:
    """Writes JUnit's XML."""
    kinds = [kind for kind, _, _ in outcomes.values()]
    lines = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        f'<testsuites><testsuite name={quoteattr(suite)} tests="{len(kinds)}" '
        f'failures="{kinds.count("failed")}" skipped="{kinds.count("skipped")}" errors="0">',
    ]
    for name, (kind, text, seconds) in outcomes.items():
        where = f"name={quoteattr(name)} classname={quoteattr(suite)}"
        lines.append(f'<testcase {where} time="{seconds:.3f}">')
        if kind == "failed":
            lines.append(f"<failure>{escape(printable(text))}</failure>")
        elif kind == "skipped":
            lines.append(f"<skipped message={quoteattr(printable(text))}/>")
        lines.append("</testcase>")
    lines.append("</testsuite></testsuites>")
    with open(path, "w", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")


def printable(text: str) -> str:
    return "".join(c if c in "\n\t" or c.isprintable() else "?" for c in text)


def _suite(path: str, module: types.ModuleType, names: List[str]) -> unittest.TestSuite:
    loader = unittest.defaultTestLoader
    wanted = names or os.environ.get("TESTBRIDGE_TEST_ONLY", "").split()
    if not wanted:
        return loader.loadTestsFromModule(module)
    return loader.loadTestsFromNames(wanted, module)


def run(path: str, names: List[str]) -> int:
    """Runs the tests of a file, or those named. 0 when every one passed or was skipped, and there
    was one."""
    atexit.register(_say_what_was_used)  # The last to run: helpers have been waited for.
    module = load(pathlib.Path(path).absolute())
    runner = unittest.TextTestRunner(stream=sys.stderr, verbosity=2, resultclass=Result)
    result = runner.run(_suite(path, module, names))
    report = os.environ.get("XML_OUTPUT_FILE")
    if report:
        write_report(report, path, result.outcomes)
    if not result.outcomes and not result.errors:
        print(f"runner: {path} holds no test", file=sys.stderr)
        return 1
    return 0 if result.wasSuccessful() else 1


def main(arguments: Optional[List[str]] = None) -> int:
    """Runs one file in this process."""
    path, *names = sys.argv[1:] if arguments is None else arguments
    hide_cards(pathlib.Path(path))
    be_lean()
    prepare_ranks(pathlib.Path(path).absolute())
    return run(path, names)


if __name__ == "__main__":
    sys.exit(main())
