"""Making the ranks start from the same state."""

from __future__ import annotations

from typing import Any, Iterable

import tensorflow as tf

from covey.group import Group, world
from covey.requests import BROADCAST, How
from covey.tensorflow import requests
from covey.tensorflow.ops import by_dtype


def broadcast_variables(
    variables: Iterable[Any],
    root_rank: int = 0,
    process_set: Group = world,
    inplace: bool = False,
) -> None:
    """Overwrites variables with those of rank ``root_rank``.

    Args:
        variables: tf or Keras variables, such as ``model.variables`` or ``optimizer.variables``;
            the same number, shapes and dtypes in the same order on every rank.
        root_rank: a global rank.
        process_set: the ranks that take part; this rank must be one of them.
        inplace: accepted for Horovod's sake.

    Raises:
        tf.errors.FailedPreconditionError: the ranks disagree on number, shapes or dtypes.
        tf.errors.AbortedError: a rank died or left.

    Example:
        >>> hvd.broadcast_variables(model.variables, root_rank=0)
    """
    del inplace
    listed = list(variables)
    if not listed:
        return
    how = How(BROADCAST, "broadcast_variables", root=root_rank)
    values = [tf.convert_to_tensor(variable) for variable in listed]
    results = by_dtype(requests.broadcast, how, values, "all", process_set)
    for variable, result in zip(listed, results):
        variable.assign(result)
