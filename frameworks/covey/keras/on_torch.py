"""The names of :mod:`covey.keras` where Keras runs on torch; TensorFlow is not imported."""

from __future__ import annotations

from typing import Any, Iterable, List, Optional, Type

import keras

from .. import horovod  # Relative: pyright knows its __all__ so.
from covey.collectives import barrier, join
from covey.group import Group, world
from covey.horovod import *  # noqa: F401,F403  # The same under every framework.
from covey.keras import callbacks, elastic
from covey.keras.checkpoint import load, save
from covey.keras.mean_model import consensus
from covey.keras.models import load_model
from covey.keras.partial_optimizer import PartialDistributedOptimizer
from covey.keras.torch_optimizer import DistributedOptimizer
from covey.local_variables import plain
from covey.ops import absent
from covey.torch import (
    Compression,
    allgather_object,
    alltoall,
    broadcast_object,
    broadcast_parameters,
    gather,
    grouped_allgather,
    grouped_allreduce,
    grouped_reducescatter,
    neighbor_allreduce,
    ops,
    pair_average,
)
from covey.torch.compression import Compressor

__all__ = [
    "Compression",
    "DistributedOptimizer",
    "PartialDistributedOptimizer",
    "allgather",
    "allgather_object",
    "allreduce",
    "alltoall",
    "barrier",
    "broadcast",
    "broadcast_object",
    "broadcast_variables",
    "callbacks",
    "consensus",
    "elastic",
    "gather",
    "grouped_allgather",
    "grouped_allreduce",
    "grouped_reducescatter",
    "join",
    "load",
    "load_model",
    "neighbor_allreduce",
    "pair_average",
    "reducescatter",
    "save",
]
__all__ += horovod.__all__

_OF_TENSORFLOW = (
    "DistributedGradientTape",
    "PartialDistributedGradientTape",
    "SyncBatchNormalization",
    "broadcast_",
    "broadcast_global_variables",
    "broadcast_object_fn",
    "local_rank_op",
    "local_size_op",
    "process_set_included_op",
    "rank_op",
    "size_op",
)


def __getattr__(name: str) -> Any:
    if name in _OF_TENSORFLOW:
        raise AttributeError(
            f"covey.keras.{name} needs KERAS_BACKEND=tensorflow: Keras runs on torch here"
        )
    raise absent(__name__, name)


def __dir__() -> List[str]:
    """The public names."""
    return sorted(__all__)


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
    dtype. Raises as :func:`covey.torch.allreduce`."""
    factors = {"prescale_factor": prescale_factor, "postscale_factor": postscale_factor}
    return ops.allreduce(_tensor(value), average, name, compression, op, **factors)


def allgather(value: Any, name: Optional[str] = None) -> Any:
    """The tensors of all ranks, one after the other on dimension 0, which may differ."""
    return ops.allgather(_tensor(value), name)


def broadcast(value: Any, root_rank: int, name: Optional[str] = None) -> Any:
    """The tensor of rank ``root_rank``."""
    return ops.broadcast(_tensor(value), root_rank, name)


def reducescatter(value: Any, name: Optional[str] = None, op: int = Average) -> Any:
    """This rank's rows of ``op`` over all ranks. See :func:`covey.torch.reducescatter`."""
    return ops.reducescatter(_tensor(value), op=op, name=name)


def broadcast_variables(
    variables: Iterable[Any], root_rank: int, process_set: Group = world
) -> None:
    """Overwrites variables with those of rank ``root_rank``.

    Args:
        variables: Keras variables, such as ``model.variables`` or ``optimizer.variables``; the same
            number, shapes and dtypes in the same order on every rank.
        root_rank: a global rank.
        process_set: the ranks that take part; this rank must be one of them.

    Raises:
        Mismatch, Aborted: (CoveyErrors) the ranks disagree; a rank died or left.

    Example:
        >>> hvd.broadcast_variables(model.variables, root_rank=0)
    """
    named = [(f"variables.{i}", plain(it).detach()) for i, it in enumerate(variables)]
    broadcast_parameters(named, root_rank, process_set)


def _tensor(value: Any) -> Any:
    return keras.ops.convert_to_tensor(value)
