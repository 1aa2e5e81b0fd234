"""An optimizer in an elastic job: its exchanges end with a world, and begin anew in the next.

All ranks of a world have the same optimizers, those that were made before `elastic.run` has called
its function, and begin them in the order in which they were made. Internal.
"""

from __future__ import annotations

import contextlib
import weakref
from typing import Any, Callable

from covey.errors import CoveyError
from covey.objects import broadcast_object
from covey.state import state

_NEWCOMER = (
    "this optimizer was made outside of the function of elastic.run, by a rank that has come to "
    "others later: it trains within that function"
)
_OVER = (
    "this optimizer was made within the function of elastic.run, while the job had other ranks: "
    "make it again there, or once before"
)
_BETWEEN = (
    "the ranks of this elastic job have changed: this optimizer goes on when elastic.run calls its "
    "function"
)


class InWorlds:
    """Ends and begins the exchanges of one optimizer, which keeps it."""

    def __init__(self, optimizer: Any, build: Callable[[Any], None]) -> None:
        """`build` begins its exchanges."""
        job = state.elastic
        self._optimizer, self._build = weakref.ref(optimizer), build
        self._is_made_inside = job is not None and job.is_inside
        if job is not None and job.world > 0 and not job.is_inside:
            optimizer._covey_progress.is_idle = _NEWCOMER
        else:
            build(optimizer)
        state.add_training(self)

    def leave(self) -> None:
        """The world is over: exchanges under way come to no end. Asks no other rank."""
        optimizer = self._optimizer()
        if optimizer is None:
            return
        reducer, optimizer._covey_reducer = optimizer._covey_reducer, None
        trainer, optimizer._covey_trainer = optimizer._covey_trainer, None
        if reducer is not None:
            reducer.remove_hooks()
            with contextlib.suppress(CoveyError):
                reducer.abandon()
        if trainer is not None:
            with contextlib.suppress(CoveyError):
                trainer.close()
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                parameter.grad = None  # It may lie in memory of that world.
        optimizer._covey_synchronized = optimizer._covey_is_settled = False
        optimizer._covey_progress.is_idle = _OVER if self._is_made_inside else _BETWEEN

    def enter(self) -> None:
        """All ranks of a world begin, with equal parameters, where the first rank has been."""
        optimizer = self._optimizer()
        if optimizer is None or self._is_made_inside or not optimizer._covey_progress.is_idle:
            return
        progress, group = optimizer._covey_progress, optimizer._covey_options["process_set"]
        if group.included():
            steps = broadcast_object(progress.begin, group.ranks[0], "elastic.steps", group)
            progress.begin_anew(steps)
        self._build(optimizer)
