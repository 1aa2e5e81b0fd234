"""Where a checkpoint can be taken, and going on from one. Internal.

A method may have more of a training than parameters and optimizer: contributions that wait in
slots, averages with others that are not taken over, steps that only the core has counted. Rather
than to write these down, they are brought in, and rounds begin anew on both sides: on ranks that go
on after saving, and on ranks that load. So both do the same from there, bit for bit.

allreduce: nothing is done; a rank is at its step. local: likewise, with its own model, also in the
middle of its local steps.
eager, allreduce by max_wait: finish(): all gradients count; it is at its version.
diloco: finish(): the work of all counts; the outer momentum goes on, local steps are counted anew.
wagma, local by max_wait: finish(): the mean of all models, optimizers stay each rank's own; it is
at its step, and the next average of all is sync_every later.
adpsgd, swarm: hands in what was learnt; each rank has its own model, with what others have made of
it, and is at its step; partners are drawn, and local steps counted, anew.
"""

from __future__ import annotations

from typing import Any, Callable, Dict

from covey.errors import InvalidArgument
from covey.torch.method_arrays import put_state, state
from covey.torch.training import open_trainer


def check(optimizer: Any, what: str) -> None:
    """Refuses a moment that is not between two steps.

    Raises:
        InvalidArgument: (a ValueError) inside consensus(), or between backward and step.
    """
    progress, reducer = optimizer._covey_progress, optimizer._covey_reducer
    if progress.is_viewed:
        raise InvalidArgument(
            f"{what} inside covey.consensus(), where the parameters are not this rank's own: end "
            "the `with` before"
        )
    if reducer is not None and reducer.in_flight:
        raise InvalidArgument(
            f"{what} after loss.backward() but before optimizer.step(): call it after step()"
        )


def gather_in(optimizer: Any) -> None:
    """Where a method goes in rounds: nothing is under way any more. All ranks call it.

    Raises:
        Timeout: a rank has not come for ``max_wait``; training may go on, or it be called again.
    """
    progress = optimizer._covey_progress
    if progress.plan.in_rounds and not progress.plan.in_pairs:
        return optimizer.finish(strict=True)
    if optimizer._covey_trainer is not None:
        with progress.changing():
            optimizer._covey_trainer.gather_in()


def settle(optimizer: Any) -> None:
    """After ``gather_in``: rounds begin anew, with nothing left outside."""
    if optimizer._covey_progress.plan.in_rounds:
        Renewal(optimizer, keeps=True).end()


def put_to(optimizer: Any, position: Dict[str, Any], put: Callable[[], None]) -> None:
    """Puts this rank to ``position``, with what ``put()`` writes; within a ``Renewal``."""
    with optimizer._covey_progress.changing():
        put()
        optimizer._covey_progress.take_up(position)


class Renewal:
    """Rounds of an optimizer end as they are, and others begin."""

    def __init__(self, optimizer: Any, keeps: bool = False) -> None:
        """The first half, which does not wait. ``keeps``: training goes on, with what the method
        keeps beside the model."""
        self._optimizer = optimizer
        self._kept = state(optimizer) if keeps else {}
        if optimizer._covey_trainer is not None:
            optimizer._covey_trainer.close()
        optimizer._covey_trainer = None

    def end(self) -> None:
        """The second half, on all ranks."""
        if not self._optimizer._covey_progress.is_shared:
            return
        open_trainer(self._optimizer)
        if self._kept:
            put_state(self._optimizer, self._kept)
