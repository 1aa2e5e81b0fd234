"""Making the ranks start from the same state, and moving objects, by Horovod's names."""

from __future__ import annotations

from typing import Any, Callable, Iterable, List, Optional

import tensorflow as tf

from covey import objects
from covey.arguments import many_of, whole_of
from covey.group import Group, world
from covey.requests import BROADCAST, How
from covey.tensorflow import requests
from covey.tensorflow.requests import by_dtype


def broadcast_variables(
    variables: Iterable[Any],
    root_rank: int = 0,
    process_set: Group = world,
    inplace: bool = False,
) -> Any:
    """Overwrites variables with those of rank ``root_rank``.

    Args:
        variables: tf or Keras variables, such as ``model.variables`` or ``optimizer.variables``;
            the same number, shapes and dtypes in the same order on every rank.
        root_rank: a global rank.
        process_set: the ranks that take part; this rank must be one of them.
        inplace: accepted for Horovod's sake.

    Returns:
        None; in a graph an operation that is done when all are overwritten, for a session.

    Raises:
        tf.errors.FailedPreconditionError: the ranks disagree on number, shapes or dtypes.
        tf.errors.AbortedError: a rank died or left.

    Example:
        >>> hvd.broadcast_variables(model.variables, root_rank=0)
    """
    del inplace
    how = How(BROADCAST, "broadcast_variables", root=whole_of("root_rank", root_rank))
    assigned = _overwrite(how, list(many_of(variables, "variables")), "all", process_set)
    return None if tf.executing_eagerly() else tf.group(*assigned)


def _overwrite(how: How, variables: List[Any], name: Optional[str], group: Group) -> List[Any]:
    if not variables:
        return []
    values = [tf.convert_to_tensor(variable) for variable in variables]
    results = by_dtype(requests.broadcast, how, values, name, group)
    return [variable.assign(result) for variable, result in zip(variables, results)]


def broadcast_(
    variables: Iterable[Any],
    root_rank: int,
    name: Optional[str] = None,
    process_set: Group = world,
) -> List[Any]:
    """As :func:`broadcast_variables` with a name; returns the variables.

    Args:
        variables, root_rank, process_set: as :func:`broadcast_variables`.
        name: as :func:`broadcast`.

    Returns:
        The list of variables; in a graph that of their new values.

    Example:
        >>> (weights,) = hvd.broadcast_([weights], root_rank=0, name="weights")
    """
    listed = list(many_of(variables, "variables"))
    how = How(BROADCAST, "broadcast_", root=whole_of("root_rank", root_rank))
    assigned = _overwrite(how, listed, name, process_set)
    return listed if tf.executing_eagerly() else assigned


def broadcast_global_variables(root_rank: int) -> Any:
    """As :func:`broadcast_variables` for all variables of a graph of TensorFlow 1.

    Raises:
        RuntimeError: called eagerly, where no such collection exists.

    Example:
        >>> session.run(hvd.broadcast_global_variables(0))
    """
    if tf.executing_eagerly():
        raise RuntimeError(
            "broadcast_global_variables needs a graph; eagerly use "
            "broadcast_variables(model.variables)"
        )
    return broadcast_variables(tf.compat.v1.global_variables(), root_rank)


def broadcast_object(
    obj: Any = None,
    root_rank: int = 0,
    session: Any = None,
    name: Optional[str] = None,
    process_set: Group = world,
) -> Any:
    """The object of rank ``root_rank``.

    Args:
        obj: on that rank anything that can be pickled; on the others it is not looked at.
        root_rank: a global rank.
        session: accepted for Horovod's sake.
        name, process_set: see covey.tensorflow.ops.

    Returns:
        The object itself on ``root_rank``, on the others a copy.

    Raises:
        As :func:`covey.broadcast_object`.

    Example:
        >>> config = hvd.broadcast_object(config, root_rank=0)
    """
    del session
    return objects.broadcast_object(obj, root_rank, name, process_set)


def broadcast_object_fn(
    root_rank: int = 0,
    session: Any = None,
    name: Optional[str] = None,
    process_set: Group = world,
) -> Callable[[Any], Any]:
    """A function of an object that does :func:`broadcast_object` with these arguments.

    Example:
        >>> from_root = hvd.broadcast_object_fn(root_rank=0)
        >>> config = from_root(config)
    """
    del session

    def broadcast_of(obj: Any = None) -> Any:
        return objects.broadcast_object(obj, root_rank, name, process_set)

    return broadcast_of


def allgather_object(
    obj: Any, session: Any = None, name: Optional[str] = None, process_set: Group = world
) -> List[Any]:
    """The objects of all ranks, a list in rank order.

    Args:
        obj: anything that can be pickled.
        session: accepted for Horovod's sake.
        name, process_set: see covey.tensorflow.ops.

    Raises:
        As :func:`covey.allgather_object`.

    Example:
        >>> names = hvd.allgather_object(socket.gethostname())
    """
    del session
    return objects.allgather_object(obj, name, process_set)
