"""Covey for Keras 3 on TensorFlow, by the names of Horovod's ``horovod.tensorflow.keras``.

A program written for Horovod changes one line::

    import covey.tensorflow.keras as hvd

    hvd.init()
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.1 * hvd.size()))
    model.compile(optimizer, "mse")
    model.fit(images, labels, callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0)])

``coveyrun --method`` chooses the method, or ``DistributedOptimizer(..., method="eager")``.
"""

from __future__ import annotations

from typing import Any, List

from ... import horovod  # Relative: pyright knows its __all__ so.
from covey.horovod import *  # noqa: F401,F403  # The same under every framework.
from covey.keras.checkpoint import load, save
from covey.keras.mean_model import consensus
from covey.keras.models import load_model
from covey.keras.partial_optimizer import PartialDistributedOptimizer
from covey.ops import absent
from covey.tensorflow import (
    Compression,
    DistributedGradientTape,
    allgather_object,
    alltoall,
    barrier,
    broadcast_,
    broadcast_object,
    broadcast_object_fn,
    broadcast_variables,
    gather,
    grouped_allgather,
    grouped_allreduce,
    grouped_reducescatter,
    join,
    neighbor_allreduce,
    pair_average,
    place_ops,
)
from covey.tensorflow.keras import callbacks, elastic
from covey.tensorflow.keras.functions import (
    allgather,
    allreduce,
    broadcast,
    broadcast_global_variables,
    reducescatter,
)
from covey.tensorflow.optimizer import DistributedOptimizer
from covey.tensorflow.partial_tape import PartialDistributedGradientTape
from covey.tensorflow.place_ops import *  # noqa: F401,F403
from covey.tensorflow.sync_batch_norm import SyncBatchNormalization

__all__ = [
    "Compression",
    "DistributedGradientTape",
    "DistributedOptimizer",
    "PartialDistributedGradientTape",
    "PartialDistributedOptimizer",
    "SyncBatchNormalization",
    "allgather",
    "allgather_object",
    "allreduce",
    "alltoall",
    "barrier",
    "broadcast",
    "broadcast_",
    "broadcast_global_variables",
    "broadcast_object",
    "broadcast_object_fn",
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
__all__ += place_ops.__all__


def __getattr__(name: str) -> Any:
    raise absent(__name__, name)


def __dir__() -> List[str]:
    """The public names."""
    return sorted(__all__)
