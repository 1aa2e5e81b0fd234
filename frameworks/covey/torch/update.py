"""One update of an optimizer, which stands although a hook after it raises. Internal."""

from __future__ import annotations

from typing import Any, Callable, Optional

_ATTRIBUTE = "_covey_was_updated"
_RAISED = "_covey_raised"


def update(optimizer: Any, closure: Optional[Callable[[], Any]] = None) -> Any:
    """The step of the user's class with its hooks; returns what that does.

    A step post-hook of the script's (logging, an average over time) may raise, and so may Ctrl-C in
    it. The update was done then: it must not be done again, and this rank has to take part in what
    the others do after theirs. So ``raise_late`` raises it, once the step is over.
    """
    if not hasattr(optimizer, _ATTRIBUTE):
        _watch(optimizer)
    setattr(optimizer, _ATTRIBUTE, False)
    step = optimizer._covey_super().step
    try:
        return step() if closure is None else step(closure)
    except BaseException as error:  # pylint: disable=broad-except
        if not getattr(optimizer, _ATTRIBUTE):
            raise
        if getattr(optimizer, _RAISED, None) is None:
            setattr(optimizer, _RAISED, error)
        return None


def raise_late(optimizer: Any) -> None:
    """Raises the first of what hooks have raised after updates since this was called last."""
    error = getattr(optimizer, _RAISED, None)
    if error is not None:
        setattr(optimizer, _RAISED, None)
        raise error


def _watch(optimizer: Any) -> None:
    """From now on the first of its post-hooks notes that an update was done."""
    handle = optimizer.register_step_post_hook(_note)
    optimizer._optimizer_step_post_hooks.move_to_end(handle.id, last=False)


def _note(optimizer: Any, *_: Any) -> None:
    setattr(optimizer, _ATTRIBUTE, True)
