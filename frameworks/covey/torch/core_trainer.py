"""The exchanges of one optimizer by the core's trainer. Internal.

The core does it all but the updates: see ``core/api/covey_trainer.h``. The parameters of a dtype
lie side by side in the trainer's memory for the model, so nothing is copied for an exchange; one
that was pointed elsewhere meanwhile is brought back. On a device they lie side by side there, and
are copied from and to that memory (``mirror.py``).
"""

from __future__ import annotations

import ctypes
import json
import time
import weakref
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence

import torch

from covey import _native
from covey.group import Group
from covey.method import parsed
from covey.reduce_op import Average, core_code
from covey.torch.averager import refuse_shared_memory, relative_distance
from covey.torch.clip import clipped_step
from covey.torch.layout import BucketPlan, Named, gradient_strides, plan_whole
from covey.torch.mirror import mirror_of, wait_for
from covey.torch.models import check_options
from covey.torch.tensors import CODES

# covey_verb of core/api/covey_trainer.h. Gradients stay where the optimizer reads them.
_COLLECT_MODEL, _UPDATE, _LOAD_MODEL, _DONE = 2, 3, 4, 5
_ANCHOR = "anchor"  # The replicated model, before the method's own arrays.
_PREFIX = "method "  # Of the names of the method's arrays in a checkpoint.
_KEEP_BYTES = 64


class _Flat:
    """The parameters of one dtype and device.

    Attributes:
        numbers: them, where the optimizer has them.
    """

    def __init__(self, plan: BucketPlan, address: int, keep: Any) -> None:
        """``keep``: holds the core's memory, at ``address``, while a tensor lies in it."""
        memory: Any = (ctypes.c_char * (plan.length * plan.dtype.itemsize)).from_address(address)
        memory.keep = keep
        self._host = torch.frombuffer(memory, dtype=plan.dtype)
        self.mirror = mirror_of(plan)
        self.numbers = self.mirror.of(self._host)
        self._parameters = [slot.parameter for slot in plan.slots]
        self._views = [
            self.numbers.as_strided(
                slot.parameter.shape, gradient_strides(slot.parameter), slot.offset
            )
            for slot in plan.slots
        ]

    def gather(self) -> None:
        """Moves what does not lie here."""
        for parameter, view in zip(self._parameters, self._views):
            data = parameter.data
            if data.data_ptr() == view.data_ptr() and data.stride() == view.stride():
                continue
            view.copy_(data)
            parameter.data = view

    def offer(self) -> None:
        """The core can read the parameters, once ``mirror`` was waited for."""
        self.gather()
        self.mirror.fetch(self._host)

    def load(self) -> None:
        """The parameters are what the core has written."""
        self.mirror.put(self._host)

    def release(self) -> None:
        """Parameters that lie in the core's memory get memory of their own."""
        if self.mirror.is_far:
            return
        for parameter, view in zip(self._parameters, self._views):
            if parameter.data_ptr() == view.data_ptr():
                parameter.data = parameter.data.clone()


class CoreTrainer:
    """The exchanges of one optimizer."""

    def __init__(
        self, optimizer: Any, named: Sequence[Named], group: Group, method: str, word: str
    ) -> None:
        """Every member of the group makes one, with the same parameters and options. ``word``: for
        what it exchanges, in messages.

        Raises:
            Unsupported, InvalidArgument: (ValueErrors) an option that this method does not go
                with; a parameter of half precision; two parameters in the same memory.
            Mismatch, Exhausted: on every rank: the ranks differ; a rank has no room.
        """
        self._trainer = 0
        check_options(optimizer._covey_options)
        refuse_shared_memory(named)
        self._optimizer = optimizer
        self._closure: Optional[Callable[[], Any]] = None
        self._loss: Any = None
        self._counts: Mapping[str, Any] = {}
        self._came = 0.0  # To the last exchange.
        self._plans = plan_whole(named)
        progress = optimizer._covey_progress
        asked = (
            group.id,
            progress.name_of(word),
            parsed(method),
            core_code(Average),
            0,
            tuple(CODES[plan.dtype] for plan in self._plans),
            tuple(plan.length for plan in self._plans),
            0,
            0,
        )
        self._trainer = progress.together(asked[1], lambda: _native.trainer_open(*asked))
        self._keep = _native.arena_alloc(_KEEP_BYTES)
        addresses = _native.trainer_spans(self._trainer, len(self._plans), True)
        self._offsets = [address - min(addresses) for address in addresses]
        self._flats = [
            _Flat(plan, address, self._keep) for plan, address in zip(self._plans, addresses)
        ]
        here = weakref.ref(self)  # The statistics outlive it.
        progress.step_stats.refresh = lambda: _refresh(here())
        with torch.no_grad():
            for flat in self._flats:
                flat.gather()
        _native.trainer_begin_pass(self._trainer)
        self._run()

    def close(self) -> None:
        """This rank leaves; the parameters keep their values."""
        trainer, self._trainer = self._trainer, 0
        if trainer:
            self._count(trainer)
            wait_for(flat.mirror for flat in self._flats)
            for flat in self._flats:
                flat.release()
            self._flats = []
            _native.trainer_close(trainer)

    def __del__(self) -> None:
        if self._trainer:
            self.close()

    def synchronize(self) -> None:
        """Gradients are this rank's own: there is nothing to wait for."""

    def step(self, closure: Optional[Callable[[], Any]] = None) -> Any:
        """A step of the optimizer with this rank's gradients, then the exchange if it is time."""
        self._closure, self._loss = closure, None
        _native.trainer_submit(self._trainer, None, ())
        self._run()
        return self._loss

    def finish(self, strict: bool = True) -> None:
        """Makes the parameters the model of all, with the same bits on each rank.

        Without ``strict`` it goes on without ranks that are missing for ``max_wait``.

        Raises:
            Timeout: after ``max_wait``; the message names the ranks that are missing. Called again
                it waits on.
        """
        self._gather()
        before = [flat.numbers.clone() for flat in self._flats]
        _native.trainer_finish(self._trainer, strict)
        self._run()
        after = [flat.numbers for flat in self._flats]
        self._optimizer._covey_progress.step_stats.distance = relative_distance(before, after)

    def settle(self) -> None:
        """Makes the parameters all that is this rank's own, wherever others had a part of it.

        Raises:
            Timeout: as ``finish``.
        """
        _native.trainer_settle(self._trainer)
        self._run()

    def look(self, rank: int, to: Sequence[torch.Tensor]) -> bool:
        """Copies the model of a rank, as others see it, to tensors by dtype and device; False: it
        was changed meanwhile."""
        return _native.trainer_peek(self._trainer, rank, tuple(flat.data_ptr() for flat in to))

    def _run(self) -> None:
        """Does what the core asks for until the step, or ``finish``, is over."""
        while True:
            verb, number = _native.trainer_next(self._trainer, 0)[:2]
            if verb == _DONE:
                return
            try:
                self._do(verb)
            except BaseException:
                _native.trainer_ack(self._trainer, number, False)
                raise
            _native.trainer_ack(self._trainer, number, True)

    def _do(self, verb: int) -> None:
        progress = self._optimizer._covey_progress
        if verb == _UPDATE:
            self._loss = clipped_step(self._optimizer, self._closure)
            progress.turn(progress.version + 1)
        elif verb == _COLLECT_MODEL:
            self._offer()
            self._came = time.monotonic()
        elif verb == _LOAD_MODEL:
            for flat in self._flats:
                flat.load()
            progress.step_stats.exchanged()
            if progress.plan.in_versions:
                self._count()

    @torch.no_grad()
    def _gather(self) -> None:
        for flat in self._flats:
            flat.gather()

    @torch.no_grad()
    def _offer(self) -> None:
        for flat in self._flats:
            flat.offer()
        wait_for(flat.mirror for flat in self._flats)

    def _count(self, trainer: int = 0) -> None:
        """Tells the statistics of the steps what was exchanged."""
        if not (trainer or self._trainer):
            return
        before, counts = self._counts, json.loads(_native.trainer_stats(trainer or self._trainer))
        if not counts:  # The runtime has ended.
            return
        self._counts, progress = counts, self._optimizer._covey_progress
        progress.step_stats.applied(self._counts, before)
        published = self._counts.get("published", 0)
        if published > before.get("published", 0):
            progress.step_stats.arrived(published, progress.plan.needed, self._came)

    def replicated(self) -> Optional[List[torch.Tensor]]:
        """By plan, the model that all ranks have at this version; None: their own, or none yet."""
        if not _native.trainer_position(self._trainer)[5]:
            return None
        base = dict(self._arrays())[_ANCHOR][0]
        return [
            _bytes_at(base + offset, plan.length * plan.dtype.itemsize).view(plan.dtype)
            for plan, offset in zip(self._plans, self._offsets)
        ]

    def state(self) -> Dict[str, torch.Tensor]:
        """By name copies of the arrays that the method keeps beside it, as bytes."""
        return {
            name: _bytes_at(*place).clone() for name, place in self._arrays() if name != _ANCHOR
        }

    def put_state(self, state: Mapping[str, torch.Tensor]) -> None:
        """``state`` of a trainer that this one goes on from."""
        for name, place in self._arrays():
            if name in state:
                _bytes_at(*place).copy_(state[name])

    def _arrays(self) -> Any:
        return [(name, place) for name, *place in _native.trainer_state(self._trainer)]


def _refresh(trainer: Optional[CoreTrainer]) -> None:
    if trainer is not None:
        trainer._count()


def _bytes_at(address: int, length: int) -> torch.Tensor:
    memory: Any = (ctypes.c_char * length).from_address(address)
    return torch.frombuffer(memory, dtype=torch.uint8)


def kept_by_method(optimizer: Any) -> Dict[str, torch.Tensor]:
    """By name the arrays that the method replicates on all ranks; empty by most methods."""
    trainer = optimizer._covey_rounds
    state = trainer.state() if isinstance(trainer, CoreTrainer) else {}
    return {_PREFIX + name: tensor for name, tensor in state.items()}


def put_back_to_method(optimizer: Any, named: Mapping[str, torch.Tensor]) -> None:
    """As ``kept_by_method`` has it, among others."""
    trainer = optimizer._covey_rounds
    if isinstance(trainer, CoreTrainer):
        trainer.put_state(
            {n[len(_PREFIX) :]: it for n, it in named.items() if n.startswith(_PREFIX)}
        )
