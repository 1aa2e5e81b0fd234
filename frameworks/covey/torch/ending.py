"""finish() where ranks are missing for longer than ``max_wait``. Internal.

With ``strict`` that raises. Else the ranks that are there go on without them and name them once.
Ranks that come later find the state that the others have ended with: of gradients all versions, the
last ones in the log or in a snapshot that one of the others leaves; of models the mean of those
that were there; of pairs each rank's own model, whose mean all take. Steps of a rank after the
others have ended without it are dropped, with a notice, unless they train on.
"""

from __future__ import annotations

import json

from covey import _native
from covey.errors import CoveyError
from covey.notice import warn

_LEFT_BEHIND = "the other ranks have ended finish() without this one"


def say_alone(missing: CoveyError) -> None:
    """Warns in the words of the error: there is no mean of those that are there."""
    warn(f"{missing}; finish() ends without a mean: this rank keeps its own model")


def dropped() -> int:
    """How many steps of this rank were dropped, of all its optimizers."""
    return int(json.loads(_native.stats())["round_dropped"])


def say_dropped(before: int) -> None:
    """A finish() has ended, which began with ``dropped()`` as ``before``."""
    if dropped() > before:
        warn(f"{_LEFT_BEHIND}: it ends with their state, and what it has done since is dropped")
