"""The clocks of a job's hosts, set by the exchanges in the traces themselves.

An exchange goes on when all ranks have begun it. So none of its waits ends, anywhere, before it has
begun everywhere: rank b's beginning is not after the end of rank a's wait, and the reverse. Each
exchange thus bounds the difference of two clocks from both sides, as the two ways of a round trip
do (D. Mills, Internet Time Synchronization, 1991, doi:10.1109/26.103043). The narrowest bounds of a
window of time hold for it; between windows the difference changes evenly, as clocks drift.
"""

from __future__ import annotations

import bisect
from typing import Any, Dict, List, NamedTuple, Sequence, Tuple

from covey.trace.reading import Span, Trace, occurrences

_SAME_CLOCK_US = 1000.0  # Wall clocks of one host are read within this time of each other.
_WINDOW_US = 1e6  # In it clocks that drift by 50 millionths differ by 50 us more.
_MOST_WIDTHS = 2  # Windows with bounds so many times as far apart as others' say little.


class Clock(NamedTuple):
    """A host's clock, by that of the first rank's host.

    Attributes:
        ranks: those on the host.
        points: (time on this clock, this clock minus the other), in ascending order.
        error_us: the difference is right to so much; infinite: by the hosts' wall clocks.
    """

    ranks: Tuple[int, ...]
    points: Tuple[Tuple[float, float], ...]
    error_us: float

    def shared(self, time_us: float) -> float:
        """A time of this clock on that of the first rank's host."""
        at = bisect.bisect(self.points, (time_us,))
        if at in (0, len(self.points)):
            return time_us - self.points[min(at, len(self.points) - 1)][1]
        (begin, before), (end, after) = self.points[at - 1 : at + 1]
        return time_us - before - (after - before) * (time_us - begin) / (end - begin)


def set_by_exchanges(traces: Sequence[Trace]) -> List[Clock]:
    """The clocks of all hosts, that of the first trace's rank first."""
    hosts = _hosts(traces)
    clocks = [Clock(tuple(one.rank for one in hosts[0]), ((0.0, 0.0),), 0.0)]
    return clocks + [_clock(hosts[0], host) for host in hosts[1:]]


def _hosts(traces: Sequence[Trace]) -> List[List[Trace]]:
    """Ranks whose clocks began at one time by the wall clock have one clock."""
    found: List[List[Trace]] = []
    for trace in traces:
        for host in found:
            if abs(host[0].unix_us - trace.unix_us) < _SAME_CLOCK_US:
                host.append(trace)
                break
        else:
            found.append([trace])
    return found


def _clock(first: Sequence[Trace], host: Sequence[Trace]) -> Clock:
    ranks = tuple(one.rank for one in host)
    windows: Dict[int, Tuple[float, float]] = {}
    mine = [occurrences(one) for one in first]
    for theirs in map(occurrences, host):
        for other in mine:
            _narrow(windows, other, theirs)
    points = [
        ((number + 0.5) * _WINDOW_US, (low + high) / 2, (high - low) / 2)
        for number, (low, high) in sorted(windows.items())
        if low <= high
    ]
    if not points:
        difference = first[0].unix_us - host[0].unix_us
        return Clock(ranks, ((0.0, difference),), float("inf"))
    most = _MOST_WIDTHS * sorted(half for _, _, half in points)[len(points) // 2]
    points = [point for point in points if point[2] <= most]
    error = max(half for _, _, half in points)
    return Clock(ranks, tuple((at, difference) for at, difference, _ in points), error)


def _narrow(
    windows: Dict[int, Tuple[float, float]], other: Dict[Any, Span], theirs: Dict[Any, Span]
) -> None:
    for key, span in theirs.items():
        met = other.get(key)
        if met is None:
            continue
        number = int(span.begin // _WINDOW_US)
        low, high = windows.get(number, (float("-inf"), float("inf")))
        windows[number] = (max(low, span.begin - met.end), min(high, span.end - met.begin))
