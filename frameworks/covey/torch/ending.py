"""finish() where ranks are missing for longer than ``max_wait``. Internal.

With ``strict`` that raises. Else who is there goes on without them, says once who they are, and
what those who come later find is the state that the others have ended with: of gradients all
versions, the last ones in the log or in a snapshot that one of the others leaves; of models the
mean of those that were there; of pairs each rank's own model, whose mean all take.
"""

from __future__ import annotations

from typing import Any

from covey import _native
from covey.errors import Timeout
from covey.notice import warn

_FINISH, _MEET = -1, -2


def say_missing(missing: Timeout) -> None:
    """What finish() would have raised."""
    warn(f"{missing}; finish() goes on with the ranks that are there")


def finish_rounds(rounds: Any, strict: bool) -> None:
    """``RoundTrainer.finish``."""
    rounds.ahead.pause()
    try:
        if not rounds._is_to_meet:
            try:
                rounds._wait(_FINISH)
            finally:
                rounds._apply_all()
        rounds._is_apart = False
        if rounds.is_over and rounds._optimizer._covey_next is not None:
            return  # Others may be elsewhere already, and what they have left stays.
        # Nobody trains on, or leaves, before all have applied the last version.
        rounds._is_to_meet = True
        rounds._wait(_MEET)
    except Timeout as missing:
        if strict or not rounds._is_whole:  # It needs a snapshot that nobody gives.
            raise
        say_missing(missing)
        _settle(rounds)
        rounds._is_apart = False
    rounds._is_to_meet = False
    rounds.ahead.settle()


def _settle(rounds: Any) -> None:
    """Who has fallen out of the log finds this rank's state, wherever this rank is then."""
    _native.rounds_go_on(rounds._rounds)
    rounds._apply_all()
    if _native.rounds_asked(rounds._rounds, rounds.applied):
        rounds._give()
