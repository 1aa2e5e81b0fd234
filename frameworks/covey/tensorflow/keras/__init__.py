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

from covey import horovod
from covey.horovod import *  # noqa: F401,F403  # The same under every framework.
from covey.keras.models import load_model
from covey.ops import absent
from covey.tensorflow import (
    Adasum,
    Average,
    Compression,
    Max,
    Min,
    Product,
    Sum,
    allgather_object,
    barrier,
    broadcast_object,
    broadcast_variables,
    cross_rank,
    cross_size,
    init,
    is_homogeneous,
    is_initialized,
    join,
    local_rank,
    local_size,
    rank,
    shutdown,
    size,
    start_timeline,
    stop_timeline,
)
from covey.tensorflow.keras import callbacks
from covey.tensorflow.keras.functions import (
    allgather,
    allreduce,
    broadcast,
    reducescatter,
)
from covey.tensorflow.optimizer import DistributedOptimizer

__all__ = [
    "Adasum",
    "Average",
    "Compression",
    "DistributedOptimizer",
    "Max",
    "Min",
    "Product",
    "Sum",
    "allgather",
    "allgather_object",
    "allreduce",
    "barrier",
    "broadcast",
    "broadcast_object",
    "broadcast_variables",
    "callbacks",
    "cross_rank",
    "cross_size",
    "init",
    "is_homogeneous",
    "is_initialized",
    "join",
    "load_model",
    "local_rank",
    "local_size",
    "rank",
    "reducescatter",
    "shutdown",
    "size",
    "start_timeline",
    "stop_timeline",
] + horovod.__all__

_NOT_YET = ("PartialDistributedOptimizer", "broadcast_global_variables", "elastic")


def __getattr__(name: str) -> Any:
    raise absent(__name__, name, *_NOT_YET)


def __dir__() -> List[str]:
    """The public names."""
    return sorted(__all__)
