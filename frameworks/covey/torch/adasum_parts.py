"""Adasum on one rank's part of all ranks' tensors. Internal; no communication. The pairs, and which
tensors lie in a part: ``covey/adasum_layout.py``."""

from __future__ import annotations

from typing import List, NamedTuple, Sequence

import torch

from covey.adasum_layout import Pair, Segment, factors_of, part_of, segments_of
from covey.torch.layout import digest

HEADER_BYTES = 16
_HALVES = (torch.float16, torch.bfloat16)
DTYPES = (torch.float32, torch.float64, *_HALVES)
"""The dtypes of Adasum; halves are added in float32."""


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
            part = part_of([tensors[i].numel() for i in numbers], ranks, dtype.itemsize)
            self._kinds.append(_Kind(dtype, numbers, part, offset))
            offset += part * dtype.itemsize
        self.message_bytes = offset
        self._segments = [self._segments_of(kind, index) for kind in self._kinds]
        self._rows: List[torch.Tensor] = []  # By dtype: [ranks, part].

    def _segments_of(self, kind: _Kind, index: int) -> List[Segment]:
        counts = [self._shapes[number].numel() for number in kind.numbers]
        found = segments_of(counts, kind.part, index)
        return [it._replace(number=kind.numbers[it.number]) for it in found]

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
        factors = factors_of(dots[:2], dots[2], torch.where).tolist()
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

