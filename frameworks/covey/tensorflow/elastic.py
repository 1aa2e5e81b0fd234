"""The states of ``covey.elastic`` for TensorFlow; those of fit(): :mod:`covey.keras.elastic`."""

from __future__ import annotations

from typing import Any, Callable, Iterable, List, Optional, TypeVar

import tensorflow as tf

from covey.elastic import HostsUpdatedInterrupt, Kept, KeptState, ObjectState, State, retried
from covey.errors import InvalidArgument
from covey.keras.elastic import KerasState
from covey.tensorflow.failures import as_covey
from covey.tensorflow.functions import broadcast_variables

__all__ = [
    "HostsUpdatedInterrupt",
    "ObjectState",
    "State",
    "TensorFlowKerasState",
    "TensorFlowState",
    "run",
]

R = TypeVar("R")


def run(func: Callable[..., R]) -> Callable[..., R]:
    """Makes of ``func(state, ...)`` a function that goes back to the last commit and calls it again
    when an operation has failed on all ranks; before each call it calls ``state.sync()``.

    Args:
        func: called with a state first; it commits the state now and then.

    Raises:
        Mismatch: in place of TensorFlow's error: an operation has failed again without a commit
            between: it would for ever.
        Aborted: in place of TensorFlow's error: a rank has gone, and no other takes its place. The
            state is that of the last commit.

    Example:
        >>> hvd.elastic.run(train)(state)
    """
    return retried(func, as_covey)


class _KeptVariables(Kept):
    """Variables of a graph, with its session, or others."""

    def __init__(self, variables: List[Any], session: Any) -> None:
        self._session = session
        self._from_root: Any = None
        if session is not None:
            with session.graph.as_default():
                self._from_root = broadcast_variables(variables, root_rank=0)
        super().__init__(variables)

    def save(self) -> None:
        if self._session is not None:
            self._saved = self._session.run(self.value)
        else:
            self._saved = [variable.numpy().copy() for variable in self.value]

    def restore(self) -> None:
        for variable, saved in zip(self.value, self._saved):
            if self._session is not None:
                variable.load(saved, self._session)
            else:
                variable.assign(saved)

    def sync(self) -> None:
        if self._session is not None:
            self._session.run(self._from_root)
        else:
            broadcast_variables(self.value, root_rank=0)
        self.save()


class TensorFlowState(KeptState):
    """Keeps variables, and plain objects, each an attribute.

    Args:
        variables: tf.Variables, in the same order on every rank; None: all of the session's graph.
        session: of a graph of TensorFlow 1, whose variables have values; None: the default session
            of such a graph. Without graphs there is none.
        **kwargs: objects that can be copied and pickled.

    Attributes:
        variables: the list.
        session: None: there is none.

    Raises:
        InvalidArgument: (a ValueError) there are no variables.

    Example:
        >>> state = hvd.elastic.TensorFlowState([weights, bias], batch=0)
    """

    def __init__(
        self, variables: Optional[Iterable[Any]] = None, session: Any = None, **kwargs: Any
    ) -> None:
        self.session = session
        if session is None and not tf.executing_eagerly():
            self.session = tf.compat.v1.get_default_session()
        if variables is None and self.session is not None:
            with self.session.graph.as_default():
                variables = tf.compat.v1.global_variables()
        listed = list(variables or ())
        if not listed:
            raise InvalidArgument("TensorFlowState needs variables: model.variables, for example")
        super().__init__({"variables": _KeptVariables(listed, self.session)}, kwargs)


class TensorFlowKerasState(KerasState):
    """Keeps a model of Keras, its optimizer, and plain objects, each an attribute.

    Args:
        model, optimizer, kwargs: as :class:`covey.keras.elastic.KerasState`.
        backend: accepted for Horovod's sake.

    Raises:
        InvalidArgument: (a ValueError) the model has no variables yet.

    Example:
        >>> state = hvd.elastic.TensorFlowKerasState(model, optimizer, batch=0)
    """

    def __init__(
        self, model: Any, optimizer: Any = None, backend: Any = None, **kwargs: Any
    ) -> None:
        del backend
        super().__init__(model, optimizer, **kwargs)
