"""The actions that the core's trainer asks for, done by torch. Internal."""

from __future__ import annotations

import time
import weakref
from typing import Any, Callable, Dict, Optional, Sequence, Tuple

import torch

from covey import _native
from covey.torch import optimizer_state
from covey.torch.clip import clipped_step
from covey.torch.layout import BucketPlan
from covey.torch.model_exchange import ModelExchange
from covey.torch.version_gradients import VersionGradients
from covey.trainer_handle import IN_STEP, Position, TrainerHandle

# covey_verb of core/api/covey_trainer.h.
COLLECT_GRADIENTS, COLLECT_MODEL, UPDATE, LOAD_MODEL, DONE, PACK, UNPACK, LIST = range(1, 9)
TAKE, VACATE = 9, 10


class TrainerActions(TrainerHandle):
    """A trainer that does them.

    Attributes:
        plans: where parameters, and their gradients, lie side by side.
    """

    def __init__(self, optimizer: Any, plans: Sequence[BucketPlan]) -> None:
        super().__init__(len(plans))
        self.plans = list(plans)
        self._optimizer: Any = weakref.proxy(optimizer)  # It owns this.
        self._num_hypers = 0
        self._closure: Optional[Callable[[], Any]] = None
        self._loss: Any = None
        self._came = 0.0  # To the last exchange,
        self._last: Optional[Position] = None  # and what it has come to.
        self._is_open = 0  # IN_STEP, IN_FINISH: that call has not come to its end.
        self._has_taken = False  # A step's gradients, which are in an update or published.
        self._entries: Dict[str, Any] = {}  # Of the optimizer's state, while they are averaged.
        self._versions: Optional[VersionGradients] = None  # Where gradients have versions.
        self._models: Optional[ModelExchange] = None  # Where a part exchanges models.

    def _perform(self) -> None:
        """Until the call of the core is over."""
        while True:
            action = _native.trainer_next(self._trainer, self._num_hypers)
            if action[0] == DONE:
                break
            try:
                self._do(*action)
            except BaseException:
                _native.trainer_ack(self._trainer, action[1], False)
                raise
            self._has_taken |= action[0] in (UPDATE, COLLECT_GRADIENTS)
            _native.trainer_ack(self._trainer, action[1], True)

    def _do(
        self, verb: int, _: int, hypers: Tuple[float, ...], image: int, length: int, own: int,
        scale: float,
    ) -> None:
        progress, versions = self._optimizer._covey_progress, self._versions
        if verb == UPDATE and (own or versions is None):
            self._update(bool(own))
        elif verb == COLLECT_MODEL:
            self._came = time.monotonic()
            self._offer()
        elif verb == LOAD_MODEL:
            self._last = self.position
            distance = self._models.load(not progress.plan.in_rounds, scale)
            if distance >= 0:
                progress.step_stats.distance = distance
            progress.step_stats.exchanged()
        elif verb == LIST:
            self._entries = optimizer_state.entries_of(self._optimizer, progress.named)
            optimizer_state.give(self._trainer, self._entries)
        elif verb == TAKE:
            agreed = optimizer_state.taken(self._trainer)
            optimizer_state.take(self._optimizer, progress.named, agreed)
            self._entries = {}
        elif verb == VACATE:
            if versions is not None:
                versions.vacate()
            if self._models is not None:
                self._models.vacate()
        elif versions is None:
            raise AssertionError(f"an action that was not expected: {verb}")
        elif verb == COLLECT_GRADIENTS:
            self._came = time.monotonic()
            versions.open(self.spans(of_model=False))
            versions.collect()
        elif verb == UPDATE:
            self._last = self.position
            version = self._last.version  # There may have been empty ones, or a snapshot.
            progress.turn(version)
            versions.apply(self.spans(of_model=False), hypers)
            progress.turn(version + 1)
            progress.step_stats.exchanged()
        elif verb == PACK:
            _, *parts = kept = versions.pack()
            _native.trainer_give(self._trainer, *parts)
            del kept
        elif verb == UNPACK:
            versions.unpack(image, length)

    def _update(self, is_own: bool) -> None:
        """With gradients of this rank, or those of all, which are reduced now."""
        optimizer = self._optimizer
        if is_own:
            self._loss = clipped_step(optimizer, self._closure)
            self._models.updated()
        else:
            self._loss = optimizer._update(self._closure)
        optimizer._covey_progress.turn(optimizer._covey_progress.version + 1)

    def _offer(self) -> None:
        plan = self._optimizer._covey_progress.plan
        is_before = plan.with_neighbors and not self._has_taken and self.position.is_open == IN_STEP
        if is_before and self._closure is not None:
            self._closure = _evaluated(self._closure)  # With this rank's own model.
        self._models.offer(not plan.in_rounds, is_before)


def _evaluated(closure: Callable[[], Any]) -> Callable[[], Any]:
    """``closure``, evaluated once already: the next call gives that."""
    with torch.enable_grad():
        losses = [closure()]

    def called() -> Any:
        return losses.pop() if losses else closure()

    return called
