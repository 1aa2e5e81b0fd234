"""The end of a training, and of a script, where the ranks' models may differ. Internal.

``finish()`` where ranks are missing for longer than ``max_wait`` raises if it is ``strict``. Else
the ranks that are there go on without them and name them once. Ranks that come later find the state
that the others have ended with: of gradients all versions, the last ones in the log or in a
snapshot that one of the others leaves; of models the mean of those that were there; of pairs each
rank's own model, whose mean all take. Steps of a rank after the others have ended without it are
dropped, with a notice, unless they train on.
"""

from __future__ import annotations

import contextlib
import json
import time
import weakref
from typing import Any, List, Sequence

import torch

from covey import _native
from covey.errors import CoveyError
from covey.notice import is_shown, tell, warn
from covey.seen_models import Consensus
from covey.state import state
from covey.torch.layout import Named
from covey.torch.trainer.model_exchange import relative_distance
from covey.torch.view import Model, is_replicated, measure
from covey.trainer_handle import CLOSED, LOST, TrainerHandle

_LEFT_BEHIND = "the other ranks have ended finish() without this one"
_PATIENCE_S = 0.05  # For a model that is being changed.
_STAY_S = 1.0  # For the first rank to look, and for digests that are under way.
_LOOK_S = 0.001


def dropped() -> int:
    """How many steps of this rank were dropped, of all its optimizers."""
    return int(json.loads(_native.stats())["round_dropped"])


def say_dropped(before: int) -> None:
    """A finish() has ended, which began with ``dropped()`` as ``before``."""
    if dropped() > before:
        warn(f"{_LEFT_BEHIND}: it ends with their state, and what it has done since is dropped")


def _rounding_of(named: Sequence[Named]) -> float:
    """Models that are no further apart, in parts of their norm, differ by rounding alone."""
    kinds = [parameter.dtype for _, parameter in named]
    kinds = [kind if kind.is_floating_point else kind.to_real() for kind in kinds]
    return 8 * max((torch.finfo(kind).eps for kind in kinds), default=0.0)


class Flushed:
    """Says what versions that were made after a script's last step have changed."""

    def __init__(self, named: Sequence[Named]) -> None:
        self._named = named
        self._before = [parameter.detach().clone() for _, parameter in named]

    def tell(self, versions: int, failure: str) -> None:
        """``versions`` were applied; ``failure``: why not all were, or empty."""
        moved = relative_distance(self._before, [it.detach() for _, it in self._named])
        if not failure and moved <= _rounding_of(self._named):
            return
        tell(
            f"a script ends without optimizer.finish(): {failure or 'all gradients count now'}; "
            f"{versions} version{' was' if versions == 1 else 's were'} applied after its last "
            f"step, by which its model has moved by {moved:.3g} of its norm"
        )


class Farewell:
    """The notice when a script ends while the ranks have different models: one line, by the group's
    first rank.

    It reads the models of the others, which therefore stay readable for a moment. A rank that ends
    later finds that they have left, and says that. Before it, what the ranks began with is
    compared, if training was too short for it.
    """

    def __init__(self, optimizer: Any) -> None:
        self._optimizer = weakref.ref(optimizer)
        state.add_flush(self)

    def flush(self) -> None:
        """Says it, if there is something to be said."""
        optimizer = self._optimizer()
        if optimizer is None or not is_shown():
            return
        progress, group = optimizer._covey_progress, optimizer._covey_options["process_set"]
        if progress.start is not None:
            progress.start.look(_STAY_S)
        trainer = optimizer._covey_trainer
        if trainer is None or progress.reduces or progress.is_mixed or progress.adds_updates:
            return
        with contextlib.suppress(CoveyError):
            if not is_replicated(optimizer):
                if group.rank() != 0:
                    _stay(trainer, group.ranks[0])
                elif progress.is_parted:
                    _tell(*measure([optimizer], _PATIENCE_S), optimizer)
            trainer.hide()


def _stay(trainer: TrainerHandle, first: int) -> None:
    """Until the first rank has looked: then it hides."""
    deadline = time.monotonic() + _STAY_S
    while trainer.look(first).state not in (CLOSED, LOST):
        if time.monotonic() > deadline:
            return
        time.sleep(_LOOK_S)


def _tell(found: Consensus, means: List[Model], optimizer: Any) -> None:
    # In pairs others see what was handed in, which is not what a rank trains on: it has local steps
    # of its own, and has not taken up what others have made of it since.
    distance, progress = found.distance, optimizer._covey_progress
    if progress.plan.in_pairs and found.norm > 0:
        distance = max(distance, _own_distance(means) / found.norm)
    is_apart = distance > _rounding_of(progress.named)
    seen = [
        f"the distance of ranks {', '.join(map(str, found.ages))} is {distance:.3g} of their "
        "mean's norm"
    ]
    unseen = [f"rank {rank} is not in it: {why}" for rank, why in found.missing.items()]
    if not is_apart and (len(found.ages) > 1 or not unseen):
        return
    tell(
        "a script ends without optimizer.finish() while the ranks have different models: "
        f"{'; '.join(seen * is_apart + unseen)}. What a rank saves now is its own; "
        "covey.consensus(model) has the mean of all"
    )


@torch.no_grad()
def _own_distance(means: List[Model]) -> float:
    """The distance of this rank's parameters from the mean."""
    slots = [(slot, flat) for plans, flats in means for plan, flat in zip(plans, flats)
             for slot in plan.slots]
    squares = ((it.parameter.data.double() - it.view(flat).double()).square() for it, flat in slots)
    return sum(float(square.sum()) for square in squares) ** 0.5
