"""PartialDistributedGradientTape: a DistributedGradientTape that leaves some layers alone."""

from __future__ import annotations

from typing import Iterable, Optional, Type, Union

import keras
import tensorflow as tf

from covey.group import Group, world
from covey.local_variables import trainable_of
from covey.reduce_op import Average
from covey.tensorflow.compression import Compression, Compressor
from covey.tensorflow.tape import DistributedGradientTape


def PartialDistributedGradientTape(  # pylint: disable=invalid-name  # Horovod's.
    gradtape: tf.GradientTape,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Type[Compressor] = Compression.none,
    sparse_as_dense: bool = False,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: Optional[int] = None,
    process_set: Group = world,
    local_layers: Union[keras.layers.Layer, Iterable[keras.layers.Layer], None] = None,
    scale_local_gradients: bool = True,
) -> DistributedGradientTape:
    """A :class:`DistributedGradientTape` whose ``local_layers`` are this rank's own: their
    gradients are not reduced.

    Args:
        local_layers: a Keras layer or several, which have their variables; None: no layer.
        scale_local_gradients: divides their gradients by the size of the process set, so that
            those of a mean loss have the scale of the others.
        Others: as :class:`DistributedGradientTape`.

    Raises:
        InvalidArgument: (a ValueError) something in ``local_layers`` is no layer.
        Others: as :class:`DistributedGradientTape`.

    Example:
        >>> tape = hvd.PartialDistributedGradientTape(tape, local_layers=model.layers[0])
    """
    local = trainable_of(local_layers)
    made = DistributedGradientTape(
        gradtape,
        device_dense,
        device_sparse,
        compression,
        sparse_as_dense,
        op,
        gradient_predivide_factor,
        num_groups,
        groups,
        process_set,
        scale_local_gradients,
    )
    for variable in local:
        made.register_local_source(variable)
    return made
