"""Names of operations that every member of a group makes alike. Internal."""

from __future__ import annotations

from typing import Dict, Sequence, Tuple

from covey.state import state

# (word, group) -> (init_epoch, made so far). The same on every member, so it can be part of a name.
_made: Dict[Tuple[str, Tuple[int, ...]], Tuple[int, int]] = {}


def next_prefix(word: str, ranks: Sequence[int]) -> str:
    """`word`, with a number when it was asked for before: the same on every member of the group."""
    key = (word, tuple(ranks))
    init_epoch, count = _made.get(key, (state.init_epoch, 0))
    count = count if init_epoch == state.init_epoch else 0
    _made[key] = (state.init_epoch, count + 1)
    return word if count == 0 else f"{word}{count}"
