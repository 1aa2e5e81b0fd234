"""One trainer of the core: what it says of itself. Internal."""

from __future__ import annotations

import json
from typing import Any, Dict, List, NamedTuple, Sequence, Tuple

import torch

from covey import _native
from covey.torch.layout import BucketPlan


class Parts(NamedTuple):
    """The parts of a training that a trainer is for.

    Attributes:
        method: the text of all methods of the training.
        begin: the step that they begin with,
        end: and the one that yet another part begins with; 0: there is none.
        word: what is exchanged, in messages.
        has_versions: gradients have versions, at first,
        has_models: and models are exchanged, then or from the beginning.
    """

    method: str
    begin: int
    end: int
    word: str
    has_versions: bool
    has_models: bool


class Position(NamedTuple):
    """covey_position of core/api/covey_trainer.h."""

    version: int
    step: int
    may_differ: int
    begin: int
    own_steps: int
    has_state: int
    step_ns: int
    published: int
    of_all: int
    payload: int
    catches_up: int
    is_over: int


class TrainerHandle:
    """See the module, and ``core/api/covey_trainer.h``.

    Attributes:
        plans: where parameters, and their gradients, lie side by side.
    """

    def __init__(self, plans: Sequence[BucketPlan]) -> None:
        self._trainer = 0
        self.plans = list(plans)

    @property
    def position(self) -> Position:
        """Between two steps: where this rank is."""
        return Position(*_native.trainer_position(self._trainer))

    @property
    def is_over(self) -> bool:
        """Whether the last part has ended for this rank, and no other one is missing there."""
        return bool(self.position.is_over)

    def keep_pace(self, step_ns: int) -> None:
        """It holds from here on, until this rank's steps tell."""
        _native.trainer_restore(self._trainer, tuple(self.position._replace(step_ns=step_ns)))

    def counts(self) -> Dict[str, Any]:
        """As ``covey_trainer_stats``."""
        counts: Dict[str, Any] = json.loads(_native.trainer_stats(self._trainer))
        return counts

    def spans(self, of_model: bool) -> Tuple[int, ...]:
        """Where they lie now, by plan: gradients, or the model."""
        return _native.trainer_spans(self._trainer, len(self.plans), of_model)

    def look(self, rank: int, to: Sequence[torch.Tensor]) -> Any:
        """Copies the model of a rank, as others see it, to tensors by dtype and device. Returns
        whether it was not changed meanwhile, and in rounds the step that it is of, and whether an
        average of all has come after it."""
        return _native.trainer_peek(self._trainer, rank, tuple(flat.data_ptr() for flat in to))

    def arrays(self) -> List[Tuple[str, int, int]]:
        """Between two steps: what the method replicates on all ranks: names, addresses, bytes."""
        return _native.trainer_state(self._trainer)
