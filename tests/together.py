"""Runs several files of unittest tests, each in a fork of one process that has imported what they
need: the start of torch or TensorFlow costs more than many of them.

`together.py FRAMEWORK FILE...`: FRAMEWORK is torch, tensorflow or none; a FILE is run as
`runner.py FILE` runs it. The process imports the framework, and starts no thread. One file after
the other then has a process, a log, a report and a time limit of its own; what a file leaves
running is killed. The log of a file that fails is printed whole; the report has a test suite per
file, with its log. A file alone: `bazel test //tests:frameworks/clip_test`.
"""

from __future__ import annotations

import faulthandler
import gc
import importlib.util
import os
import pathlib
import select
import shutil
import signal
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from typing import List, NamedTuple, NoReturn, Optional

import runner

_TESTS = pathlib.Path(__file__).absolute().parent
sys.path.insert(0, str(_TESTS / "frameworks"))
import starter  # noqa: E402  # pylint: disable=wrong-import-position

sys.path.pop(0)

_LIMIT = 3600.0 if os.environ.get("TEST_SLOW") == "1" else 300.0
"""Seconds that a file may take: as much as Bazel gives one alone."""
_LAST_SECONDS = 15.0
"""The part of Bazel's time limit that is kept for the report of the file that took the rest."""
_LAST_WORDS = 10.0
"""Seconds in which a file that took too long may say where it is."""


class Ending(NamedTuple):
    """How the process of a file has ended."""

    code: int  # As subprocess.Popen has it: -9 if it was killed.
    late: bool
    seconds: float
    processor: float  # Seconds, with those of what it has started and waited for.


def run_in_fork(path: str, log: int, folder: str, limit: float) -> Ending:
    """Runs one file, whose output goes to the descriptor `log`, and report to `folder`."""
    begun = time.monotonic()
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        os.dup2(log, 1)
        os.dup2(log, 2)
        _run(path, folder)
    late = not _ends_within(child, limit)
    if late:
        os.kill(child, signal.SIGABRT)  # The handler of _run prints where it is.
        if not _ends_within(child, _LAST_WORDS):
            os.kill(child, signal.SIGKILL)
    _, status, used = os.wait4(child, 0)
    _end_orphans()
    seconds = time.monotonic() - begun
    return Ending(os.waitstatus_to_exitcode(status), late, seconds, used.ru_utime + used.ru_stime)


def _run(path: str, folder: str) -> NoReturn:
    """In the child."""
    os.environ["XML_OUTPUT_FILE"] = f"{folder}/report.xml"
    os.environ["TEST_TMPDIR"] = f"{folder}/own"
    os.mkdir(os.environ["TEST_TMPDIR"])
    sys.argv[1:] = [path]

    def work() -> None:
        runner.hide_cards(pathlib.Path(path))
        runner.prepare_ranks(pathlib.Path(path).absolute())
        faulthandler.enable()  # Later than the process of which ranks are forks.
        sys.exit(runner.run(path, []))

    starter.end(starter.code_of(work))


def _ends_within(child: int, seconds: float) -> bool:
    """Whether it has ended by then; it remains to be waited for."""
    descriptor = os.pidfd_open(child)
    try:
        return bool(select.select([descriptor], [], [], max(seconds, 0.0))[0])
    finally:
        os.close(descriptor)


def _end_orphans() -> None:
    """Kills what the file has left: this process has adopted it."""
    listed = pathlib.Path(f"/proc/self/task/{os.getpid()}/children")
    while True:
        pids = listed.read_text("ascii").split()
        if not pids:
            return
        for pid in pids:
            os.kill(int(pid), signal.SIGKILL)
            os.waitpid(int(pid), 0)


def suite_of(path: str, report: str, log: str, limit: float, ending: Ending) -> ElementTree.Element:
    """The file's part of the report, with a failure if its process has failed without one."""
    try:
        suite = ElementTree.parse(report).getroot()[0]
    except (OSError, ElementTree.ParseError, IndexError):  # It has ended before it wrote one.
        suite = ElementTree.Element("testsuite", name=path, failures="0", tests="0", errors="0")
    why = ""
    if ending.late:
        why = f"{path} took longer than its {limit:.0f} s and was killed"
    elif ending.code != 0 and not list(suite.iter("failure")):
        why = f"{path} ended with code {ending.code}"
    elif not list(suite.iter("testcase")):
        why = f"{path} has written no report"
    if why:
        case = ElementTree.SubElement(suite, "testcase", name=path, classname=path)
        ElementTree.SubElement(case, "failure").text = why
        for count in ("tests", "failures"):
            suite.set(count, str(int(suite.get(count, "0")) + 1))
    suite.set("target", _target_of(path))
    suite.set("time", f"{ending.seconds:.3f}")
    ElementTree.SubElement(suite, "system-out").text = runner.printable(log)
    return suite


def _target_of(path: str) -> str:
    """The target that runs the file alone."""
    return "//tests:" + path[len("tests/") : -len(".py")]


def _write(suites: List[ElementTree.Element]) -> None:
    """The report so far, so that there is one if this process is killed."""
    report = os.environ.get("XML_OUTPUT_FILE")
    if not report:
        return
    whole = ElementTree.Element("testsuites")
    whole.extend(suites)
    ElementTree.ElementTree(whole).write(report, encoding="utf-8", xml_declaration=True)


def _import(framework: str) -> None:
    """Once for all files. They are skipped where the framework is not installed."""
    runner.be_lean()
    if framework != "none" and importlib.util.find_spec(framework) is not None:
        starter.load(framework)
    starter.adopt_orphans()
    gc.collect()
    gc.freeze()


def main(arguments: Optional[List[str]] = None, most: float = _LIMIT) -> int:
    """0 when every file passed, in at most so many seconds."""
    framework, *paths = sys.argv[1:] if arguments is None else arguments
    begun = time.monotonic()
    _import(framework)
    end = begun + float(os.environ.get("TEST_TIMEOUT") or 1e9) - _LAST_SECONDS
    suites: List[ElementTree.Element] = []
    bad: List[str] = []
    for path in paths:
        print(f"{path} ...", end=" ", flush=True)
        limit = min(most, end - time.monotonic())
        # A TemporaryDirectory would end with each fork.
        folder = tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR"))
        report = f"{folder}/report.xml"
        with open(f"{folder}/log", "w+b") as log:
            ending = run_in_fork(path, log.fileno(), folder, limit)
            log.seek(0)
            text = log.read().decode("utf-8", "replace")
        suites.append(suite_of(path, report, text, limit, ending))
        shutil.rmtree(folder)
        _write(suites)
        failed = list(suites[-1].iter("failure"))
        print("FAILED," if failed else "passed,", end=" ")
        print(f"{ending.seconds:.1f} s, processor {ending.processor:.1f} s", flush=True)
        if failed:
            bad.append(path)
            print(f"{text}\n{failed[-1].text}\n---- end of {path}", flush=True)
    for path in bad:
        print(f"failed: {path}; alone: bazel test {_target_of(path)}")
    return 1 if bad or not paths else 0


if __name__ == "__main__":
    sys.exit(main())
