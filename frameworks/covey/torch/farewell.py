"""What a rank says when its script ends while the ranks have different models. Internal."""

from __future__ import annotations

import contextlib
import sys
import weakref
from typing import Any

from covey.errors import CoveyError
from covey.state import state
from covey.torch.sources import has_left, is_replicated
from covey.torch.view import Consensus, measure

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
                _tell(measure([optimizer], _PATIENCE_S)[0])
        progress.window.close()


def _tell(found: Consensus) -> None:
    if found.distance == 0:
        return
    unseen = "".join(f"; rank {rank} is not in it: {why}" for rank, why in found.missing.items())
    print(
        "covey: a script ends without optimizer.finish() while the ranks have different models: "
        f"the distance of ranks {', '.join(map(str, found.ages))} is {found.distance:.3g} of their "
        f"mean's norm{unseen}. What a rank saves now is its own; covey.consensus(model) has the "
        "mean of all",
        file=sys.stderr,
    )
