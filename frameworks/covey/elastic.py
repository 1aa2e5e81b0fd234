"""Horovod's elastic training over a world that does not change.

The number of ranks is fixed: no host comes or goes, and ``HostsUpdatedInterrupt`` is never raised.
A script commits a state, and goes back to it when an operation has failed::

    @hvd.elastic.run
    def train(state):
        for state.epoch in range(state.epoch, epochs):
            ...
            state.commit()

    train(hvd.elastic.TorchState(model, optimizer, epoch=0))
"""

from __future__ import annotations

import copy
import functools
from typing import Any, Callable, Dict, List, Optional, Sequence, TypeVar

from covey.errors import Aborted, Mismatch
from covey.horovod import HostsUpdatedInterrupt
from covey.notice import warn
from covey.objects import broadcast_object

__all__ = ["HostsUpdatedInterrupt", "ObjectState", "State", "run"]

R = TypeVar("R")


class State:
    """The state of a script. A class of your own says how, by ``save``, ``restore``, ``sync``.

    Args:
        bcast_object: sends an object of rank 0 to all; None: ``broadcast_object``.
        get_rank: accepted for Horovod's sake.
        **kwargs: accepted; ``ObjectState`` keeps them.
    """

    def __init__(
        self,
        bcast_object: Optional[Callable[..., Any]] = None,
        get_rank: Optional[Callable[[], int]] = None,
        **kwargs: Any,
    ) -> None:
        del get_rank, kwargs
        self._broadcast = bcast_object or broadcast_object
        self._callbacks: List[Callable[[], None]] = []
        self._commits = 0

    def register_reset_callbacks(self, callbacks: Sequence[Callable[[], None]]) -> None:
        """They are called, in this order, each time that ``run`` has gone back."""
        self._callbacks.extend(callbacks)

    def on_reset(self) -> None:
        """``run`` has gone back: calls ``reset``, then the callbacks."""
        self.reset()
        for callback in self._callbacks:
            callback()

    def on_hosts_updated(self, timestamp: float, update_res: int) -> None:
        """Never called: the ranks of a job are fixed."""

    def commit(self) -> None:
        """Saves; from now on ``run`` goes back to here."""
        self._commits += 1
        self.save()
        self.check_host_updates()

    def check_host_updates(self) -> None:
        """Does nothing: the ranks of a job are fixed."""

    def save(self) -> None:
        """Keeps a copy of everything."""
        raise NotImplementedError

    def restore(self) -> None:
        """Makes everything what it was at the last ``save``."""
        raise NotImplementedError

    def sync(self) -> None:
        """Makes everything the same on all ranks, and saves it. All ranks call it."""
        raise NotImplementedError

    def reset(self) -> None:
        """For a class of your own, called before the callbacks."""


class ObjectState(State):
    """Keeps Python objects: its attributes are those of ``kwargs``.

    Example:
        >>> state = ObjectState(epoch=0, batch=0)
        >>> state.batch = 7
        >>> state.restore()
        >>> state.batch
        0
    """

    def __init__(
        self,
        bcast_object: Optional[Callable[..., Any]] = None,
        get_rank: Optional[Callable[[], int]] = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(bcast_object, get_rank)
        self._saved: Dict[str, Any] = {}
        for name, value in kwargs.items():
            setattr(self, name, value)
        self._names = list(kwargs)
        ObjectState.save(self)

    def save(self) -> None:
        self._saved = {name: copy.deepcopy(getattr(self, name)) for name in self._names}

    def restore(self) -> None:
        for name, value in self._saved.items():
            setattr(self, name, copy.deepcopy(value))

    def sync(self) -> None:
        """All have what rank 0 has saved."""
        if self._names:
            self._saved = self._broadcast(self._saved, root_rank=0)
            ObjectState.restore(self)


def run(func: Callable[..., R]) -> Callable[..., R]:
    """Makes of ``func(state, ...)`` a function that goes back to the last commit and calls it again
    when an operation has failed on all ranks; before each call it calls ``state.sync()``.

    Raises:
        Mismatch: it has failed again without a commit between: it would for ever.
        Aborted: a rank has gone, and no other takes its place. The state is that of the last
            commit.

    Example:
        >>> hvd.elastic.run(train)(state)
    """

    @functools.wraps(func)
    def wrapped(state: State, *args: Any, **kwargs: Any) -> R:
        last = -1
        while True:
            state.sync()
            try:
                return func(state, *args, **kwargs)
            except Mismatch as error:
                state.restore()
                if state._commits == last:
                    raise
                last = state._commits
                warn(f"elastic.run goes back to the last commit: {error}")
            except Aborted:
                state.restore()
                raise
            state.on_reset()

    return wrapped
