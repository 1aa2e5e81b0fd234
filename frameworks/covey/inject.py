"""Imbalance on demand: delays that a rank sleeps at the end of its steps, drawn from a seed.

A text says what is injected: items joined by "+", then maybe ",seed=N"::

    delay:320ms@2              two random ranks per step; @rank3 one rank, @0.25 a part, @all
    random:0ms-200ms           each rank, each step, uniformly between the two
    skew:0ms-7ms               the same each step, growing from the first rank to the last
    rotate:50ms-400ms          the same, shifted by one rank each step
    lognormal:550ms:0.55       median and sigma, and maybe the largest: lognormal:550ms:0.55:3s
    pareto:350ms:1.6           scale x (u^(-1/alpha) - 1); maybe the largest, else 60s
    slow:10x@1                 one rank for good: it takes 10 times as long for its own work
    pause:5s:100@rank2         once, at the end of step 100

The schedule is a pure function of seed, step and rank: every rank knows that of all, runs repeat,
and what a method could gain at most can be computed beside what it gained.
"""

from __future__ import annotations

import difflib
import math
import re
from dataclasses import dataclass, replace
from typing import Callable, Dict, List, Optional, Tuple

from covey.errors import InvalidArgument, shown

_MASK = (1 << 64) - 1
_UNITS = {"s": 1.0, "ms": 1e-3, "us": 1e-6}
_LARGEST_S = 60.0
_SEED = 1


def _mix(*words: int) -> int:
    """64 bits out of any numbers, the same on every machine (the finish of splitmix64)."""
    value = 0
    for word in words:
        value = (value + (word & _MASK) + 0x9E3779B97F4A7C15) & _MASK
        value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
        value ^= value >> 31
    return value


def _uniform(*words: int) -> float:
    """In [0, 1)."""
    return (_mix(*words) >> 11) * 2.0**-53


@dataclass(frozen=True)
class Delay:
    """The sleep of a rank after a step: seconds, and times its own work of the step."""

    seconds: float = 0.0
    times: float = 0.0


@dataclass(frozen=True)
class Who:
    """Which ranks: `count` of them, a `part`, or the one `rank`; all when none is given."""

    count: int = 0
    part: float = 0.0
    rank: int = -1

    def has(self, rank: int, size: int, *words: int) -> bool:
        """Whether ``rank`` is one, of those drawn by ``words``."""
        if self.rank >= 0:
            return rank == self.rank
        count = max(1, round(self.part * size)) if self.part else self.count or size
        if count >= size:
            return True
        order = sorted(range(size), key=lambda other: _mix(*words, other))
        return rank in order[:count]

    def __str__(self) -> str:
        if self.rank >= 0:
            return f"rank {self.rank}"
        if self.count:
            return "1 random rank" if self.count == 1 else f"{self.count} random ranks"
        return f"{self.part:g} of the ranks, at random" if self.part else "every rank"


@dataclass(frozen=True)
class Item:
    """One thing that is injected. ``draw``: (seed, step, rank, size) -> Delay."""

    words: str
    draw: Callable[[int, int, int, int], Delay]
    who: Who = Who()


@dataclass(frozen=True)
class Schedule:
    """All that is injected."""

    items: Tuple[Item, ...]
    seed: int = _SEED

    def delay(self, step: int, rank: int, size: int) -> Delay:
        """The sleep of ``rank`` of ``size`` at the end of ``step``, counted from 0. Pure."""
        drawn = [
            item.draw(_mix(self.seed, number), step, rank, size)
            for number, item in enumerate(self.items)
        ]
        return Delay(sum(d.seconds for d in drawn), sum(d.times for d in drawn))

    def check(self, size: int) -> None:
        """Raises InvalidArgument (a ValueError) for ranks that a job of ``size`` does not have."""
        for item in self.items:
            if item.who.rank >= size:
                raise InvalidArgument(
                    f"{item.words}: the job has ranks 0 to {size - 1}, no rank {item.who.rank}"
                )
            if item.who.count > size:
                raise InvalidArgument(
                    f"{item.words}: the job has {size} ranks, fewer than {item.who.count}"
                )

    def __str__(self) -> str:
        return f"{'; '.join(item.words for item in self.items)} (seed {self.seed})"


def parse(text: str) -> Schedule:
    """The schedule that ``text`` says.

    Raises:
        InvalidArgument: (a ValueError) names what is wrong and what there is.

    Example:
        >>> schedule = parse("delay:320ms@2,seed=7")
        >>> sum(schedule.delay(0, rank, 8).seconds for rank in range(8))
        0.64
    """
    items, comma, option = text.partition(",")
    seed = _SEED
    if comma:
        name, _, value = option.partition("=")
        if name != "seed" or not re.fullmatch(r"[0-9]{1,20}", value):
            raise InvalidArgument(f"{option!r} in {text!r} is not seed=N, the only option there is")
        seed = int(value)
    return Schedule(tuple(_item(word) for word in items.split("+")), seed)


def _item(word: str) -> Item:
    head, at, who = word.partition("@")
    kind, *arguments = head.split(":")
    if kind not in _KINDS:
        near = "".join(difflib.get_close_matches(kind, list(_KINDS), n=1))
        near = f" (did you mean {near}?)" if near else ""
        raise InvalidArgument(
            f"there is nothing {kind!r} to inject{near}; there are: {', '.join(_KINDS)}"
        )
    make, form, takes_who = _KINDS[kind]
    if at and not takes_who:
        raise InvalidArgument(f"{word!r}: {kind} is of every rank: {form}")
    try:
        ranks = _who(who if at else takes_who)
        return replace(make(ranks, *arguments), who=ranks)
    except (TypeError, ValueError) as error:
        why = f" ({error})" if isinstance(error, _Wrong) else ""
        raise InvalidArgument(shown(f"{word!r} is not {form}{why}", kept="")) from None


class _Wrong(ValueError):
    """Why a value cannot be read."""


def _who(text: str) -> Who:
    if text in ("", "all"):
        return Who()
    if re.fullmatch(r"rank\d+", text):
        return Who(rank=int(text[4:]))
    if re.fullmatch(r"\d+", text) and int(text) > 0:
        return Who(count=int(text))
    if re.fullmatch(r"0?\.\d+|1\.0", text) and float(text) > 0:
        return Who(part=float(text))
    raise _Wrong(f"@{text}: write @2, @0.25, @rank3 or @all")


def _time(text: str) -> float:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(us|ms|s)", text)
    if not found:
        raise _Wrong(f"{text!r} is no time such as 320ms")
    seconds = float(found.group(1)) * _UNITS[found.group(2)]
    if seconds > 3600:
        raise _Wrong(f"{text} is more than an hour")
    return seconds


def _range(text: str) -> Tuple[float, float]:
    low, dash, high = text.partition("-")
    first, last = _time(low), _time(high if dash else low)
    if last < first:
        raise _Wrong("the smaller time comes first")
    return first, last


def _positive(text: str) -> float:
    if not re.fullmatch(r"[0-9]*\.?[0-9]+", text) or not 0 < float(text) < math.inf:
        raise _Wrong(f"{text!r} is no number above 0")
    return float(text)


def _delay(who: Who, time: str) -> Item:
    length = Delay(_time(time))
    return Item(
        f"{time} to {who}, each step",
        lambda seed, step, rank, size: length if who.has(rank, size, seed, step) else Delay(),
    )


def _random(who: Who, bounds: str) -> Item:
    low, high = _range(bounds)

    def draw(seed: int, step: int, rank: int, size: int) -> Delay:
        if not who.has(rank, size, seed, step, 1):
            return Delay()
        return Delay(low + (high - low) * _uniform(seed, step, rank))

    return Item(f"{bounds} to {who}, uniformly, each step", draw)


def _skew(_: Who, bounds: str, shifts: int = 0) -> Item:
    low, high = _range(bounds)

    def draw(_: int, step: int, rank: int, size: int) -> Delay:
        place = (rank + shifts * step) % size
        return Delay(low + (high - low) * place / max(1, size - 1))

    how = ", shifted by one rank each step" if shifts else ""
    return Item(f"{bounds} from the first rank to the last{how}", draw)


def _rotate(who: Who, bounds: str) -> Item:
    return _skew(who, bounds, 1)


def _heavy(
    words: str, largest: float, quantile: Callable[[int, int, int], float], who: Who
) -> Item:
    def draw(seed: int, step: int, rank: int, size: int) -> Delay:
        if not who.has(rank, size, seed, step, 1):
            return Delay()
        return Delay(min(largest, quantile(seed, step, rank)))

    return Item(f"{words}, {largest:g} s at most, to {who}, each step", draw)


def _lognormal(who: Who, median: str, sigma: str, largest: str = "60s") -> Item:
    middle, spread = _time(median), _positive(sigma)

    def quantile(seed: int, step: int, rank: int) -> float:
        radius = math.sqrt(-2 * math.log(1 - _uniform(seed, step, rank, 2)))
        normal = radius * math.cos(2 * math.pi * _uniform(seed, step, rank, 3))
        return middle * math.exp(min(spread * normal, 50.0))

    return _heavy(f"lognormal of median {median}, sigma {sigma}", _time(largest), quantile, who)


def _pareto(who: Who, scale: str, alpha: str, largest: str = "60s") -> Item:
    unit, power = _time(scale), _positive(alpha)

    def quantile(seed: int, step: int, rank: int) -> float:
        exponent = min(-math.log(1 - _uniform(seed, step, rank)) / power, 50.0)
        return unit * math.expm1(exponent)

    return _heavy(f"pareto of scale {scale}, alpha {alpha}", _time(largest), quantile, who)


def _slow(who: Who, factor: str) -> Item:
    if not factor.endswith("x") or not _positive(factor[:-1]) > 1:
        raise _Wrong(f"{factor!r} is no factor above 1 such as 10x")
    more = Delay(times=float(factor[:-1]) - 1)
    return Item(
        f"{factor} slower for good: {who}",
        lambda seed, step, rank, size: more if who.has(rank, size, seed) else Delay(),
    )


def _pause(who: Who, time: str, step: str) -> Item:
    length, when = Delay(_time(time)), int(step)
    if when < 0:
        raise _Wrong("steps are counted from 0")
    return Item(
        f"{time} once, at the end of step {when}, to {who}",
        lambda seed, step, rank, size: length
        if step == when and who.has(rank, size, seed)
        else Delay(),
    )


# kind -> (maker, how it is written, the default ranks; empty: never said)
_KINDS: Dict[str, Tuple[Callable[..., Item], str, str]] = {
    "delay": (_delay, "delay:TIME@WHO, such as delay:320ms@2", "all"),
    "random": (_random, "random:TIME-TIME@WHO, such as random:0ms-200ms", "all"),
    "skew": (_skew, "skew:TIME-TIME, such as skew:0ms-7ms", ""),
    "rotate": (_rotate, "rotate:TIME-TIME, such as rotate:50ms-400ms", ""),
    "lognormal": (_lognormal, "lognormal:MEDIAN:SIGMA[:LARGEST]@WHO, such as lognormal:550ms:0.55",
                  "all"),
    "pareto": (_pareto, "pareto:SCALE:ALPHA[:LARGEST]@WHO, such as pareto:350ms:1.6", "all"),
    "slow": (_slow, "slow:FACTORx@WHO, such as slow:10x@1", "all"),
    "pause": (_pause, "pause:TIME:STEP@WHO, such as pause:5s:100@rank2", "all"),
}


KINDS = tuple(_KINDS)


class Injector:
    """Sleeps at the end of the steps of one rank."""

    def __init__(
        self,
        schedule: Schedule,
        rank: int,
        size: int,
        clock: Callable[[], float],
        sleep: Callable[[float], None],
    ) -> None:
        """``clock`` in seconds."""
        self.injected_s = 0.0
        self._schedule, self._rank, self._size = schedule, rank, size
        self._clock, self._sleep = clock, sleep
        self._began: Optional[float] = None  # The end of the step before.

    def work_s(self) -> float:
        """To be called when ``step()`` begins: seconds of this rank's own work since the last."""
        return 0.0 if self._began is None else self._clock() - self._began

    def end_step(self, step: int, work_s: float) -> None:
        """To be called when ``step()`` ends."""
        drawn = self._schedule.delay(step, self._rank, self._size)
        seconds = drawn.seconds + drawn.times * work_s
        if seconds > 0:
            self._sleep(seconds)
            self.injected_s += seconds
        self._began = self._clock()


def drawn(schedule: Schedule, steps: int, size: int) -> List[List[float]]:
    """Seconds by step and rank, of what does not depend on a rank's own work."""
    return [[schedule.delay(t, r, size).seconds for r in range(size)] for t in range(steps)]
