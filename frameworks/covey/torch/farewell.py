"""The notice when a script ends while the ranks have different models: one line, by the group's
first rank. Internal.

It reads the models of the others, which therefore stay readable for a moment. A rank that ends
later finds that they have left, and says that. Before it, what the ranks began with is compared, if
training was too short for it.
"""

from __future__ import annotations

import contextlib
import time
import weakref
from typing import Any, List

import torch

from covey.errors import CoveyError
from covey.notice import is_shown, tell
from covey.seen_models import Consensus
from covey.state import state
from covey.torch.flushed import rounding_of
from covey.torch.sources import is_replicated, view_of
from covey.torch.view import Model, measure
from covey.trainer_handle import CLOSED, LOST, TrainerHandle

_PATIENCE_S = 0.05  # For a model that is being changed.
_STAY_S = 1.0  # For the first rank to look, and for digests that are under way.
_LOOK_S = 0.001


class Farewell:
    """That of one optimizer."""

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
    distance = found.distance
    if optimizer._covey_progress.plan.in_pairs and found.norm > 0:
        distance = max(distance, _own_distance(means) / found.norm)
    is_apart = distance > rounding_of(optimizer._covey_progress.named)
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
    """Of this rank's parameters from the mean."""
    square = 0.0
    for plans, flats in means:
        for plan, flat in zip(plans, flats):
            for slot in plan.slots:
                apart = slot.parameter.data.double() - view_of(flat, slot).double()
                square += float(apart.square().sum())
    return square**0.5
