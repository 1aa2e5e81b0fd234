"""An optimizer whose ranks exchange what their models have changed by, after some steps of their
own. Internal.

The core does it all but the updates: see ``core/api/covey_trainer.h``. The parameters of a dtype
are copied to the core's memory, and back, once for each exchange.
"""

from __future__ import annotations

import ctypes
import json
import time
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence

import torch

from covey import _native
from covey.group import Group
from covey.method import parsed
from covey.names import next_prefix
from covey.reduce_op import Average, core_code
from covey.torch.averager import refuse_shared_memory, relative_distance
from covey.torch.clip import clipped_step
from covey.torch.layout import Named, gradient_strides, plan_whole
from covey.torch.models import check_options
from covey.torch.tensors import CODES

# covey_verb of core/api/covey_trainer.h. Gradients stay where the optimizer reads them.
_COLLECT_MODEL, _UPDATE, _LOAD_MODEL, _DONE = 2, 3, 4, 5
_ANCHOR = "anchor"  # The replicated model, before the method's own arrays.
_PREFIX = "method "  # Of the names of the method's arrays in a checkpoint.


class DeltaTrainer:
    """The exchanges of one optimizer."""

    def __init__(self, optimizer: Any, named: Sequence[Named], group: Group, method: str) -> None:
        """Every member of the group makes one, with the same parameters and options.

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
            next_prefix("deltas", group.ranks),
            parsed(method),
            core_code(Average),
            0,
            tuple(CODES[plan.dtype] for plan in self._plans),
            tuple(plan.length for plan in self._plans),
            0,
            0,
        )
        self._trainer = progress.together(asked[1], lambda: _native.trainer_open(*asked))
        addresses = _native.trainer_spans(self._trainer, len(self._plans), True)
        self._offsets = [address - min(addresses) for address in addresses]
        self._model = self._tensors(min(addresses))

    def _tensors(self, base: int) -> List[torch.Tensor]:
        """By plan, of an array that lies like the core's model."""
        tensors = []
        for plan, offset in zip(self._plans, self._offsets):
            memory = ctypes.c_char * (plan.length * plan.dtype.itemsize)
            there: Any = memory.from_address(base + offset)
            tensors.append(torch.frombuffer(there, dtype=plan.dtype))
        return tensors

    def close(self) -> None:
        """This rank leaves; the parameters keep their values."""
        trainer, self._trainer = self._trainer, 0
        self._model = []
        if trainer:
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
        """Makes the parameters the replicated model, with the work of all in it.

        Without ``strict`` it goes on without ranks that are missing for ``max_wait``.

        Raises:
            Timeout: after ``max_wait``; the message names the ranks that are missing.
        """
        mine = [slot.parameter for plan in self._plans for slot in plan.slots]
        before = [parameter.detach().clone() for parameter in mine]
        _native.trainer_finish(self._trainer, strict)
        self._run()
        self._optimizer._covey_progress.step_stats.distance = relative_distance(before, mine)

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

    def _count(self) -> None:
        """Tells the statistics of the steps which versions have been applied."""
        before, self._counts = self._counts, json.loads(_native.trainer_stats(self._trainer))
        progress = self._optimizer._covey_progress
        progress.step_stats.applied(self._counts, before)
        published = self._counts["published"]
        if published > before.get("published", 0):
            progress.step_stats.arrived(published, progress.plan.needed, self._came)

    def _do(self, verb: int) -> None:
        progress = self._optimizer._covey_progress
        if verb == _UPDATE:
            self._loss = clipped_step(self._optimizer, self._closure)
            progress.turn(progress.version + 1)
        elif verb in (_COLLECT_MODEL, _LOAD_MODEL):
            self._copy(self._model, verb == _LOAD_MODEL)
        if verb == _COLLECT_MODEL:
            self._came = time.monotonic()
        if verb == _LOAD_MODEL:
            self._count()

    @torch.no_grad()
    def _copy(self, flats: Sequence[torch.Tensor], is_load: bool) -> None:
        """From the parameters, or to them."""
        for plan, flat in zip(self._plans, flats):
            for slot in plan.slots:
                parameter = slot.parameter
                place = flat.as_strided(parameter.shape, gradient_strides(parameter), slot.offset)
                if is_load:
                    parameter.copy_(place)
                else:
                    place.copy_(parameter)

    def replicated(self) -> Optional[List[torch.Tensor]]:
        """By plan, the model that all ranks have at this version; None: before the first step."""
        if not _native.trainer_position(self._trainer)[5]:
            return None
        return self._tensors(dict(self._arrays())[_ANCHOR][0])

    def state(self) -> Dict[str, torch.Tensor]:
        """By name copies of the arrays that the method keeps beside it, as bytes."""
        return {
            name: _bytes_at(*place).clone() for name, place in self._arrays() if name != _ANCHOR
        }

    def put_state(self, state: Dict[str, torch.Tensor]) -> None:
        """``state`` of a trainer that this one goes on from."""
        for name, place in self._arrays():
            if name in state:
                _bytes_at(*place).copy_(state[name])

    def _arrays(self) -> Any:
        return [(name, place) for name, *place in _native.trainer_state(self._trainer)]


def _bytes_at(address: int, length: int) -> torch.Tensor:
    memory: Any = (ctypes.c_char * length).from_address(address)
    return torch.frombuffer(memory, dtype=torch.uint8)


def kept_by_method(optimizer: Any) -> Dict[str, torch.Tensor]:
    """By name the arrays that the method replicates on all ranks; empty by most methods."""
    trainer = optimizer._covey_rounds
    state = trainer.state() if isinstance(trainer, DeltaTrainer) else {}
    return {_PREFIX + name: tensor for name, tensor in state.items()}


def put_back_to_method(optimizer: Any, named: Mapping[str, torch.Tensor]) -> None:
    """As ``kept_by_method`` has it, among others."""
    trainer = optimizer._covey_rounds
    if isinstance(trainer, DeltaTrainer):
        trainer.put_state(
            {n[len(_PREFIX) :]: it for n, it in named.items() if n.startswith(_PREFIX)}
        )
