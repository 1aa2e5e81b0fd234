"""From rounds to what follows. Internal.

They end with a version that waits for all, for max_wait at most: there all that were in it are
equal. So there is no need to meet once more, and the version's record names the missing ranks.

From gradients to rounds of models no rank waits. Both were made at the start, when all ranks were
there. A rank that has applied the version of the last step goes on with the models. A rank
that was late finds the versions it has missed in the log, which stays until all have left, or the
state at the last of them, which others have left there for those that were not in it. Its
contributions that are in no version count in its own model: as a step by itself.

Before anything else, and after rounds of models, ranks have to do something together
(``crossing.py``). They do at that version or at the first after it in which no rank is overdue:
until then they train on, so that no rank waits for one that is known to be missing. A snapshot says
who was overdue, so that a rank that goes on from one of that very version goes on with the others.
"""

from __future__ import annotations

from typing import Any

from covey import _native


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
    step_ns = pace_of(optimizer, past)
    has_more = past.part()
    optimizer._covey_past = past
    # A rank that was in finish() needs no more than the state that was left.
    if not (past.misses and past.offers_state):
        release_warmup(optimizer, at_once=True)
    progress.move(progress.plan.until)
    optimizer._covey_rounds.begin()
    keep_pace(optimizer, step_ns)
    if has_more:
        progress.begin_step()
        with progress.changing():
            optimizer._covey_rounds.step()
        progress.steps += 1
        progress.step_stats.end_step()


def release_warmup(optimizer: Any, at_once: bool = False) -> None:
    """Gives back what a warm-up that is over has kept for ranks that were overdue, when they have
    come to what follows."""
    past = optimizer._covey_past
    if past is not None and (at_once or all(optimizer._covey_rounds.seen)):
        optimizer._covey_past = None
        past.close()


def pace_of(optimizer: Any, rounds: Any) -> int:
    """So many nanoseconds a step of this rank's own takes, as ``rounds`` have it; 0: unknown."""
    plan = optimizer._covey_progress.plan
    if rounds is None or not plan.in_versions:
        return 0
    return _native.rounds_pace(rounds._rounds) // max(1, plan.local_steps)


def keep_pace(optimizer: Any, step_ns: int) -> None:
    """It holds in the rounds that have begun: so they wait no longer at first than later."""
    plan, rounds = optimizer._covey_progress.plan, optimizer._covey_rounds
    if rounds is not None and plan.in_versions:
        _native.rounds_assume(rounds._rounds, step_ns * max(1, plan.local_steps))
