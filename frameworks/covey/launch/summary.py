"""The table at the end of a job: the figures of each rank, as it has told the launcher.

Ranks append a line of JSON each, at their end, to a file without a name that they inherit; a killed
rank has told nothing.
"""

from __future__ import annotations

import fcntl
import json
import os
from types import MappingProxyType
from typing import Any, Dict, List, Mapping, Sequence, Tuple


class Summary:
    """The file."""

    def __init__(self, is_shown: bool = True) -> None:
        """Makes it. ``is_shown``: whether there is a table at all."""
        self._is_shown = is_shown
        self._told_bytes = 0  # of the file, that `news` has returned
        self.cores = len(os.sched_getaffinity(0))  # of all hosts
        self.fd = os.memfd_create("covey-summary", os.MFD_CLOEXEC)
        fcntl.fcntl(self.fd, fcntl.F_SETFL, fcntl.fcntl(self.fd, fcntl.F_GETFL) | os.O_APPEND)

    def lines(self, failed: Mapping[int, str] = MappingProxyType({})) -> List[str]:
        """The table of what was told so far, of an elastic job of the last world; none when nothing
        was. ``failed``: how, by rank."""
        if not self._is_shown:
            return []
        reports = [told for told in self._told() if "method" in told]
        last = max((told.get("world", 0) for told in reports), default=0)
        reports = [told for told in reports if told.get("world", 0) == last]
        if any("world" in told for told in reports):
            failed = {}  # Under numbers that ranks had before.
        reports.sort(key=lambda report: report["rank"])
        return table(reports, failed, self.cores)

    def outlives(self) -> str:
        """The method of a training that goes on when a rank has died; empty: none was told."""
        return next((told["outlives"] for told in self._told() if "outlives" in told), "")

    def unfinished(self) -> List[int]:
        """Ranks that trained with others by a method that needs finish(), and neither called it
        since nor ended the runtime. Those of an elastic job have other numbers later: none."""
        last: Dict[Tuple[int, int], bool] = {}
        for line in self._told():
            if "unfinished" in line and "world" not in line:
                last[line["rank"], line["of"]] = line["unfinished"]
        return sorted({rank for (rank, _), is_unfinished in last.items() if is_unfinished})

    def news(self) -> str:
        """The whole lines that were told since the last call, for `add` in another process."""
        data = os.pread(self.fd, os.fstat(self.fd).st_size - self._told_bytes, self._told_bytes)
        whole = data[: data.rfind(b"\n") + 1]
        self._told_bytes += len(whole)
        return whole.decode("utf-8", "replace")

    def add(self, text: str) -> None:
        """Lines that were told on another host."""
        os.write(self.fd, text.encode("utf-8", "replace"))

    def _told(self) -> List[Dict[str, Any]]:
        data = os.pread(self.fd, os.fstat(self.fd).st_size, 0)
        told = []
        for line in data.decode("utf-8", "replace").splitlines():
            try:
                told.append(json.loads(line))
            except ValueError:
                continue  # A rank that was killed while it wrote.
        return told

    def close(self) -> None:
        """May be called again."""
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)


def held_up(reports: Sequence[Dict[str, Any]]) -> Dict[int, float]:
    """Seconds for which each rank was the last one that an exchange needed, after all others
    needed had come: what it alone made the others wait. By rank."""
    by_step: Dict[Tuple[str, int], List[Tuple[float, int, int]]] = {}
    for report in reports:
        for step, at, needed in report["arrivals"]:
            key = (str(report["group"]), step)
            by_step.setdefault(key, []).append((at, report["rank"], needed))
    seconds = {report["rank"]: 0.0 for report in reports}
    for arrivals in by_step.values():
        arrivals.sort()
        needed = arrivals[0][2]
        if 1 < needed <= len(arrivals):
            last, before = arrivals[needed - 1], arrivals[needed - 2]
            seconds[last[1]] += last[0] - before[0]
    return seconds


def table(
    reports: Sequence[Dict[str, Any]],
    failed: Mapping[int, str] = MappingProxyType({}),
    cores: int = 0,
) -> List[str]:
    """The lines to show; ``failed``: how ranks have, by rank; ``cores``: 0: those of this host."""
    if not reports:
        return []
    best = {**max(reports, key=lambda report: report.get("versions", 0))}
    best["overdue_of_rank"] = _overdue(reports)
    held = held_up(reports)
    cores = cores or len(os.sched_getaffinity(0))
    ranks = f"{len(reports)} rank{'s' * (len(reports) != 1)}"
    lines = [f"method {best['method']}: {ranks} on {cores} cores"]
    columns = ["rank", "steps", "steps/s", "own work s", "waiting s", "held up s", "cpu busy"]
    optional = {
        "injected s": any(report["injected_s"] for report in reports),
        "fresh": "versions" in best,
        "overdue": any(best.get("overdue_of_rank", {}).values()),
        "begun": any("averages_begun" in report for report in reports),
        "met": any("steps_met" in report for report in reports),
        "apart": any("consensus_distance" in report for report in reports),
    }
    columns += [name for name, wanted in optional.items() if wanted]
    rows = [[_cells(report, best, held)[name] for name in columns] for report in reports]
    widths = [max(len(row[i]) for row in [columns, *rows]) for i in range(len(columns))]
    lines += ["  ".join(cell.rjust(width) for cell, width in zip(row, widths))
              for row in [columns, *rows]]
    return lines + _footer(reports, best, optional, failed)


def _overdue(reports: Sequence[Dict[str, Any]]) -> Dict[str, int]:
    """By rank: how often it was. A report lacks the versions that its rank has skipped."""
    found: Dict[str, int] = {}
    for report in reports:
        for rank, times in report.get("overdue_of_rank", {}).items():
            found[rank] = max(found.get(rank, 0), times)
    return found


def _cells(report: Dict[str, Any], best: Dict[str, Any], held: Dict[int, float]) -> Dict[str, str]:
    rank = report["rank"]
    own = report["seconds"] - report["waited_s"] - report["injected_s"]
    fresh = best.get("fresh_fraction_of_rank", {}).get(str(rank), 0.0)
    return {
        "rank": str(rank),
        "steps": str(report["steps"]),
        "steps/s": f"{report['steps_per_second']:.1f}",
        "own work s": f"{max(0.0, own):.1f}",
        "waiting s": f"{report['waited_s']:.1f}",
        "held up s": f"{held[rank]:.1f}",
        "cpu busy": f"{report['busy_fraction']:.0%}",
        "injected s": f"{report['injected_s']:.1f}",
        "fresh": f"{fresh:.0%}",
        "overdue": str(best.get("overdue_of_rank", {}).get(str(rank), 0)),
        "begun": str(report.get("averages_begun", 0)),
        "met": str(report.get("steps_met", 0)),
        "apart": f"{report['consensus_distance']:.1e}" if "consensus_distance" in report else "-",
    }


def _footer(
    reports: Sequence[Dict[str, Any]],
    best: Dict[str, Any],
    shown: Dict[str, bool],
    failed: Mapping[int, str],
) -> List[str]:
    lines = ["held up: how long this rank alone was missing. cpu busy: processor time in parts of "
             "the time; much below 100% without waiting or sleeping is want of cores"]
    stale = best.get("staleness", {})
    total = sum(stale.values())
    if total:
        parts = [f"{age}: {count / total:.1%}" for age, count in stale.items() if count]
        lines.append(f"contributions by how many steps late they counted: {', '.join(parts)}")
    if shown["fresh"]:
        lines.append("fresh: in how many steps the rank's own contribution of that step was")
    if shown["begun"]:
        lines.append("begun: averages with one other rank that this one began; met: its steps "
                     "before which others had averaged with it")
    if shown["apart"]:
        lines.append("apart: this rank's model from the mean, in parts of its norm, when last "
                     "averaged, or finished")
    lines += [f"rank {rank}: {how}" for rank, how in sorted(failed.items())]
    silent = sorted(set(best["group"]) - {report["rank"] for report in reports} - set(failed))
    if silent:
        lines.append(f"nothing was told by: {', '.join(map(str, silent))}")
    return lines
