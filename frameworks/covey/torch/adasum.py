"""Adasum over the ranks of a group, made of other operations. Internal.

Maleki, Musuvathi, Mytkowicz, Saarikivi, Xu, Eksarevskiy, Ekanayake and Barsoum (2021), Scaling
Distributed Training with Adaptive Summation, MLSys, arXiv:2006.02924. ``covey/adasum_layout.py``
has the arithmetic. Here each rank gets one part of all ranks' vectors by
an alltoall, so that of the L bytes of a vector (P-1)/P L travel; it goes through the levels of
pairs, for each of which three numbers per tensor and pair are added up over the ranks; an allgather
of (P-1)/P L bytes ends it. So the bytes are those of an allreduce in a ring, for any number of
ranks, and all get the same bits.

The steps follow each other whenever this rank waits for anything in Covey.
"""

from __future__ import annotations

import contextlib
import time
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

import torch

from covey.adasum_layout import Pair, Segment, factors_of, levels_of, part_of, segments_of
from covey.call_variants import LATER, CallVariant
from covey.errors import CoveyError, InvalidArgument, Mismatch, Unsupported
from covey.group import Group
from covey.objects import allgather_object
from covey.reduce_op import Sum
from covey.state import state
from covey.torch.layout import digest, first_difference
from covey.torch.tensors import refuse

_UNNAMED = 256  # Operations without a name that may be in flight.
_HEADER_BYTES = 16
_HALVES = (torch.float16, torch.bfloat16)
DTYPES = (torch.float32, torch.float64, *_HALVES)
"""The dtypes of Adasum; halves are added in float32."""


class _Kind(NamedTuple):
    """The tensors of one dtype: they lie one behind the other, in as many parts as ranks."""

    dtype: torch.dtype
    numbers: List[int]  # The tensors, by their indices.
    part: int  # Elements of a part.
    offset: int  # Bytes of a message before the part.


class _Parts:
    """The tensors of one operation, divided between ``ranks``: the parts of rank ``index``. No
    communication.

    A message to a rank is a header of 16 bytes, which is the same where the ranks have equal
    tensors, then its part of each dtype.
    """

    def __init__(self, tensors: Sequence[torch.Tensor], ranks: int, index: int, scale: str) -> None:
        self.lines = [f"{str(it.dtype)[6:]} {list(it.shape)}" for it in tensors] + [scale]
        self._shapes = [it.shape for it in tensors]
        self._ranks = ranks
        self._kinds: List[_Kind] = []
        offset = _HEADER_BYTES
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
        made[:, :_HEADER_BYTES] = torch.tensor(list(self.header()), dtype=torch.uint8)
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
        by_rank = results.view(self._ranks, self.message_bytes - _HEADER_BYTES)
        for kind in self._kinds:
            begin = kind.offset - _HEADER_BYTES
            place = slice(begin, begin + kind.part * kind.dtype.itemsize)
            flat = by_rank[:, place].reshape(-1).view(kind.dtype)
            lengths = [self._shapes[i].numel() for i in kind.numbers]
            pieces = flat[: sum(lengths)].split(lengths)
            for i, piece in zip(kind.numbers, pieces):
                outputs[i].detach().copy_(piece.view(self._shapes[i]))


class Adasum:
    """One operation in flight, with the methods of a handle."""

    def __init__(
        self,
        owner: "AdasumStreams",
        tensors: Sequence[torch.Tensor],
        outputs: List[torch.Tensor],
        name: str,
        scales: Tuple[float, float],
        group: Group,
    ) -> None:
        self._owner, self._collectives, self._group = owner, owner.collectives, group
        self._name, self._scales, self._outputs = name, scales, outputs
        self._result: Any = outputs
        self._error: Optional[CoveyError] = None
        self._has_ended = self._waits = False
        self._levels = levels_of(group.size())
        self._level = -1
        scale = f"factors {scales[0]} and {scales[1]}"
        self._parts = _Parts(tensors, group.size(), group.rank() or 0, scale)
        messages = self._parts.messages(tensors)
        self._handle: Any = self._collectives.alltoall(
            LATER, messages, None, f"{name}.parts", group
        )

    def of_one(self) -> "Adasum":
        """Itself; its ``wait`` gives the one tensor instead of a list."""
        self._result = self._outputs[0]
        return self

    def wait(self, timeout: Optional[float] = None) -> Any:
        """Waits for the end and returns the result. Errors as :meth:`Handle.wait`."""
        deadline = None if timeout is None else time.monotonic() + timeout
        self._waits = True
        try:
            while not self._has_ended:
                left = None if deadline is None else max(deadline - time.monotonic(), 0.0)
                self._advance(left)
        finally:
            self._waits = False
        if self._error is not None:
            raise self._error
        return self._result

    def poll(self) -> bool:
        """Whether ``wait`` would return at once."""
        while not self._has_ended and self._handle.poll():
            with contextlib.suppress(CoveyError):  # ``wait`` raises it.
                self._advance(None)
        return self._has_ended

    def help(self) -> None:
        """This thread waits for whatever else."""
        if not self._waits:
            self.poll()

    def _awaited(self) -> bytes:
        return b"" if self._has_ended else bytes(self._handle._awaited())

    def _advance(self, timeout: Optional[float]) -> None:
        """Waits for the operation under way and begins the next one."""
        handle = self._handle
        try:
            done = handle.wait(timeout)
            self._go_on(done, handle)
        except CoveyError as error:
            if isinstance(error, TimeoutError):
                raise
            self._error = error
            self._end()

    def _go_on(self, done: Any, handle: Any) -> None:
        parts, prescale = self._parts, self._scales[0]
        if self._level < 0:
            messages, _ = done
            self._check(messages, handle.rows)
            parts.receive(messages, prescale)
        elif self._level < len(self._levels):
            parts.combine(self._levels[self._level], done)
        else:
            parts.put(done, self._outputs)
            return self._end()
        self._level += 1
        if self._level < len(self._levels):
            dots = parts.dots(self._levels[self._level])
            name = f"{self._name}.dots{self._level}"
            self._handle = self._collectives.allreduce(
                LATER, dots, None, name, Sum, 1.0, 1.0, self._group
            )
        else:
            whole = parts.result(self._scales[1])
            self._handle = self._collectives.allgather(
                LATER, whole, f"{self._name}.whole", self._group
            )

    def _check(self, messages: torch.Tensor, counts: Sequence[int]) -> None:
        """Raises Mismatch, on every rank: the tensors differ; names the first difference."""
        own = self._parts.header()
        headers = [piece[:_HEADER_BYTES] for piece in messages.split(list(counts))]
        if all(bytes(header.tolist()) == own for header in headers):
            return
        lines = self._parts.lines
        everyone = allgather_object(lines, f"{self._name}.lines", self._group)
        difference = first_difference(everyone, self._group.ranks)
        raise Mismatch(f"op=Adasum {self._name!r} differs between the ranks: {difference}")

    def _end(self) -> None:
        self._has_ended = True
        self._handle = None
        self._owner.drop(self)


class AdasumStreams:
    """The operations of this process."""

    def __init__(self, collectives: Any) -> None:
        self.collectives = collectives
        self._in_flight: List[Adasum] = []  # Also those whose handle was dropped.
        self._numbers: Dict[Tuple[int, ...], int] = {}  # By ranks: of the next without a name.
        self._init_epoch = state.init_epoch

    def drop(self, one: Adasum) -> None:
        if one in self._in_flight:
            self._in_flight.remove(one)

    def _next_number(self, group: Group) -> int:
        """The same on each member, which all begin operations without a name in one order."""
        if self._init_epoch != state.init_epoch:
            self._init_epoch = state.init_epoch
            self._numbers = {}
        ranks = tuple(group.ranks)
        number = self._numbers.get(ranks, 0)
        self._numbers[ranks] = (number + 1) % _UNNAMED
        return number

    def begin(
        self,
        variant: CallVariant,
        tensors: Sequence[torch.Tensor],
        name: Optional[str],
        scales: Tuple[float, float],
        group: Group,
    ) -> Adasum:
        """Adasum of ``tensors``, each by itself. All members call it.

        Raises:
            Unsupported: (a ValueError) a tensor of another dtype, or on another device.
            InvalidArgument: (a ValueError) this rank is not in ``group``; no tensor.
        """
        tensors = list(tensors)
        _check(tensors, group)
        outputs = tensors if variant.in_place else [
            torch.empty_like(it, memory_format=torch.contiguous_format, requires_grad=False)
            for it in tensors
        ]
        if name is None:
            name = f"unnamed.{self._next_number(group)}"
        made = Adasum(self, tensors, outputs, f"adasum.{name}", scales, group)
        self._in_flight.append(made)
        state.add_helper(made)
        return made


def _check(tensors: Sequence[torch.Tensor], group: Group) -> None:
    if not tensors:
        raise InvalidArgument("op=Adasum: there is no tensor")
    for tensor in tensors:
        if not isinstance(tensor, torch.Tensor):
            refuse(tensor)
        if tensor.dtype not in DTYPES or tensor.layout is not torch.strided:
            raise Unsupported(
                f"op=Adasum is for dense tensors of floating-point numbers, not of {tensor.dtype}, "
                f"{tensor.layout}: use op=Sum or op=Average"
            )
    devices = sorted({str(tensor.device) for tensor in tensors})
    if len(devices) > 1:
        raise Unsupported(f"op=Adasum: tensors of one call are on {', '.join(devices)}: use one")
    if not group.included():
        raise InvalidArgument(f"this rank is not in the process set {group.ranks}")
