"""Small functions of Horovod that its tests, and some scripts, import from its inner modules."""

from __future__ import annotations

import contextlib
import os
import re
import threading
from typing import Any, Callable, Iterator, Optional, Sequence, Tuple

from covey import horovod
from covey.errors import InvalidArgument
from covey.horovod import *  # noqa: F401,F403  # What horovod.common.util has of them.
from covey.launched_by import place_of

__all__ = [
    *horovod.__all__,
    "env",
    "get_env_rank_and_size",
    "in_thread",
    "is_version_greater_equal_than",
]


def _executing_eagerly() -> bool:
    import tensorflow

    return bool(tensorflow.executing_eagerly())


@contextlib.contextmanager
def env(**variables: Optional[str]) -> Iterator[None]:
    """Within it the environment has ``variables``; those that are None stay as they are."""
    wanted = {name: value for name, value in variables.items() if value is not None}
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def get_env_rank_and_size() -> Tuple[int, int]:
    """Rank and number of ranks, as the launcher has put them into the environment; (0, 1) without
    one. Known before ``init()``."""
    try:
        return place_of(os.environ)
    except InvalidArgument:
        return 0, 1


def in_thread(
    target: Callable[..., Any],
    args: Sequence[Any] = (),
    name: Optional[str] = None,
    daemon: bool = True,
    silent: bool = False,
) -> threading.Thread:
    """A thread that runs ``target(*args)``.

    Args:
        target: the function.
        args: a tuple of its arguments.
        name: of the thread.
        daemon: the process does not wait for it at its end.
        silent: what ``target`` raises is dropped.
    """
    if not isinstance(args, tuple):
        raise ValueError(f"args must be a tuple, not {type(args).__name__}")

    def call() -> None:
        with contextlib.suppress(Exception) if silent else contextlib.nullcontext():
            target(*args)

    thread = threading.Thread(target=call, name=name, daemon=daemon)
    thread.start()
    return thread


def is_version_greater_equal_than(ver: str, target: str) -> bool:
    """Whether version ``ver`` is ``target`` or newer, by their leading numbers ("2.13.0+cpu")."""
    if not isinstance(ver, str) or not isinstance(target, str):
        raise ValueError(f"versions are strings, not {ver!r} and {target!r}")
    return _numbers(ver) >= _numbers(target)


def _numbers(version: str) -> Tuple[int, ...]:
    found = re.match(r"\d+(\.\d+)*", version)
    if found is None:
        raise ValueError(f"{version!r} does not begin with a version's numbers")
    numbers = [int(number) for number in found.group().split(".")]
    return tuple(numbers + [0] * (4 - len(numbers)))
