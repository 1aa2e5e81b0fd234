"""The states of ``covey.elastic`` for Keras, and callbacks with which ``fit()`` commits::

    state = hvd.elastic.KerasState(model, batch=0, epoch=0)

    @hvd.elastic.run
    def train(state):
        model.fit(
            images, labels, initial_epoch=state.epoch, epochs=10,
            callbacks=[
                hvd.elastic.UpdateEpochStateCallback(state),
                hvd.elastic.UpdateBatchStateCallback(state),
                hvd.elastic.CommitStateCallback(state, batches_per_commit=100),
            ],
        )

    train(state)

In an elastic job (``coveyrun --min-np``) the function also makes the DistributedOptimizer, and
compiles the model with it: see :mod:`covey.elastic`.
"""

from __future__ import annotations

import abc
import contextlib
import importlib
import weakref
from typing import Any, Callable, Dict, List, Optional, Tuple, TypeVar

import keras

from covey.elastic import (
    Errors,
    HostsUpdatedInterrupt,
    Kept,
    KeptState,
    ObjectState,
    State,
    retried,
)
from covey.elastic_job import came_later
from covey.errors import InvalidArgument
from covey.keras import names_here
from covey.keras.wrapped import WrappedOptimizer

__all__ = [
    "CommitStateCallback",
    "HostsUpdatedInterrupt",
    "KerasState",
    "ObjectState",
    "State",
    "UpdateBatchStateCallback",
    "UpdateEpochStateCallback",
    "run",
]

R = TypeVar("R")
Logs = Optional[Dict[str, Any]]


def run(func: Callable[..., R]) -> Callable[..., R]:
    """Makes of ``func(state, ...)`` a function that goes back to the last commit and calls it again
    when an operation has failed on all ranks; before each call it calls ``state.sync()``.

    Args:
        func: called with a state first; it commits the state now and then.

    Raises:
        Mismatch: also in place of TensorFlow's error: an operation has failed again without a
            commit between: it would for ever.
        Aborted: also in place of TensorFlow's error: a rank has gone, and no other takes its place.
            The state is that of the last commit.

    Example:
        >>> hvd.elastic.run(train)(state)
    """
    errors: Errors = contextlib.nullcontext
    if keras.backend.backend() == "tensorflow":
        errors = importlib.import_module("covey.tensorflow.failures").as_covey
    return retried(func, errors)


class _KeptVariables(Kept):
    """The variables of a model, or of an optimizer."""

    _saved: List[Tuple[Any, Any]]

    def save(self) -> None:
        self._saved = [(it, keras.ops.convert_to_numpy(it).copy()) for it in self._variables()]

    def restore(self) -> None:
        for variable, saved in self._saved:
            variable.assign(saved)

    def sync(self) -> None:
        names_here().broadcast_variables(self._shared(), 0)
        self.save()

    @abc.abstractmethod
    def _variables(self) -> List[Any]:
        """All that are kept."""

    @abc.abstractmethod
    def _shared(self) -> List[Any]:
        """The variables that are not each rank's own."""


class _KeptModel(_KeptVariables):
    def _variables(self) -> List[Any]:
        return list(self.value.weights)

    def _shared(self) -> List[Any]:
        optimizer = getattr(self.value, "optimizer", None)
        if not isinstance(optimizer, WrappedOptimizer):
            return self._variables()
        return [it for it in self.value.weights if not optimizer.is_local(it)]


class _KeptOptimizer(_KeptVariables):
    def _variables(self) -> List[Any]:
        return list(self.value.variables)

    def _shared(self) -> List[Any]:
        if not isinstance(self.value, WrappedOptimizer):
            return self._variables()
        return self.value.shared_variables()

    def restore(self) -> None:
        if isinstance(self.value, WrappedOptimizer):
            self.value.abandon()
        super().restore()

    def reset(self) -> None:
        """Work of the failed steps that is on its way between ranks changes the model first."""
        if isinstance(self.value, WrappedOptimizer):
            self.value.finish()


class KerasState(KeptState):
    """Keeps a model, its optimizer, and plain objects, each an attribute.

    All that the model saves is kept, the seeds of its layers are not. The state of a method beside
    model and optimizer, such as an outer momentum, goes on. Variables that are each rank's own, by
    ``register_local_var``, stay so.

    Args:
        model: a model that is built.
        optimizer: None: that of ``compile()``, if there is one.
        **kwargs: objects that can be copied and pickled.

    Attributes:
        model: the model.
        optimizer: the optimizer, or None.

    Raises:
        InvalidArgument: (a ValueError) the model has no variables yet.

    Example:
        >>> state = hvd.elastic.KerasState(model, batch=0, epoch=0)
    """

    def __init__(self, model: Any, optimizer: Any = None, **kwargs: Any) -> None:
        if not model.built:
            raise InvalidArgument("the model is not built: give its shape, or call build()")
        if optimizer is None:
            optimizer = getattr(model, "optimizer", None)
        parts: Dict[str, Kept] = {"model": _KeptModel(model)}
        self.optimizer = optimizer
        if optimizer is not None:
            if not optimizer.built:
                optimizer.build(model.trainable_variables)
            parts["optimizer"] = _KeptOptimizer(optimizer)
        super().__init__(parts, kwargs)

    def reset(self) -> None:
        super().reset()
        self.restore()  # ``finish()`` has changed the model.


class _StateCallback(keras.callbacks.Callback):
    """A callback with a state.

    Args:
        state: with the attributes that the callback changes.
    """

    def __init__(self, state: State) -> None:
        super().__init__()
        self.state = state


_updates: "weakref.WeakKeyDictionary[State, Dict[type, _Update]]" = weakref.WeakKeyDictionary()
"""By state those of the present ``fit()``: a commit has their numbers, whatever the order of the
list of callbacks, as Horovod's guide has the commit first."""


class _Update(_StateCallback):
    """A callback that counts."""

    def on_train_begin(self, logs: Logs = None) -> None:
        """A ``fit()`` begins."""
        _updates.setdefault(self.state, {})[type(self)] = self

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        """Counts; again for the same batch: no change."""

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        """Counts; again for the same epoch: no change."""


class CommitStateCallback(_StateCallback):
    """Commits after so many batches, and at the end of each epoch.

    Args:
        state: what is committed.
        batches_per_commit: 1 or more.

    Raises:
        InvalidArgument: (a ValueError) ``batches_per_commit`` is less than 1.

    Example:
        >>> model.fit(images, labels, callbacks=[hvd.elastic.CommitStateCallback(state, 100)])
    """

    def __init__(self, state: State, batches_per_commit: int = 1) -> None:
        super().__init__(state)
        if batches_per_commit < 1:
            raise InvalidArgument(f"batches_per_commit must be 1 or more, not {batches_per_commit}")
        self.batches_per_commit = batches_per_commit
        self._committed = 0  # Batches of the epoch, at the last commit.

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:
        """No batch of it was committed."""
        self._committed = 0

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        """Commits, if it is time."""
        if batch + 1 - self._committed < self.batches_per_commit:
            return
        self._committed = batch + 1
        for update in _updates.get(self.state, {}).values():
            update.on_train_batch_end(batch)
        self.state.commit()

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        """Commits."""
        for update in _updates.get(self.state, {}).values():
            update.on_epoch_end(epoch)
        self.state.commit()


class UpdateBatchStateCallback(_Update):
    """``state.batch`` is how many batches of the epoch are done; 0 between two epochs.

    When ``run`` has gone back, and on a rank that has come later, the first epoch is shorter by
    that number, if Keras knows how many steps an epoch has; one batch at least. It stands in the
    list before callbacks that end the training early.

    Args:
        state: has the attribute ``batch``.

    Raises:
        AttributeError: when ``fit()`` begins: it has not.

    Example:
        >>> callbacks = [hvd.elastic.UpdateBatchStateCallback(state)]
    """

    def __init__(self, state: Any) -> None:
        super().__init__(state)
        self._done = 0  # Batches of this epoch, before this ``fit()``.
        self._has_stopped = False

    def on_train_begin(self, logs: Logs = None) -> None:
        """A ``fit()`` begins, perhaps in the midst of an epoch."""
        super().on_train_begin(logs)
        state: Any = self.state
        goes_on = state._resets > 0 or came_later()
        self._done = state.batch if goes_on and self._steps() is not None else 0
        self._has_stopped = False

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        """Counts, and ends a shorter epoch."""
        state: Any = self.state
        state.batch = self._done + batch + 1
        steps = self._steps()
        if self._done > 0 and steps is not None and state.batch >= steps:
            self._has_stopped = self.model.stop_training = True

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        """The next epoch begins with 0, and has its whole length."""
        state: Any = self.state
        state.batch = self._done = 0
        if self._has_stopped:
            self._has_stopped = self.model.stop_training = False

    def _steps(self) -> Optional[int]:
        """The batches of a whole epoch; None: not known."""
        steps: Optional[int] = (self.params or {}).get("steps")
        return steps


class UpdateEpochStateCallback(_Update):
    """``state.epoch`` is how many epochs are done, whether ``fit()`` counts from ``initial_epoch=
    state.epoch`` or from 0.

    Args:
        state: has the attribute ``epoch``.

    Raises:
        AttributeError: when ``fit()`` begins: it has not.

    Example:
        >>> callbacks = [hvd.elastic.UpdateEpochStateCallback(state)]
    """

    def __init__(self, state: Any) -> None:
        super().__init__(state)
        self.initial_epoch = 0
        self._first: Optional[int] = None  # The number that fit() has for the first epoch.

    def on_train_begin(self, logs: Logs = None) -> None:
        """A ``fit()`` begins."""
        super().on_train_begin(logs)
        state: Any = self.state
        self.initial_epoch, self._first = state.epoch, None

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:
        """An epoch begins."""
        if self._first is None:
            self._first = epoch

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        """Counts."""
        state: Any = self.state
        state.epoch = self.initial_epoch + epoch - (self._first or 0) + 1
