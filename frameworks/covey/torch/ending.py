"""finish() where ranks are missing for longer than ``max_wait``. Internal.

With ``strict`` that raises. Else the ranks that are there go on without them and name them once.
Ranks that come later find the state that the others have ended with: of gradients all versions, the
last ones in the log or in a snapshot that one of the others leaves; of models the mean of those
that were there; of pairs each rank's own model, whose mean all take. Steps of a rank after the
others have ended without it are dropped, with a notice, unless they train on.
"""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from covey import _native
from covey.errors import CoveyError, Timeout
from covey.notice import warn

LEFT = 4  # covey_round_event
_FINISH, _MEET = -1, -2
_LEFT_BEHIND = "the other ranks have ended finish() without this one"


@dataclasses.dataclass
class Ending:
    """How far a finish() of one rank in rounds is."""

    is_due: bool = False  # There were steps since the last one.
    is_offered: bool = False  # Of models: this rank's is published for it.
    is_to_meet: bool = False  # All that counts is applied, but not all ranks have come to know.
    is_left: bool = False  # Others have ended it without this rank.


def say_missing(missing: Timeout) -> None:
    """Warns in the words of the error that finish() would have raised."""
    warn(f"{missing}; finish() goes on with the ranks that are there")


def say_alone(missing: CoveyError) -> None:
    """Likewise, where there is no mean of those that are there."""
    warn(f"{missing}; finish() ends without a mean: this rank keeps its own model")


def say_left() -> None:
    """A step has waited in vain for others to train on."""
    warn(
        f"{_LEFT_BEHIND}: until they train on its steps are dropped, and its finish() ends with "
        "their state"
    )


def dropped() -> int:
    """How many steps of this rank were dropped, of all its optimizers."""
    return int(json.loads(_native.stats())["round_dropped"])


def say_dropped(before: int) -> None:
    """A finish() has ended, which began with ``dropped()`` as ``before``."""
    if dropped() > before:
        warn(f"{_LEFT_BEHIND}: it ends with their state, and what it has done since is dropped")


def finish_rounds(rounds: Any, strict: bool) -> None:
    """``RoundTrainer.finish``."""
    rounds.ahead.pause()
    before = dropped()
    try:
        if not rounds.ending.is_to_meet:
            try:
                rounds._wait(_FINISH)
            finally:
                rounds._apply_all()
        rounds.ending.is_due = False
        say_dropped(before)
        if rounds.is_over and rounds._optimizer._covey_next is not None:
            return  # Others may be elsewhere already, and what they have left stays.
        # No rank trains on, or leaves, before all have applied the last version.
        rounds.ending.is_to_meet = True
        rounds._wait(_MEET)
    except Timeout as missing:
        if strict or not rounds._is_whole:  # It needs a snapshot that no rank gives.
            raise
        say_missing(missing)
        _settle(rounds)
        rounds.ending.is_due = False
    rounds.ending.is_to_meet = False
    rounds.ahead.settle()


def _settle(rounds: Any) -> None:
    """A rank that has fallen out of the log finds this rank's state, wherever this rank is then."""
    _native.rounds_go_on(rounds._rounds)
    rounds._apply_all()
    if _native.rounds_asked(rounds._rounds, rounds.applied):
        rounds._give()
