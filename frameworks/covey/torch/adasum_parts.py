"""The arithmetic of Adasum on one rank's part of all ranks' tensors. Internal; no communication.

Adasum of two vectors a and b is (1 - ab / 2aa) a + (1 - ab / 2bb) b, where ab, aa and bb are dot
products: the sum of what is orthogonal, the mean of what is parallel. Of more ranks it is that of
pairs: with p the largest power of two, first i takes i + p where there is such a rank, then i takes
i + 1, i + 2, i + 4, ... (Maleki et al., 2021, arXiv:2006.02924). Of five ranks:

    (((0 4) 1) (2 3))

Each tensor has dot products of its own, so those of one rank's part are added up over the ranks.
"""

from __future__ import annotations

from typing import List, NamedTuple, Sequence, Tuple

import torch

from covey.torch.layout import digest

HEADER_BYTES = 16
_ALIGN_BYTES = 16
_HALVES = (torch.float16, torch.bfloat16)
DTYPES = (torch.float32, torch.float64, *_HALVES)
"""The dtypes of Adasum; halves are added in float32."""

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


class _Segment(NamedTuple):
    """Elements ``begin`` to ``end`` of this rank's part belong to tensor ``number``."""

    number: int
    begin: int
    end: int


class _Kind(NamedTuple):
    """The tensors of one dtype: they lie one behind the other, in as many parts as ranks."""

    dtype: torch.dtype
    numbers: List[int]  # The tensors, by their indices.
    part: int  # Elements of a part.
    offset: int  # Bytes of a message before the part.


class Parts:
    """The tensors of one operation, divided between ``ranks``: the parts of rank ``index``.

    A message to a rank is a header of 16 bytes, which is the same where the ranks have equal
    tensors, then its part of each dtype.
    """

    def __init__(self, tensors: Sequence[torch.Tensor], ranks: int, index: int, scale: str) -> None:
        self.lines = [f"{str(it.dtype)[6:]} {list(it.shape)}" for it in tensors] + [scale]
        self._shapes = [it.shape for it in tensors]
        self._ranks = ranks
        self._kinds: List[_Kind] = []
        offset = HEADER_BYTES
        for dtype in dict.fromkeys(it.dtype for it in tensors):
            numbers = [i for i, it in enumerate(tensors) if it.dtype is dtype]
            length = sum(tensors[i].numel() for i in numbers)
            align = _ALIGN_BYTES // dtype.itemsize
            part = -(-length // (ranks * align)) * align
            self._kinds.append(_Kind(dtype, numbers, part, offset))
            offset += part * dtype.itemsize
        self.message_bytes = offset
        self._segments = [self._segments_of(kind, index) for kind in self._kinds]
        self._rows: List[torch.Tensor] = []  # By dtype: [ranks, part].

    def _segments_of(self, kind: _Kind, index: int) -> List[_Segment]:
        found, begin = [], -index * kind.part
        for number in kind.numbers:
            end = begin + self._shapes[number].numel()
            first, last = max(begin, 0), min(end, kind.part)
            if first < last:
                found.append(_Segment(number, first, last))
            begin = end
        return found

    def header(self) -> bytes:
        """The same on all ranks, or they differ."""
        return digest(self.lines)

    def messages(self, tensors: Sequence[torch.Tensor]) -> torch.Tensor:
        """[ranks * message_bytes] uint8. One message to each rank."""
        device = tensors[0].device
        made = torch.zeros(self._ranks, self.message_bytes, dtype=torch.uint8, device=device)
        made[:, :HEADER_BYTES] = torch.tensor(list(self.header()), dtype=torch.uint8)
        for kind in self._kinds:
            flat = torch.zeros(self._ranks * kind.part, dtype=kind.dtype, device=device)
            whole = [tensors[i].detach().reshape(-1) for i in kind.numbers]
            length = sum(it.numel() for it in whole)
            torch.cat(whole, out=flat[:length])
            made[:, self._place(kind)] = flat.view(self._ranks, kind.part).view(torch.uint8)
        return made.view(-1)

    def _place(self, kind: _Kind) -> slice:
        return slice(kind.offset, kind.offset + kind.part * kind.dtype.itemsize)

    def receive(self, messages: torch.Tensor, scale: float) -> None:
        """``messages``: [ranks * message_bytes] uint8, one of each rank; takes ``scale`` of it."""
        by_rank = messages.view(self._ranks, self.message_bytes)
        for kind in self._kinds:
            rows = by_rank[:, self._place(kind)].reshape(-1).view(kind.dtype)
            rows = rows.view(self._ranks, kind.part)
            wide = torch.float32 if kind.dtype in _HALVES else kind.dtype
            self._rows.append(rows.to(wide) * scale)

    def dots(self, pairs: Sequence[Pair]) -> torch.Tensor:
        """[3, pairs, tensors] float64 The dot products aa, bb and ab of what lies here."""
        found = torch.zeros(3, len(pairs), len(self._shapes), dtype=torch.float64)
        first, second = [i for i, _ in pairs], [j for _, j in pairs]
        for rows, segments in zip(self._rows, self._segments):
            for number, begin, end in segments:
                a, b = rows[first, begin:end].double(), rows[second, begin:end].double()
                found[0, :, number] = (a * a).sum(1)
                found[1, :, number] = (b * b).sum(1)
                found[2, :, number] = (a * b).sum(1)
        return found

    def combine(self, pairs: Sequence[Pair], dots: torch.Tensor) -> None:
        """``dots``: the same of all ranks."""
        squares, products = dots[:2], dots[2]
        # A vector of zeros takes nothing away.
        factors = torch.where(squares == 0, 1.0, 1 - products / (2 * squares)).tolist()
        for rows, segments in zip(self._rows, self._segments):
            for number, begin, end in segments:
                for p, (i, j) in enumerate(pairs):
                    a, b = rows[i, begin:end], rows[j, begin:end]
                    a.mul_(factors[0][p][number]).add_(b, alpha=factors[1][p][number])

    def result(self, scale: float) -> torch.Tensor:
        """[message_bytes - 16] uint8 This rank's part of the whole, times ``scale``."""
        parts = [
            (rows[0] * scale).to(kind.dtype).view(torch.uint8)
            for kind, rows in zip(self._kinds, self._rows)
        ]
        self._rows = []
        return torch.cat(parts)

    def put(self, results: torch.Tensor, outputs: Sequence[torch.Tensor]) -> None:
        """``results``: [ranks * (message_bytes - 16)] uint8 The ``result`` of each rank."""
        by_rank = results.view(self._ranks, self.message_bytes - HEADER_BYTES)
        for kind in self._kinds:
            begin = kind.offset - HEADER_BYTES
            place = slice(begin, begin + kind.part * kind.dtype.itemsize)
            flat = by_rank[:, place].reshape(-1).view(kind.dtype)
            lengths = [self._shapes[i].numel() for i in kind.numbers]
            pieces = flat[: sum(lengths)].split(lengths)
            for i, piece in zip(kind.numbers, pieces):
                outputs[i].detach().copy_(piece.view(self._shapes[i]))

