"""Adasum of arrays, slow and obvious: S. Maleki et al., "Scaling Distributed Training with Adaptive
Summation", MLSys 2021, arXiv:2006.02924."""

from __future__ import annotations

from typing import Any, Sequence


def _two(a: Any, b: Any) -> Any:
    ab, aa, bb = (a * b).sum(), (a * a).sum(), (b * b).sum()
    return (1 - ab / (2 * aa) if aa else 1) * a + (1 - ab / (2 * bb) if bb else 1) * b


def whole(vectors: Sequence[Any]) -> Any:
    """The Adasum of the ranks' NumPy arrays, by rank: halves of a power of two, one by one; first
    the ranks beyond that power."""
    power = 1
    while 2 * power <= len(vectors):
        power *= 2
    more = list(vectors[power:])
    rows = [_two(v, more[i]) if i < len(more) else v for i, v in enumerate(vectors[:power])]
    if len(rows) == 1:
        return rows[0]
    return _two(whole(rows[: power // 2]), whole(rows[power // 2 :]))
