"""How much longer one thing takes than another, and how sure that is."""

from __future__ import annotations

import random
import statistics
from typing import List, NamedTuple, Optional, Sequence, Tuple

RESAMPLES = 1000
CONFIDENCE = 0.95
SEED = 0
"""The interval of the same samples is the same again."""

Turns = Sequence[Sequence[float]]
"""Round -> samples, seconds."""


class Ratio(NamedTuple):
    """A ratio of medians with its bootstrap confidence interval (percentiles; B. Efron, Bootstrap
    methods: another look at the jackknife, Annals of Statistics 7(1), 1979,
    doi:10.1214/aos/1176344552)."""

    value: float
    low: float
    high: float


class Difference(NamedTuple):
    """A median of paired differences in seconds, with an interval of the same kind."""

    value: float
    low: float
    high: float


def _median(turns: Turns) -> float:
    return statistics.median(sample for turn in turns for sample in turn)


def _drawn(turns: Turns, rounds: Sequence[int], draw: random.Random) -> List[List[float]]:
    return [draw.choices(turns[number], k=len(turns[number])) for number in rounds]


def ratio_of_medians(mine: Turns, base: Turns) -> Optional[Ratio]:
    """The median of `mine` by that of `base`; None when the latter is 0, be it in every resample.

    A round is drawn for both at once, since a machine's speed wanders and the two of one round
    belong together; then samples within each round.

    Args:
        mine, base: as many rounds, each with at least one sample.

    Example:
        >>> ratio_of_medians([[2.0, 2.0]], [[1.0, 1.0]])
        Ratio(value=2.0, low=2.0, high=2.0)
    """
    if _median(base) == 0:
        return None
    draw = random.Random(SEED)
    everything = range(len(base))
    found = []
    for _ in range(RESAMPLES):
        rounds = draw.choices(everything, k=len(base))
        below = _median(_drawn(base, rounds, draw))
        if below > 0:
            found.append(_median(_drawn(mine, rounds, draw)) / below)
    if not found:
        return None
    return Ratio(_median(mine) / _median(base), *_interval(found))


def median_difference(mine: Turns, base: Turns) -> Difference:
    """The median, over rounds, of how much more `mine` took than `base` in the same round.

    Args:
        mine, base: as many rounds, each with at least one sample.

    Example:
        >>> median_difference([[3.0], [5.0]], [[1.0], [3.0]])
        Difference(value=2.0, low=2.0, high=2.0)
    """
    pairs = [statistics.median(a) - statistics.median(b) for a, b in zip(mine, base)]
    draw = random.Random(SEED)
    found = [statistics.median(draw.choices(pairs, k=len(pairs))) for _ in range(RESAMPLES)]
    return Difference(statistics.median(pairs), *_interval(found))


def _interval(found: List[float]) -> Tuple[float, float]:
    """Where all but a part of them lie."""
    found.sort()
    tail = (1 - CONFIDENCE) / 2
    low, high = (found[round(share * (len(found) - 1))] for share in (tail, 1 - tail))
    return low, high
