"""Horovod's elastic training: a script commits a state, and goes back to it when an operation has
failed. In an elastic job (``coveyrun --min-np``) ranks may come and go, too::

    @hvd.elastic.run
    def train(state):
        for state.epoch in range(state.epoch, epochs):
            ...
            state.commit()

    train(hvd.elastic.TorchState(model, optimizer, epoch=0))
"""

from __future__ import annotations

import abc
import contextlib
import copy
import functools
from typing import Any, Callable, ContextManager, Dict, List, Mapping, Optional, Sequence, TypeVar

from covey import basics
from covey.elastic_job import ElasticJob
from covey.errors import Aborted, OperationError, Timeout
from covey.horovod import HostsUpdatedInterrupt
from covey.notice import warn
from covey.objects import broadcast_object
from covey.state import state as process

__all__ = ["HostsUpdatedInterrupt", "ObjectState", "State", "run"]

R = TypeVar("R")


class State:
    """The state of a script. A class of your own says how, by ``save``, ``restore``, ``sync``.

    Args:
        bcast_object: sends an object of rank 0 to all; None: ``broadcast_object``.
        get_rank: accepted for Horovod's sake.
        **kwargs: accepted; ``ObjectState`` keeps them.

    Raises:
        Mismatch, Aborted: by ``sync``: the ranks disagree; a rank died or left.

    Example:
        >>> class Counted(hvd.elastic.State):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.count = 0
        ...         self.save()
        ...     def save(self):
        ...         self.saved = self.count
        ...     def restore(self):
        ...         self.count = self.saved
        ...     def sync(self):
        ...         self.count = hvd.broadcast_object(self.count, root_rank=0)
        ...         self.save()
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
        self._commits = self._resets = 0

    def register_reset_callbacks(self, callbacks: Sequence[Callable[[], None]]) -> None:
        """These functions are called, in this order, each time that ``run`` has gone back.

        Args:
            callbacks: functions without arguments.
        """
        self._callbacks.extend(callbacks)

    def on_reset(self) -> None:
        """``run`` has gone back: calls ``reset``, then the callbacks."""
        self._resets += 1
        self.reset()
        for callback in self._callbacks:
            callback()

    def on_hosts_updated(self, timestamp: float, update_res: int) -> None:
        """Never called: ``check_host_updates`` looks itself.

        Args:
            timestamp, update_res: Horovod's.
        """

    def commit(self) -> None:
        """Saves; from now on ``run`` goes back to here. Raises as ``check_host_updates``."""
        self._commits += 1
        self.save()
        self.check_host_updates()

    def check_host_updates(self) -> None:
        """In an elastic job: looks whether a rank has come, or waits for this one; asks no rank.

        Raises:
            HostsUpdatedInterrupt: one has.
        """
        if process.elastic is not None and process.elastic.look():
            raise HostsUpdatedInterrupt()

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
        """For a class of your own, called before the callbacks; on all ranks."""


class ObjectState(State):
    """Keeps Python objects: its attributes are those of ``kwargs``.

    Args:
        bcast_object, get_rank: as :class:`State`.
        **kwargs: objects that can be copied and pickled, by the names of attributes.

    Raises:
        Mismatch, Aborted: by ``sync``: the ranks disagree; a rank died or left.

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


class Kept(abc.ABC):
    """A part of a state that is no plain object: a model for example, and its last copy. Internal.

    Args:
        value: the attribute of the state.
    """

    def __init__(self, value: Any) -> None:
        self.value = value
        self.save()

    @abc.abstractmethod
    def save(self) -> None:
        """Copies the value."""

    @abc.abstractmethod
    def restore(self) -> None:
        """Makes the value the copy."""

    @abc.abstractmethod
    def sync(self) -> None:
        """Makes the value rank 0's, and copies it. All ranks call it."""

    def reset(self) -> None:
        """``restore`` was called on all ranks."""


class KeptState(ObjectState):
    """A state of a framework: parts of its own, and plain objects. Internal.

    Args:
        parts: by the names of attributes.
        plain: the attributes that are plain objects.
    """

    def __init__(self, parts: Mapping[str, Kept], plain: Mapping[str, Any]) -> None:
        self._kept = dict(parts)
        for name, it in self._kept.items():
            setattr(self, name, it.value)
        super().__init__(**plain)

    def save(self) -> None:
        for name, it in self._kept.items():
            it.value = getattr(self, name)  # The script may have made another one.
            it.save()
        super().save()

    def restore(self) -> None:
        for name, it in self._kept.items():
            it.restore()
            setattr(self, name, it.value)
        super().restore()

    def sync(self) -> None:
        for name, it in self._kept.items():
            it.value = getattr(self, name)
            it.sync()
        super().sync()

    def reset(self) -> None:
        for it in self._kept.values():
            it.reset()


def _begin(job: Optional[ElasticJob]) -> None:
    """All ranks of a world have the same state: optimizers begin."""
    if job is not None:
        for training in process.trainings():
            training.enter()
        job.tell_ready()


def _change(job: ElasticJob) -> None:
    """This process leaves its world, and becomes a rank of the next.

    Raises:
        Aborted: there is no place in one; says why.
    """
    for training in process.trainings():
        training.leave()
    while True:
        basics.leave()
        process.forget_job()
        try:
            return basics.init(settings=process.settings)
        except (Aborted, Timeout):
            if job.is_over:
                raise  # Else a rank of that world has died before all were there.


Errors = Callable[[], ContextManager[Any]]
"""Within it the errors of a framework's operations are Covey's."""


def run(func: Callable[..., R]) -> Callable[..., R]:
    """Makes of ``func(state, ...)`` a function that goes back to the last commit and calls it again
    when an operation has failed on all ranks; before each call it calls ``state.sync()``.

    If it raises ``HostsUpdatedInterrupt``, it is called again as the state is. In an elastic job
    (``coveyrun --min-np``) that is raised by ``state.commit()`` when a rank has come, and the
    loss of a rank is a failed operation: then the ranks that are there go on together, as ranks 0
    to ``size() - 1``, with the state of rank 0. Distributed optimizers go on too, if they were made
    before; what else depends on ``rank()`` and ``size()`` is for the reset callbacks.

    Args:
        func: called with a state first; it commits the state now and then.

    Raises:
        HorovodInternalError: Mismatch, NotFinite, or one of the script's own: it has failed again
            without a commit between: it would for ever.
        Aborted: a rank has gone, and the job is not elastic or has too few ranks left. The state is
            that of the last commit.

    Example:
        >>> hvd.elastic.run(train)(state)
    """

    return retried(func, contextlib.nullcontext)


def retried(func: Callable[..., R], errors: Errors) -> Callable[..., R]:
    """As ``run``, of a framework with errors of its own. Internal."""

    @functools.wraps(func)
    def wrapped(state: State, *args: Any, **kwargs: Any) -> R:
        job = process.elastic
        last, skips_sync = -1, False
        while True:
            is_begun = False
            try:
                with errors():
                    if not skips_sync:
                        state.sync()
                    _begin(job)
                is_begun, skips_sync = True, False
                with errors(), contextlib.nullcontext() if job is None else job.inside():
                    return func(state, *args, **kwargs)
            except HostsUpdatedInterrupt as change:
                skips_sync = change.skip_sync
                is_over = job is not None and job.is_called
            except OperationError as error:
                is_over = job is not None and isinstance(error, Aborted)
                if not is_begun and not is_over:
                    raise
                state.restore()
                if not is_over and (isinstance(error, Aborted) or state._commits == last):
                    raise
                last = state._commits
                if job is None or not job.look():  # Else others have left to let one in.
                    warn(f"elastic.run goes back to the last commit: {error}")
            if is_over:
                skips_sync = False
                _change(job)
            with errors():
                state.on_reset()

    return wrapped
