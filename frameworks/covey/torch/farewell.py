"""What a rank says when its script ends while the ranks have different models. Internal."""

from __future__ import annotations

import contextlib
import sys
import weakref
from typing import Any, List

import torch

from covey.errors import CoveyError
from covey.state import state
from covey.torch.pairs import PairTrainer
from covey.torch.sources import has_left, is_replicated, view_of
from covey.torch.view import Consensus, Model, measure

_PATIENCE_S = 0.05  # For a model that is being changed.


class Farewell:
    """That of one optimizer. Waits for nobody: who leaves first sees all, and says how far they are
    apart; who leaves later, nothing."""

    def __init__(self, optimizer: Any) -> None:
        self._optimizer = weakref.ref(optimizer)
        state.add_flush(self)

    def flush(self) -> None:
        """Says it, if there is something to be said."""
        optimizer = self._optimizer()
        progress = None if optimizer is None else optimizer._covey_progress
        if progress is None or progress.window is None or not progress.is_parted:
            return
        if not is_replicated(optimizer) and not has_left(optimizer):
            with contextlib.suppress(CoveyError):
                _tell(*measure([optimizer], _PATIENCE_S), optimizer)
        progress.window.close()


def _tell(found: Consensus, means: List[Model], optimizer: Any) -> None:
    # In pairs others see what was handed in, which is not what a rank trains on: it has local steps
    # of its own, and has not taken up what others have made of it since. So they always differ.
    is_of_pairs = isinstance(optimizer._covey_rounds, PairTrainer)
    distance = found.distance
    if is_of_pairs and found.norm > 0:
        distance = max(distance, _own_distance(means) / found.norm)
    if distance == 0 and not is_of_pairs:
        return
    unseen = "".join(f"; rank {rank} is not in it: {why}" for rank, why in found.missing.items())
    print(
        "covey: a script ends without optimizer.finish() while the ranks have different models: "
        f"the distance of ranks {', '.join(map(str, found.ages))} is {distance:.3g} of their "
        f"mean's norm{unseen}. What a rank saves now is its own; covey.consensus(model) has the "
        "mean of all",
        file=sys.stderr,
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
