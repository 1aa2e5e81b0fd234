"""A merged trace in words: which rank waited for which, the slowest rank, overlap, clocks."""

from __future__ import annotations

import math
from typing import Any, Callable, Dict, List, Sequence, Tuple

from covey.trace.merging import Merged
from covey.trace.reading import EXCHANGE, PYTHON, Span, Trace, occurrences, union_us

STEP = "step"
_MOST_RANKS = 8  # The ranks that waited longest have a line each, so many at the most.

Waits = Dict[Tuple[int, int], Dict[str, float]]  # (who, for whom) -> microseconds by exchange


def waits(traces: Sequence[Trace]) -> Waits:
    """How long each rank waited for each other one, by the name of the exchange: for the one that
    began it last, until it did."""
    begun: Dict[Any, Dict[int, Span]] = {}
    for trace in traces:
        for key, span in occurrences(trace).items():
            begun.setdefault(key, {})[trace.rank] = span
    found: Waits = {}
    for (name, _), spans in begun.items():
        last = max(spans, key=lambda rank: spans[rank].begin)
        for rank, span in spans.items():
            waited = min(span.end, spans[last].begin) - span.begin
            if rank != last and waited > 0:
                by_name = found.setdefault((rank, last), {})
                by_name[name] = by_name.get(name, 0.0) + waited
    return found


def overlap(trace: Trace) -> float:
    """The part of the time of exchanges in which the rank was not in step(): backward went on. Not
    a number where the trace has no step, or no exchange."""
    steps = [span for span in trace.spans.get(PYTHON, ()) if span.name == STEP]
    exchanges = trace.spans.get(EXCHANGE, [])
    if not steps or not exchanges:
        return math.nan
    within = [
        Span("", max(one.begin, step.begin), min(one.end, step.end))
        for step in steps
        for one in exchanges
        if one.begin < step.end and one.end > step.begin
    ]
    within.sort(key=lambda span: span.begin)
    return 1 - union_us(within) / union_us(exchanges)


def lines(found: Merged) -> List[str]:
    """The summary, a sentence a line."""
    traces = found.traces
    ends = [span.end for trace in traces for listed in trace.spans.values() for span in listed]
    hosts = f"{len(found.clocks)} host{'s' if len(found.clocks) > 1 else ''}"
    ranks = f"{len(traces)} rank{'s' * (len(traces) != 1)}"
    said = [f"{_time(max(ends, default=0.0))} of {ranks} on {hosts}"]
    return said + _of_waits(waits(traces)) + _of_overlap(traces) + _of_clocks(found)


def _of_waits(all_waits: Waits) -> List[str]:
    if not all_waits:
        return ["no rank waited for another one in an exchange of all"]
    caused: Dict[int, Dict[str, float]] = {}
    by_rank: Dict[int, Dict[int, float]] = {}
    for (rank, last), by_name in all_waits.items():
        by_rank.setdefault(rank, {})[last] = sum(by_name.values())
        sums = caused.setdefault(last, {})
        for name, waited in by_name.items():
            sums[name] = sums.get(name, 0.0) + waited
    ((slowest, names),) = _largest(caused, 1, lambda by_name: sum(by_name.values()))
    ((name, most),) = _largest(names, 1)
    said = [
        f"rank {slowest} is the slowest: the others waited {_time(sum(names.values()))} for it, "
        f"{_time(most)} of it in {name!r}"
    ]
    for rank, waited_for in sorted(_largest(by_rank, _MOST_RANKS, lambda it: sum(it.values()))):
        parts = [f"{_time(us)} for rank {last}" for last, us in _largest(waited_for, 3)]
        said.append(f"rank {rank} waited {_time(sum(waited_for.values()))}: {', '.join(parts)}")
    return said


def _largest(
    table: Dict[Any, Any], most: int, size: Callable[[Any], float] = float
) -> List[Tuple[Any, Any]]:
    """The items with the largest values, the largest first."""
    return sorted(table.items(), key=lambda item: -size(item[1]))[:most]


def _of_overlap(traces: Sequence[Trace]) -> List[str]:
    parts = [part for part in map(overlap, traces) if not math.isnan(part)]
    if not parts:
        return []
    return [f"{100 * sum(parts) / len(parts):.0f} % of the time of exchanges was outside of step()"]


def _of_clocks(found: Merged) -> List[str]:
    said = []
    for clock in found.clocks[1:]:
        ranks = "rank" if len(clock.ranks) == 1 else "ranks"
        whose = f"the clock of {ranks} {', '.join(map(str, clock.ranks))}"
        if math.isinf(clock.error_us):
            said.append(f"{whose} is set by the hosts' wall clocks: no exchange is in both traces")
        else:
            said.append(f"{whose} is set by exchanges, to {_time(clock.error_us)}")
    return said


def _time(microseconds: float) -> str:
    if microseconds < 1000:
        return f"{microseconds:.0f} us"
    if microseconds < 1e6:
        return f"{microseconds / 1000:.1f} ms"
    return f"{microseconds / 1e6:.2f} s"
