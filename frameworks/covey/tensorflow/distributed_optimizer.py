"""DistributedOptimizer with the arguments in Horovod's order, for optimizers of Keras and of
TensorFlow 1."""

from __future__ import annotations

from typing import Any, Optional, Type

import tensorflow as tf

from covey.group import Group, world
from covey.reduce_op import Average
from covey.tensorflow import optimizer as of_keras
from covey.tensorflow.compression import Compression, Compressor
from covey.tensorflow.graph_optimizer import GraphOptimizer


def DistributedOptimizer(  # pylint: disable=invalid-name  # Horovod's.
    optimizer: Any,
    name: Optional[str] = None,
    use_locking: bool = False,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Type[Compressor] = Compression.none,
    sparse_as_dense: bool = False,
    backward_passes_per_step: int = 1,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    average_aggregated_gradients: bool = False,
    num_groups: int = 0,
    groups: Any = None,
    process_set: Group = world,
    scale_local_gradients: bool = True,
    *,
    method: Optional[str] = None,
    **settings: object,
) -> Any:
    """Wraps an optimizer, so that all ranks train together.

    Args:
        optimizer: one of Keras 3, or its name: it becomes a
            :class:`covey.tensorflow.keras.DistributedOptimizer`. Or a
            ``tf.compat.v1.train.Optimizer``, whose gradients are then averaged by an allreduce, as
            a :class:`covey.tensorflow.graph_optimizer.GraphOptimizer`.
        use_locking, device_dense, device_sparse: accepted for Horovod's sake.
        method, settings: for an optimizer of Keras only.
        Others: as these two.

    Raises:
        InvalidArgument, Unsupported: (ValueErrors) an option is wrong, or does not go with this
            optimizer or method; the message says which.

    Example:
        >>> optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.1), method="eager")
        >>> model.compile(optimizer, "mse")
    """
    options = {
        "name": name,
        "use_locking": use_locking,
        "compression": compression,
        "sparse_as_dense": sparse_as_dense,
        "backward_passes_per_step": backward_passes_per_step,
        "op": op,
        "gradient_predivide_factor": gradient_predivide_factor,
        "num_groups": num_groups,
        "groups": groups,
        "process_set": process_set,
        "scale_local_gradients": scale_local_gradients,
    }
    del device_dense, device_sparse
    if isinstance(optimizer, tf.compat.v1.train.Optimizer):
        return GraphOptimizer(optimizer, method=method, **options, **settings)
    return of_keras.DistributedOptimizer(
        optimizer,
        average_aggregated_gradients=average_aggregated_gradients,
        method=method,
        **options,
        **settings,
    )
