"""Contestants that take turns: warm-up, rounds, samples. Runs on every rank of a bench job."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass, field
from typing import Callable, Dict, List, Optional, Sequence

import covey
from covey.bench.flag import Flag
from covey.bench.ratio import Ratio, ratio_of_medians

WARM_UP = 3
MAX_COUNT = 2000
IN_C = ", C"
"""Ends the name of a contestant that is called in a loop in C, the others from Python."""


@dataclass(frozen=True)
class Contestant:
    """One way to do the same thing. `run(n)` does it `n` times and returns when all is done."""

    name: str
    run: Callable[[int], None]


@dataclass(frozen=True)
class Effort:
    """How much to measure.

    Attributes:
        rounds: how often every contestant gets its turn.
        samples: timed samples per turn.
        sample_s: a sample repeats short operations for about so long.
    """

    rounds: int = 5
    samples: int = 5
    sample_s: float = 0.02


@dataclass
class Row:
    """The measurements of one workload (one size, say).

    Attributes:
        label: the workload in words.
        size_bytes: its payload.
        seconds: contestant -> round -> samples; each the slowest rank's time for one operation.
        barrier_s: round -> time of a barrier then, which tells a slow moment of the machine.
        flag_s: round -> one-way latency of a shared word then (flag.py); 0 with one rank.
        bases: contestant -> the one its ratio is taken to; without an entry none is.
        moved_bytes: contestant -> bytes of one operation, for GB/s; without an entry none are said.
        notes: a summary of the samples, in words.
    """

    label: str
    size_bytes: int
    seconds: Dict[str, List[List[float]]] = field(default_factory=dict)
    barrier_s: List[float] = field(default_factory=list)
    flag_s: List[float] = field(default_factory=list)
    bases: Dict[str, str] = field(default_factory=dict)
    moved_bytes: Dict[str, int] = field(default_factory=dict)
    notes: List[str] = field(default_factory=list)
    _ratios: Dict[str, Optional[Ratio]] = field(default_factory=dict)  # once found

    def minimum(self, name: str) -> float:
        """The best sample, seconds."""
        return min(sample for turn in self.seconds[name] for sample in turn)

    def median(self, name: str) -> float:
        """The median of all samples, seconds."""
        return statistics.median(sample for turn in self.seconds[name] for sample in turn)

    def gigabytes_per_s(self, name: str) -> Optional[float]:
        """By the median, 10^9 bytes. None without an entry in moved_bytes."""
        if name not in self.moved_bytes:
            return None
        return self.moved_bytes[name] / self.median(name) / 1e9

    def ratio(self, name: str) -> Optional[Ratio]:
        """How many times longer than its base it takes. None without a base, or when the base
        takes no time. REQUIRES: all has been measured."""
        if name not in self.bases:
            return None
        if name not in self._ratios:
            base = self.seconds[self.bases[name]]
            self._ratios[name] = ratio_of_medians(self.seconds[name], base)
        return self._ratios[name]


def _timed(run: Callable[[int], None], count: int) -> float:
    covey.barrier()
    begin = time.perf_counter()
    run(count)
    return (time.perf_counter() - begin) / count


def _barrier_s() -> float:
    covey.barrier()
    begin = time.perf_counter()
    for _ in range(20):
        covey.barrier()
    return (time.perf_counter() - begin) / 20


class Contest:
    """How contestants of one job are measured.

    Attributes:
        effort: how much.
    """

    def __init__(self, effort: Effort, flag: Flag) -> None:
        self.effort = effort
        self._flag = flag

    def with_effort(self, effort: Effort) -> "Contest":
        """Another one that measures as much."""
        return Contest(effort, self._flag)

    def _agreed_count(self, contestant: Contestant) -> int:
        """Operations per sample, the same on every rank; warms up on the way."""
        contestant.run(WARM_UP)
        took_s = min(_timed(contestant.run, 1) for _ in range(2))
        count = max(1, min(MAX_COUNT, int(self.effort.sample_s / max(took_s, 1e-9))))
        return int(covey.broadcast_object(count, root_rank=0))

    def _flag_s(self) -> float:
        covey.barrier()
        return float(covey.broadcast_object(self._flag.one_way_s(), root_rank=0))

    def measure(
        self, label: str, size_bytes: int, contestants: Sequence[Contestant], base: str
    ) -> Row:
        """Gives every contestant its turn in every round, in rotating order. The same row on every
        rank; ratios to the contestant named `base`."""
        counts = {one.name: self._agreed_count(one) for one in contestants}
        return self._measure(label, size_bytes, contestants, base, counts)

    def measure_blocks(
        self, label: str, size_bytes: int, contestants: Sequence[Contestant], base: str, block: int
    ) -> Row:
        """The same, where a sample is `block` operations of each contestant."""
        for one in contestants:
            one.run(WARM_UP)
        counts = {one.name: block for one in contestants}
        return self._measure(label, size_bytes, contestants, base, counts)

    def _measure(
        self,
        label: str,
        size_bytes: int,
        contestants: Sequence[Contestant],
        base: str,
        counts: Dict[str, int],
    ) -> Row:
        mine: Dict[str, List[List[float]]] = {one.name: [] for one in contestants}
        row = Row(label, size_bytes, bases={name: base for name in mine if name != base})
        for number in range(self.effort.rounds):
            row.flag_s.append(self._flag_s())
            first = number % len(contestants)
            for one in [*contestants[first:], *contestants[:first]]:
                one.run(1)  # its own caches and threads, after another's turn
                count = counts[one.name]
                turn = [_timed(one.run, count) for _ in range(self.effort.samples)]
                mine[one.name].append(turn)
            row.barrier_s.append(min(_barrier_s() for _ in range(5)))
        for name in mine:
            everyone = covey.allgather_object(mine[name])
            turns = zip(*everyone)
            row.seconds[name] = [[max(samples) for samples in zip(*turn)] for turn in turns]
        return row


def net_of(row: Row, name: str, idle: str) -> List[List[float]]:
    """`name` less what `idle` (the same without communication) takes in the same round."""
    return [
        [max(0.0, sample - statistics.median(base)) for sample in turn]
        for turn, base in zip(row.seconds[name], row.seconds[idle])
    ]


def exposed_share(row: Row, name: str, alone: str) -> float:
    """The median of what `name` takes beyond `alone`, the same without communication, by the
    latter's median: 0 when all is hidden behind the computation."""
    beyond = [sample for turn in net_of(row, name, alone) for sample in turn]
    return statistics.median(beyond) / row.median(alone)
