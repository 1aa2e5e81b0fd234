"""From rounds of gradients of all, such as a warm-up, to what follows. Internal.

To rounds of models nobody waits. Both were made at the start, when all ranks were there. The first
end with a version: whoever has applied it, when it is equal to all, goes on with the models. A rank
that was late finds the versions it has missed in the log, which stays until all have left, or the
state at the last of them, which one of the others has left there for those that were overdue. What
it has published and no version has counts in its own model: as a step by itself.

Before anything else ranks have to meet. They do at that version or at the first after it in which
no rank is overdue, so that nobody waits there for one that is known to be missing.
"""

from __future__ import annotations

from typing import Any


def is_over(optimizer: Any) -> bool:
    """Whether the part of the training that the last step belonged to has ended for this rank."""
    progress, rounds = optimizer._covey_progress, optimizer._covey_rounds
    if not progress.hands_over:
        return bool(progress.is_over)
    return bool(rounds.is_over and (optimizer._covey_next is not None or not rounds.misses))


def hand_over(optimizer: Any) -> None:
    """This rank goes on with the trainer that was made ahead."""
    progress, past = optimizer._covey_progress, optimizer._covey_rounds
    optimizer._covey_rounds, optimizer._covey_next = optimizer._covey_next, None
    has_more = past.part()
    optimizer._covey_past = past
    if not past.offers_state:
        release_warmup(optimizer, at_once=True)
    progress.move(progress.plan.until)
    optimizer._covey_rounds.begin()
    if has_more:
        progress.begin_step()
        with progress.changing():
            optimizer._covey_rounds.step()
        progress.steps += 1
        progress.tally.end_step()


def release_warmup(optimizer: Any, at_once: bool = False) -> None:
    """Gives back what a warm-up that is over has kept for ranks that were overdue, when they have
    come to what follows."""
    past = optimizer._covey_past
    if past is not None and (at_once or all(optimizer._covey_rounds.seen)):
        optimizer._covey_past = None
        past.close()
