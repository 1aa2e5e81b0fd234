"""The steps of a rank, counted: for ``covey.stats()`` and for the table at a job's end.

A StepStats belongs to one optimizer. Nothing here waits or asks other ranks; a step costs about a
microsecond. Times are seconds of the clock all ranks of a host share.
"""

from __future__ import annotations

import collections
import json
import os
import time
from typing import Any, Callable, Deque, Dict, List, Mapping, Optional, Sequence, Tuple

from covey import _native
from covey.inject import Injector, parse
from covey.state import state

# The last arrivals are kept, to find the late ranks: 16384 exchanges, some 400 KB.
_ARRIVALS = 1 << 14
_MOST = 64  # Optimizers that are remembered.
# Staleness is counted by step up to here, then by powers of two.
_STALE = ("0", "1", "2", "3-4", "5-8", "9-16", "17 and more")
_STALE_ENDS = (0, 1, 2, 4, 8, 16)

_all_stats: List["StepStats"] = []


def configured(name: str) -> str:
    """The setting ``name`` as ``init(settings=...)`` or the environment has it; else empty."""
    return str(state.settings.get(name, os.environ.get(f"COVEY_{name.upper()}", "")))


class StepStats:
    """The steps of one optimizer on this rank."""

    def __init__(self, method: str, ranks: Sequence[int]) -> None:
        """``ranks`` train together, by ``method``."""
        self.method = method
        self.ranks = list(ranks)
        self.steps = 0
        self.init_epoch = state.init_epoch
        self.versions = 0
        self.distance = -1.0  # Of this rank's model from the mean, in parts of its norm.
        self._begun = self._met = 0
        self._fresh = [0] * len(self.ranks)
        self._overdue = [0] * len(self.ranks)
        self._missing = (0,) * len(self.ranks)
        self._stale = [0] * len(_STALE)
        self._arrivals: Deque[Tuple[int, float, int]] = collections.deque(maxlen=_ARRIVALS)
        self._began: Optional[Tuple[float, float, int]] = None  # Clock, processor time, blocked.
        self._last = (0.0, 0.0, 0)
        self._work_s = 0.0
        self._step_ns = 0  # When step() began, for the trace.
        self._is_unfinished = False  # This rank's steps are with others only after finish().
        self.refresh: Callable[[], None] = lambda: None  # Brings the counts up to now.
        self.injector = self._make_injector()
        _all_stats.append(self)
        del _all_stats[:-_MOST]

    def _make_injector(self) -> Optional[Injector]:
        text = configured("inject")
        if not text or state.place is None:
            return None
        place = state.place
        schedule = parse(text)
        schedule.check(place.size)
        return Injector(schedule, place.rank, place.size, time.monotonic, time.sleep)

    @property
    def injected_s(self) -> float:
        """Seconds slept because of ``--inject``."""
        return 0.0 if self.injector is None else self.injector.injected_s

    def begin_step(self) -> None:
        """``step()`` begins."""
        self._step_ns = _native.now_ns()
        if self.injector is not None:
            self._work_s = self.injector.work_s()

    def arrived(self, step: int, needed: int) -> None:
        """This rank has just come to exchange ``step``, which happens once ``needed`` have."""
        self._arrivals.append((step, time.monotonic(), needed))

    def came(self, arrivals: Sequence[Tuple[int, int, int]]) -> None:
        """The core has this rank's arrivals: ``covey_trainer_arrivals`` since the last call."""
        self._arrivals.extend((key, at / 1e9, needed) for key, at, needed in arrivals)

    def end_step(self) -> None:
        """``step()`` ends. The counts begin with the end of the first one."""
        self.steps += 1
        _native.timeline_span("step", self._step_ns, _native.now_ns())
        self.sleep(self.steps - 1)
        if self._began is None:
            self._begin()
        self._last = _now()

    def sleep(self, step: int) -> None:
        """Sleeps as ``--inject`` says for the end of this step, counted from 0."""
        if self.injector is not None:
            self.injector.end_step(step, self._work_s)

    def timed(self, counts: Mapping[str, Any]) -> None:
        """Steps that the core has timed: all of ``covey_trainer_stats``."""
        self.steps = counts["steps"]
        if self.steps > 0:
            self._began, self._last = _moment(*counts["first"]), _moment(*counts["last"])

    def _begin(self) -> None:
        """The first step is over: it has made buckets, and more."""
        self._began = _now()
        if self.injector is not None:
            self.injector.injected_s = 0.0

    def version(self, version: int, steps: Sequence[Tuple[int, int]]) -> None:
        """A version of rounds: first and last step of each rank that are in it; (0, 0): none."""
        self._say_unfinished(True)
        self.versions += 1
        for index, (first, last) in enumerate(steps):
            self._fresh[index] += last >= version
            for step in range(first, last + 1 if first > 0 else first):
                self._stale[_bin(version - step)] += 1

    def applied(self, counts: Mapping[str, Any], before: Mapping[str, Any]) -> None:
        """``counts``: of ``covey_trainer_stats``; ``before``: those of the last call, or empty."""
        self._begun += counts["begun"] - before.get("begun", 0)
        self._met += counts["met"] - before.get("met", 0)
        self.versions += counts["versions"] - before.get("versions", 0)
        mine = {"fresh": self._fresh, "overdue": self._overdue, "staleness": self._stale}
        for name, sums in mine.items():
            for i, (new, old) in enumerate(zip(counts[name], before.get(name, [0] * len(sums)))):
                sums[i] += new - old

    @property
    def begun(self) -> int:
        """Averages with one other rank, begun by this one."""
        self.refresh()
        return self._begun

    @property
    def met(self) -> int:
        """Steps before which others had averaged with this rank."""
        self.refresh()
        return self._met

    def exchanged(self) -> None:
        """This rank has a part of what others have done, and they of this rank's."""
        self._say_unfinished(True)

    def finished(self) -> None:
        """``finish()`` or the end of the runtime."""
        self._say_unfinished(False)

    def _say_unfinished(self, is_unfinished: bool) -> None:
        if self._is_unfinished != is_unfinished and state.place is not None:
            self._is_unfinished = is_unfinished
            _tell({"rank": state.place.rank, "unfinished": is_unfinished, "of": id(self)})

    def overdue(self, index: int) -> None:
        """The rank with that index was missing when max_wait was over."""
        self._overdue[index] += 1

    def figures(self) -> Dict[str, Any]:
        """The content of ``covey.stats()["training"]``: figures of this rank, and of all by
        rank."""
        self.refresh()
        clock, processor, blocked = self._began or (0.0, 0.0, 0)
        seconds = max(0.0, self._last[0] - clock)
        figures: Dict[str, Any] = {
            "steps": self.steps,
            "seconds": seconds,
            "steps_per_second": (self.steps - 1) / seconds if seconds > 0 else 0.0,
            "waited_s": max(0, self._last[2] - blocked) / 1e9,
            "injected_s": self.injected_s,
            "busy_fraction": (self._last[1] - processor) / seconds if seconds > 0 else 0.0,
        }
        if self.versions:
            share = {rank: n / self.versions for rank, n in zip(self.ranks, self._fresh)}
            figures["versions"] = self.versions
            figures["fresh_fraction"] = sum(share.values()) / len(share)
            figures["fresh_fraction_of_rank"] = share
            figures["overdue_of_rank"] = dict(zip(self.ranks, self._overdue))
            figures["staleness"] = dict(zip(_STALE, self._stale))
        if self.begun or self.met:
            figures["averages_begun"] = self.begun
            figures["steps_met"] = self.met
        if self.distance >= 0:
            figures["consensus_distance"] = self.distance
        return figures


def _bin(age: int) -> int:
    return next((i for i, end in enumerate(_STALE_ENDS) if age <= end), len(_STALE_ENDS))


def _moment(clock: int, processor: int, blocked: int) -> Tuple[float, float, int]:
    return clock / 1e9, processor / 1e9, blocked


def _now() -> Tuple[float, float, int]:
    """The clock, this process's processor time, and how long it has waited (ns)."""
    return time.monotonic(), time.process_time(), _native.blocked_ns()


def main_stats() -> Optional[StepStats]:
    """That of the optimizer with the most steps since ``init()``, the newest of equals, if any."""
    here = [one for one in reversed(_all_stats) if one.init_epoch == state.init_epoch]
    for one in here:
        one.refresh()
    mine = [one for one in here if one.steps > 0]
    return max(mine, key=lambda one: one.steps) if mine else None


def _tell(line: Dict[str, Any]) -> None:
    """To the launcher. A rank that coveyrun has not started has none."""
    descriptor = int(configured("summary_fd") or -1)
    if descriptor < 0 or (state.rendezvous_settings is not None and state.elastic is None):
        return
    if state.elastic is not None:
        line = {**line, "world": state.elastic.world}
    try:
        os.write(descriptor, json.dumps(line).encode() + b"\n")
    except OSError:
        pass  # It was closed, or is no file of the launcher's: then there is no reader.


def write_report() -> None:
    """Tells the launcher what this rank did, if it wants to know: one line of JSON."""
    stats, place = main_stats(), state.place
    if stats is None or place is None:
        return
    for each in _all_stats:
        each.finished()
    if configured("summary") != "always" and not stats.versions and not configured("inject"):
        return
    _tell({"rank": place.rank, "method": stats.method, "group": stats.ranks, **stats.figures(),
           "arrivals": list(stats._arrivals)})


def note_outlives(method: str) -> None:
    """Tells the launcher that ranks which train by ``method`` go on when one is gone."""
    _tell({"outlives": method})
