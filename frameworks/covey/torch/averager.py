"""Averaging the parameters of a model over the ranks. Internal.

The parameters of a dtype are moved into one piece of the arena (on CUDA: of the device's memory)
and stay views of it, so averaging them is one allreduce in place, without a copy. A parameter that
was pointed elsewhere since then is brought back.
"""

from __future__ import annotations

import contextlib
from typing import Any, Callable, ContextManager, Dict, List, Optional, Sequence, Tuple, Type

import torch

from covey import _native
from covey.errors import CoveyError, Exhausted, InvalidArgument
from covey.group import Group
from covey.memory import arena_empty
from covey.notice import warn
from covey.reduce_op import Average, core_code
from covey.requests import ALLREDUCE, NEIGHBOR_ALLREDUCE, How
from covey.topology import Row
from covey.torch.bucket import RESERVE_BYTES, draw_of
from covey.torch.compression import Compressor
from covey.torch.layout import BucketPlan, Named, gradient_strides, plan_whole
from covey.torch.moved import Moved
from covey.torch.tensors import CODES, FRAMEWORK, zeros_on

Waiting = Callable[[], ContextManager[None]]


def refuse_shared_memory(named: Sequence[Named]) -> None:
    """Moving such parameters would part them. One parameter used twice is fine."""
    owner: Dict[int, str] = {}
    for name, parameter in named:
        other = owner.setdefault(parameter.data_ptr(), name) if parameter.numel() else name
        if other != name:
            raise InvalidArgument(
                f"{other} and {name} are two parameters in the same memory, which a method that "
                "averages models cannot keep so: use one torch.nn.Parameter in both places"
            )


def _memory_of(plans: Sequence[BucketPlan]) -> List[torch.Tensor]:
    """In the arena, or when not all of them fit, outside: slower, but right."""
    try:
        flats = [zeros_on(plan.device, True)(plan.length, dtype=plan.dtype) for plan in plans]
        arena_empty((RESERVE_BYTES,), torch.uint8)
        return flats
    except Exhausted as error:
        warn(f"parameters lie outside of the arena, which costs a copy: {error}")
        return [zeros_on(plan.device, False)(plan.length, dtype=plan.dtype) for plan in plans]


class _Flat:
    """The parameters of one dtype and device, side by side, and one element that is 1.

    That element tells after an averaging which part of the ranks took part: ranks that have joined
    contribute zeros.
    """

    def __init__(self, plan: BucketPlan, name: str, flat: torch.Tensor) -> None:
        self.name = name
        self.flat = flat
        self.numbers = flat[: plan.flags_offset]
        self._present = flat[plan.flags_offset : plan.flags_offset + 1]
        self.moved = Moved(self.numbers)
        self.parameters = [slot.parameter for slot in plan.slots]
        self.views = [
            flat.as_strided(
                slot.parameter.shape,
                gradient_strides(slot.parameter),
                flat.storage_offset() + slot.offset,
            )
            for slot in plan.slots
        ]

    def gather(self) -> None:
        """Moves what does not lie here."""
        for parameter, view in zip(self.parameters, self.views):
            data = parameter.data
            if data.data_ptr() == view.data_ptr() and data.stride() == view.stride():
                continue
            view.copy_(data)
            parameter.data = view
        self._present.fill_(1)

    def mix(
        self, group: Group, row: Row, codec: Optional[Type[Compressor]], draw: int
    ) -> "List[_native.Handle]":
        """With neighbors. With a codec the element behind the numbers stays: it is not used."""
        how = How(NEIGHBOR_ALLREDUCE, "")
        if codec is None or not self.moved.can_be_coded:
            head = how.head(group, f"{self.name}.row")
            rest = (0, None, None, None, None, row)
            return [_native.submit1(*head, *_where(self.flat), *rest)]
        head = how.head(group, f"{self.name}.mixed")
        coded = (0, None, None, None, codec.codec, row, draw)
        return [_native.submit1(*head, *_where(self.numbers), *coded)]

    def submit(
        self, group: Group, codec: Optional[Type[Compressor]], draw: int
    ) -> "List[_native.Handle]":
        """Without a codec all at once; with one the element behind the numbers by itself, for it
        would spoil a block."""
        how = How(ALLREDUCE, "", core_code(Average))
        if self.moved.travelling is None:
            return [_native.submit1(*how.head(group, self.name), *_where(self.flat))]
        assert codec is not None
        head, beside = how.head(group, f"{self.name}.moved"), how.head(group, f"{self.name}.here")
        return [
            _native.submit1(
                *head,
                *_where(self.moved.travelling),
                0,
                None,
                None,
                None,
                codec.codec,
                None,
                draw,
            ),
            _native.submit1(*beside, *_where(self._present)),
        ]

    def settle(self, size: int) -> None:
        """Corrects the average for ranks that have joined."""
        present = round(float(self._present) * size)
        if 0 < present < size:
            averaged = self.flat if self.moved.travelling is None else self.moved.travelling
            averaged.mul_(size / present)
        self.moved.end()


def _where(flat: torch.Tensor) -> Tuple[Any, ...]:
    return (CODES[flat.dtype], FRAMEWORK.address(flat), None, (flat.numel(),), flat)


def relative_distance(model: Sequence[torch.Tensor], mean: Sequence[torch.Tensor]) -> float:
    """The norm of their difference, in parts of that of the mean."""
    with torch.no_grad():
        apart = sum(float((a - b).double().square().sum()) for a, b in zip(model, mean))
        norm = sum(float(b.double().square().sum()) for b in mean)
    return (apart / norm) ** 0.5 if norm > 0 else 0.0


class Averager:
    """The trained parameters of one optimizer."""

    def __init__(self, named: Sequence[Named], prefix: str, group: Group) -> None:
        """Every member of the group makes one, with the same parameters.

        Raises:
            InvalidArgument: (a ValueError) two parameters lie in the same memory.
        """
        refuse_shared_memory(named)
        self._group = group
        plans = plan_whole(named)
        self._flats = [
            _Flat(plan, f"{prefix}.{number}", memory)
            for number, (plan, memory) in enumerate(zip(plans, _memory_of(plans)))
        ]

    @property
    def flats(self) -> List[torch.Tensor]:
        """Where the parameters lie, by dtype, and behind them what is no parameter."""
        return [flat.flat for flat in self._flats]

    def gather(self) -> None:
        """Moves there what does not lie there."""
        with torch.no_grad():
            for flat in self._flats:
                flat.gather()

    @property
    def moved(self) -> List[Moved]:
        """Likewise, what of them is kept for a codec."""
        return [flat.moved for flat in self._flats]

    def average_and_measure(
        self,
        codec: Optional[Type[Compressor]] = None,
        whole: bool = False,
        step: int = 0,
        waiting: Waiting = contextlib.nullcontext,
    ) -> float:
        """As ``average``. How far this rank's parameters were from the mean, by its norm."""
        with torch.no_grad():
            self.gather()
            before = [flat.numbers.clone() for flat in self._flats]
            self.average(None, codec, whole, step, waiting)
            return relative_distance(before, [flat.numbers for flat in self._flats])

    def average(
        self,
        row: Optional[Row] = None,
        codec: Optional[Type[Compressor]] = None,
        whole: bool = False,
        step: int = 0,
        waiting: Waiting = contextlib.nullcontext,
    ) -> None:
        """Parameters become their mean over the ranks, with the same bits on each; with ``row``
        their weighted mean over this rank and its neighbors. With ``codec`` what they have moved
        since they were equal travels by it (``moved.py``), but ``whole`` this time if told so; or,
        with ``row``, they themselves do. It is the end of step ``step``. Within ``waiting()``
        nothing changes before all have come.

        Raises:
            CoveyError: a rank is gone or disagrees; parameters are undefined then.
        """
        with torch.no_grad():
            self.gather()
            for flat in self._flats if row is None else []:
                flat.moved.begin(codec, whole)
            with waiting():
                errors = self._exchange(row, codec, step)
            for flat, error in zip(self._flats, errors):
                if row is None and error is None:
                    flat.settle(self._group.size())
        for error in errors:
            if error is not None:
                raise error

    def _exchange(
        self, row: Optional[Row], codec: Optional[Type[Compressor]], step: int
    ) -> List[Optional[CoveyError]]:
        """The errors, by dtype and device."""
        handles: List[List[_native.Handle]] = []
        errors: List[Optional[CoveyError]] = []
        for number, flat in enumerate(self._flats):
            draw = draw_of(step, number)
            handles.append(
                flat.submit(self._group, codec, draw)
                if row is None
                else flat.mix(self._group, row, codec, draw)
            )
        for of_flat in handles:
            errors.append(None)
            try:
                for handle in of_flat:
                    handle.wait()
            except CoveyError as error:
                errors[-1] = error
        return errors
