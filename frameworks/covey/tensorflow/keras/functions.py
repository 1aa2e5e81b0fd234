"""Functions with the arguments that Horovod's Keras modules give them. See covey.tensorflow.ops."""

from __future__ import annotations

from typing import Any, Optional, Type

from covey.reduce_op import Average
from covey.tensorflow import ops
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
    """``op`` (Average when None) of a tensor or number over all ranks: a tensor of its shape and
    dtype. Raises as :func:`covey.tensorflow.allreduce`."""
    factors = {"prescale_factor": prescale_factor, "postscale_factor": postscale_factor}
    return ops.allreduce(value, average, op=op, name=name, compression=compression, **factors)


def allgather(value: Any, name: Optional[str] = None) -> Any:
    """The tensors of all ranks, one after the other on dimension 0, which may differ."""
    return ops.allgather(value, name)


def broadcast(value: Any, root_rank: int, name: Optional[str] = None) -> Any:
    """The tensor of rank ``root_rank``."""
    return ops.broadcast(value, root_rank, name)


def reducescatter(value: Any, name: Optional[str] = None, op: int = Average) -> Any:
    """This rank's rows of ``op`` over all ranks. See :func:`covey.tensorflow.reducescatter`."""
    return ops.reducescatter(value, op=op, name=name)
