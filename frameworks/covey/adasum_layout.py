"""The arithmetic of Adasum that no framework changes: its pairs, and the parts of the tensors.
Internal; pure.

Adasum of two vectors a and b is (1 - ab / 2aa) a + (1 - ab / 2bb) b, where ab, aa and bb are dot
products: the sum of what is orthogonal, the mean of what is parallel. Of more ranks it is that of
pairs: with p the largest power of two, first i takes i + p where there is such a rank, then i takes
i + 1, i + 2, i + 4, ... (Maleki et al., 2021, arXiv:2006.02924). Of five ranks:

    (((0 4) 1) (2 3))

The tensors of one dtype lie one behind the other, in as many equal parts as there are ranks. Each
tensor has dot products of its own, so those of one rank's part are added up over the ranks.
"""

from __future__ import annotations

from typing import Any, List, NamedTuple, Sequence, Tuple

_ALIGN_BYTES = 16

Pair = Tuple[int, int]


def levels_of(ranks: int) -> List[List[Pair]]:
    """The pairs (i, j) of each level: i takes j. 0 has the whole in the end.

    Example:
        >>> levels_of(5)
        [[(0, 4)], [(0, 1), (2, 3)], [(0, 2)]]
    """
    power = 1 << (ranks.bit_length() - 1)
    levels = [[(i, i + power) for i in range(ranks - power)]] if ranks > power else []
    step = 1
    while step < power:
        levels.append([(i, i + step) for i in range(0, power, 2 * step)])
        step *= 2
    return levels


def factors_of(squares: Any, products: Any, where: Any) -> Any:
    """The factors of the vectors of pairs before the sum.

    Args:
        squares: [2, ...] float64 aa and bb.
        products: [...] float64 ab.
        where: of the framework of these: ``where(condition, a, b)``.

    Returns:
        [2, ...] float64
    """
    # A vector of zeros takes nothing away.
    return where(squares == 0, 1.0, 1 - products / (2 * where(squares == 0, 1.0, squares)))


class Segment(NamedTuple):
    """Elements ``begin`` to ``end`` of a rank's part belong to tensor ``number``."""

    number: int
    begin: int
    end: int


def part_of(counts: Sequence[int], ranks: int, itemsize: int) -> int:
    """Elements of each rank's part of tensors with these numbers of elements.

    Example:
        >>> part_of([10, 7], 2, 4)
        12
    """
    align = _ALIGN_BYTES // itemsize
    return -(-sum(counts) // (ranks * align)) * align


def segments_of(counts: Sequence[int], part: int, index: int) -> List[Segment]:
    """The tensors in the part of the rank with this index: ``number`` is a place in ``counts``.

    Example:
        >>> segments_of([10, 7], 12, 1)
        [Segment(number=1, begin=0, end=5)]
    """
    found, begin = [], -index * part
    for number, count in enumerate(counts):
        end = begin + count
        first, last = max(begin, 0), min(end, part)
        if first < last:
            found.append(Segment(number, first, last))
        begin = end
    return found
