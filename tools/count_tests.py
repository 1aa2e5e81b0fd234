"""Counts the test cases of a `bazel test`: reads its build events, names the slowest targets and
prints `N passed, N failed`. Of a target that runs several files (tests/together.py) each counts
under the target that runs it alone.

A test that wrote no report, or died before its report was complete, counts as one failure, and so
does a target that did not build. Ends with 1 when anything failed or nothing ran.
"""

from __future__ import annotations

import json
import pathlib
import sys
import urllib.parse
import urllib.request
import xml.etree.ElementTree as ElementTree
from typing import Dict, List, NamedTuple, Set

_SLOWEST = 20


class Counts(NamedTuple):
    """Test cases by outcome."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0

    def plus(self, other: "Counts") -> "Counts":
        """The sum of both."""
        return Counts(*(mine + its for mine, its in zip(self, other)))


class Events(NamedTuple):
    """What is needed of the build events."""

    status: Dict[str, str]  # test target -> "PASSED", "FAILED", ...
    reports: Dict[str, Set[str]]  # test target -> its reports
    unbuilt: Set[str]
    seconds: Dict[str, float]  # test target -> how long all its shards took, if they ran


def read_events(lines: List[str]) -> Events:
    """Takes the JSON lines of --build_event_json_file."""
    events = Events({}, {}, set(), {})
    for line in lines:
        event = json.loads(line)
        kind, ident = next(iter(event["id"].items()))
        if kind == "testSummary" and "testSummary" in event:  # Else the run was interrupted.
            events.status[ident["label"]] = event["testSummary"]["overallStatus"]
        elif kind == "testResult" and "testResult" in event:
            result = event["testResult"]
            remotely = result.get("executionInfo", {}).get("cachedRemotely")
            if not (result.get("cachedLocally") or remotely):
                took = float(result.get("testAttemptDurationMillis", 0)) / 1000
                label = ident["label"]
                events.seconds[label] = events.seconds.get(label, 0.0) + took
            for output in result.get("testActionOutput", []):
                if output["name"] == "test.xml":
                    events.reports.setdefault(ident["label"], set()).add(output["uri"])
        elif kind == "targetCompleted" and not event.get("completed", {}).get("success"):
            events.unbuilt.add(ident["label"])
    return events


def count_report(text: str) -> Counts:
    """Counts one report (JUnit's XML, as GoogleTest, tests/runner.py and Bazel write it)."""
    passed = failed = skipped = 0
    for case in ElementTree.fromstring(text).iter("testcase"):
        if case.get("status") == "notrun" or case.find("skipped") is not None:
            skipped += 1
        elif case.find("failure") is not None or case.find("error") is not None:
            failed += 1
        else:
            passed += 1
    return Counts(passed, failed, skipped)


class File(NamedTuple):
    """One of the files that a target runs together, by its part of the report."""

    target: str  # Which runs it alone.
    seconds: float
    counts: Counts


def files_of(text: str) -> List[File]:
    """The files of a report of tests/together.py; none of another report."""
    files: List[File] = []
    for suite in ElementTree.fromstring(text).iter("testsuite"):
        target = suite.get("target")
        if target is not None:
            counts = count_report(ElementTree.tostring(suite, encoding="unicode"))
            files.append(File(target, float(suite.get("time", "0")), counts))
    return files


def files_of_all(reports: Set[str]) -> List[File]:
    """The files of those reports that can be read."""
    files: List[File] = []
    for uri in sorted(reports):
        try:
            files.extend(files_of(_read(uri)))
        except (OSError, ElementTree.ParseError):
            pass  # count_target counts it.
    return files


def seconds_of_files(events: Events) -> Dict[str, float]:
    """The seconds of targets, of files where a target runs several."""
    seconds: Dict[str, float] = {}
    for label, took in events.seconds.items():
        files = files_of_all(events.reports.get(label, set()))
        seconds.update({file.target: file.seconds for file in files} or {label: took})
    return seconds


def _read(uri: str) -> str:
    path = urllib.request.url2pathname(urllib.parse.urlsplit(uri).path)
    return pathlib.Path(path).read_text(encoding="utf-8", errors="replace")


def count_target(status: str, reports: Set[str]) -> Counts:
    """Counts one test target."""
    counts = Counts()
    for uri in sorted(reports):
        try:
            counts = counts.plus(count_report(_read(uri)))
        except (OSError, ElementTree.ParseError):
            pass  # no report, or half of one: its status counts
    good = status in ("PASSED", "FLAKY")
    if not good and counts.failed == 0:
        return counts.plus(Counts(failed=1))
    if good and counts == Counts():
        return Counts(passed=1)
    return counts


def slowest(seconds: Dict[str, float]) -> List[str]:
    """Lines: the targets that took longest, and how much of all that is."""
    if not seconds:
        return []
    order = sorted(seconds, key=lambda label: -seconds[label])[:_SLOWEST]
    mine, whole = sum(seconds[label] for label in order), sum(seconds.values())
    head = f"slowest: {mine:.0f} s of the {whole:.0f} s in which {len(seconds)} targets ran"
    return [head, *(f"{seconds[label]:7.1f} s {label}" for label in order)]


def main(path: str) -> int:
    """Prints the slowest targets, the bad ones, then the counts, alone on the last line."""
    with open(path, encoding="utf-8") as file:
        events = read_events(file.readlines())
    for line in slowest(seconds_of_files(events)):
        print(line)
    counts = Counts()
    for label, status in sorted(events.status.items()):
        counts = counts.plus(count_target(status, events.reports.get(label, set())))
        if status not in ("PASSED", "FLAKY"):
            print(f"{status.lower()}: {label}")
            for one in files_of_all(events.reports.get(label, set())):
                if one.counts.failed:
                    print(f"  failed: {one.target}")
    for label in sorted(events.unbuilt - set(events.status)):
        counts = counts.plus(Counts(failed=1))
        print(f"does not build: {label}")
    ending = f", {counts.skipped} skipped" if counts.skipped else ""
    print(f"{counts.passed} passed, {counts.failed} failed{ending}")
    return 1 if counts.failed or not counts.passed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
