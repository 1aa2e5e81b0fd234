"""The actions that the core's trainer asks for, done by torch. Internal."""

from __future__ import annotations

import weakref
from typing import Any, Callable, Dict, List, Optional, Tuple

import torch

from covey import _native
from covey.torch import optimizer_state
from covey.torch.layout import BucketPlan
from covey.torch.trainer.model_exchange import ModelExchange
from covey.torch.trainer.version_gradients import VersionGradients
from covey.torch.update import clipped_step
from covey.trainer_handle import IN_FINISH, IN_STEP, TrainerHandle, Verb


class TrainerActions(TrainerHandle):
    """A trainer that does them.

    Attributes:
        plans: where parameters, and their gradients, lie side by side.
    """

    def __init__(self, optimizer: Any, plans: List[BucketPlan]) -> None:
        super().__init__(len(plans))
        self.plans = plans
        self._optimizer: Any = weakref.proxy(optimizer)  # It owns this.
        self._progress = optimizer._covey_progress
        self._closure: Optional[Callable[[], Any]] = None
        self._is_evaluated = False  # That closure, before the update.
        self._loss: Any = None
        self._is_open = 0  # IN_STEP, IN_FINISH: that call has not come to its end.
        self._has_taken = False  # A step's gradients, which are in an update or published.
        self._entries: Dict[str, Any] = {}  # Of the optimizer's state, while they are averaged.
        self._versions: Optional[VersionGradients] = None  # Where gradients have versions.
        self._models: Optional[ModelExchange] = None  # Where a part exchanges models.
        self._keep: Any = None  # Holds memory of the core while a tensor lies in it.

    def _do(
        self, verb: int, _: int, hypers: Tuple[float, ...], image: int, length: int, own: int,
        scale: float,
    ) -> None:
        progress, versions, models = self._progress, self._versions, self._models
        if verb == Verb.UPDATE and not own and self.position.is_open == IN_FINISH:
            versions = self._open_versions()  # Its part may have begun within this finish().
        if verb == Verb.UPDATE and (own or versions is None):
            self._update(bool(own))
        elif verb == Verb.COLLECT_MODEL:
            self._offer()
        elif verb == Verb.LOAD_MODEL:
            distance = models.load(not progress.plan.in_rounds, scale)
            if distance >= 0:
                progress.step_stats.distance = distance
            progress.step_stats.exchanged()
        elif verb == Verb.LIST:
            self._entries = optimizer_state.entries_of(self._optimizer, progress.named)
            optimizer_state.give(self._trainer, self._entries)
        elif verb == Verb.TAKE:
            agreed = optimizer_state.taken(self._trainer)
            optimizer_state.take(self._optimizer, progress.named, agreed)
            self._entries = {}
        elif verb == Verb.VACATE:
            for tensors in (versions, models):
                if tensors is not None:
                    tensors.vacate()
        elif versions is None:
            raise AssertionError(f"an action that was not expected: {verb}")
        elif verb == Verb.COLLECT_GRADIENTS:
            versions.open(self.spans(of_model=False))
            versions.collect()
        elif verb == Verb.UPDATE:
            version = self.position.version  # There may have been empty ones, or a snapshot.
            progress.version = version
            versions.apply(self.spans(of_model=False), hypers)
            progress.version = version + 1
            progress.step_stats.exchanged()
        elif verb == Verb.PACK:
            parts = versions.pack()
            lengths = tuple(part.numel() * part.element_size() for part in parts)
            _native.trainer_give(self._trainer, tuple(it.data_ptr() for it in parts), lengths)
        elif verb == Verb.UNPACK:
            versions.unpack(image, length)
        self._has_taken |= verb in (Verb.UPDATE, Verb.COLLECT_GRADIENTS)

    def _open_versions(self) -> VersionGradients:
        if self._versions is None:
            self._versions = VersionGradients(self, self._optimizer, self.plans, self._keep)
        return self._versions

    def _update(self, is_own: bool) -> None:
        """With gradients of this rank, or those of all, which are reduced now."""
        if is_own:
            self._loss = clipped_step(self._optimizer, self._closure, self._models.updated)
            self._models.updated()  # Where no update was done.
        else:
            self._loss = self._optimizer._update(self._closure)
        self._progress.version += 1

    def _offer(self) -> None:
        plan = self._progress.plan
        is_before = plan.with_neighbors and not self._has_taken and self.position.is_open == IN_STEP
        if is_before and self._closure is not None:
            self._closure = _evaluated(self._closure)  # With this rank's own model.
            self._is_evaluated = True
        self._models.offer(not plan.in_rounds, is_before)


def _evaluated(closure: Callable[[], Any]) -> Callable[[], Any]:
    """``closure``, evaluated once already: the next call gives that."""
    with torch.enable_grad():
        losses = [closure()]
    return lambda: losses.pop() if losses else closure()
