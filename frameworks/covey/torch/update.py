"""One update of an optimizer, which stands although a hook after it raises. Internal."""

from __future__ import annotations

from typing import Any, Callable

_ATTRIBUTE = "_covey_was_updated"


def update(optimizer: Any, then: Callable[[], None]) -> None:
    """Does a step of the user's class with its hooks; calls ``then`` if parameters have changed.

    A step post-hook of the script's (logging, an average over time) may raise, and so may Ctrl-C in
    it: the update was done then, and must not be done again.
    """
    if not hasattr(optimizer, _ATTRIBUTE):
        _watch(optimizer)
    setattr(optimizer, _ATTRIBUTE, False)
    try:
        optimizer._covey_super().step()
        setattr(optimizer, _ATTRIBUTE, True)
    finally:
        if getattr(optimizer, _ATTRIBUTE):
            then()


def _watch(optimizer: Any) -> None:
    """From now on the first of its post-hooks notes that an update was done."""
    handle = optimizer.register_step_post_hook(_note)
    optimizer._optimizer_step_post_hooks.move_to_end(handle.id, last=False)


def _note(optimizer: Any, *_: Any) -> None:
    setattr(optimizer, _ATTRIBUTE, True)
