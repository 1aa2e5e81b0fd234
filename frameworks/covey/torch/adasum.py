"""Adasum over the ranks of a group, made of other operations. Internal.

Maleki, Musuvathi, Mytkowicz, Saarikivi, Xu, Eksarevskiy, Ekanayake and Barsoum (2021), Scaling
Distributed Training with Adaptive Summation, MLSys, arXiv:2006.02924. ``covey/adasum_layout.py``
and ``adasum_parts.py`` have the arithmetic. Here each rank gets one part of all ranks' vectors by
an alltoall, so that of the L bytes of a vector (P-1)/P L travel; it goes through the levels of
pairs, for each of which three numbers per tensor and pair are added up over the ranks; an allgather
of (P-1)/P L bytes ends it. So the bytes are those of an allreduce in a ring, for any number of
ranks, and all get the same bits.

The steps follow each other whenever this rank waits for anything in Covey.
"""

from __future__ import annotations

import contextlib
import time
from typing import Any, Dict, List, Optional, Sequence, Tuple

import torch

from covey.adasum_layout import levels_of
from covey.call_variants import LATER, CallVariant
from covey.errors import CoveyError, InvalidArgument, Mismatch, Unsupported
from covey.group import Group
from covey.objects import allgather_object
from covey.reduce_op import Sum
from covey.state import state
from covey.torch.adasum_parts import DTYPES, HEADER_BYTES, Parts
from covey.torch.layout import first_difference

_UNNAMED = 256  # Operations without a name that may be in flight.


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
        self._parts = Parts(tensors, group.size(), group.rank() or 0, scale)
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
        """As of a handle."""
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
        headers = [piece[:HEADER_BYTES] for piece in messages.split(list(counts))]
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
        """``one`` has ended."""
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
        outputs = tensors if variant.in_place else [_room(tensor) for tensor in tensors]
        if name is None:
            name = f"unnamed.{self._next_number(group)}"
        made = Adasum(self, tensors, outputs, f"adasum.{name}", scales, group)
        self._in_flight.append(made)
        state.add_helper(made)
        return made


def _room(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(tensor, memory_format=torch.contiguous_format, requires_grad=False)


def _check(tensors: Sequence[torch.Tensor], group: Group) -> None:
    if not tensors:
        raise InvalidArgument("op=Adasum: there is no tensor")
    for tensor in tensors:
        if not isinstance(tensor, torch.Tensor):
            raise TypeError(f"covey.torch works on torch tensors, not on a {type(tensor).__name__}")
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
