"""Functions with the arguments that Horovod's Keras modules give them. See covey.tensorflow.ops."""

from __future__ import annotations

from typing import Any, Optional, Type

import tensorflow as tf

from covey.reduce_op import Average
from covey.tensorflow import functions, ops
from covey.tensorflow.compression import Compression, Compressor


def allreduce(
    value: Any,
    name: Optional[str] = None,
    average: Optional[bool] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    op: Optional[int] = None,
    compression: Type[Compressor] = Compression.none,
) -> Any:
    """``op`` over all ranks of a value.

    Args:
        value: a tensor, an array or a number; the same shape and dtype on every rank.
        name: the same name on every rank finds together: see covey.tensorflow.ops.
        average: deprecated, use ``op``.
        prescale_factor, postscale_factor: not 0; before and after ``op``.
        op: Average (when None), Sum, Min, Max or Product.
        compression: ``Compression.none``, ``.fp16`` or ``.bf16``.

    Returns:
        A tensor of the same shape and dtype.

    Raises:
        As :func:`covey.tensorflow.allreduce`.

    Example:
        >>> accuracy = float(hvd.allreduce(accuracy, name="accuracy"))
    """
    factors = {"prescale_factor": prescale_factor, "postscale_factor": postscale_factor}
    return ops.allreduce(value, average, op=op, name=name, compression=compression, **factors)


def allgather(value: Any, name: Optional[str] = None) -> Any:
    """The values of all ranks, one after the other on dimension 0.

    Args:
        value: at least one dimension; the first may differ between the ranks, the others and the
            dtype may not.
        name: as :func:`allreduce`.

    Raises:
        As :func:`covey.tensorflow.allgather`.

    Example:
        >>> predictions = hvd.allgather(model.predict(images))
    """
    return ops.allgather(value, name)


def broadcast(value: Any, root_rank: int, name: Optional[str] = None) -> Any:
    """The value of rank ``root_rank``.

    Args:
        value: the same shape and dtype on every rank.
        root_rank: a global rank.
        name: as :func:`allreduce`.

    Raises:
        As :func:`covey.tensorflow.broadcast`.

    Example:
        >>> seed = int(hvd.broadcast(seed, root_rank=0))
    """
    return ops.broadcast(value, root_rank, name)


def broadcast_global_variables(root_rank: int) -> Any:
    """As :func:`covey.tensorflow.broadcast_global_variables`: for graphs of TensorFlow 1.

    Raises:
        RuntimeError: called eagerly, as Keras 3 runs: there is no collection of all variables.
    """
    if tf.executing_eagerly():
        raise RuntimeError(
            "broadcast_global_variables needs a graph of TensorFlow 1, and Keras 3 makes none: use "
            "callbacks.BroadcastGlobalVariablesCallback(root_rank) in fit(), or "
            "broadcast_variables(model.variables, root_rank)"
        )
    return functions.broadcast_global_variables(root_rank)


def reducescatter(value: Any, name: Optional[str] = None, op: int = Average) -> Any:
    """This rank's rows of ``op`` over all ranks.

    Args:
        value: at least one dimension; the same shape and dtype on every rank.
        name: as :func:`allreduce`.
        op: Average, Sum, Min, Max or Product.

    Returns:
        A tensor: dimension 0 is divided in rank order as evenly as possible, the first ranks get
        one row more.

    Raises:
        As :func:`covey.tensorflow.reducescatter`.

    Example:
        >>> mine = hvd.reducescatter(sums, op=hvd.Sum)
    """
    return ops.reducescatter(value, op=op, name=name)
