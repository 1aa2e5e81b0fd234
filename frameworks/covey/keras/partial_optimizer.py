"""PartialDistributedOptimizer: a DistributedOptimizer that leaves some layers to each rank."""

from __future__ import annotations

from typing import Any, Optional

from covey.group import Group, world
from covey.keras import names_here
from covey.keras.wrapped import WrappedOptimizer
from covey.local_variables import trainable_of
from covey.reduce_op import Average


def PartialDistributedOptimizer(  # pylint: disable=invalid-name  # Horovod's.
    optimizer: Any,
    name: Optional[str] = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = None,
    sparse_as_dense: bool = False,
    gradient_predivide_factor: float = 1.0,
    op: int = Average,
    groups: Any = None,
    process_set: Group = world,
    local_layers: Any = None,
    scale_local_gradients: bool = True,
    **settings: Any,
) -> WrappedOptimizer:
    """A :class:`DistributedOptimizer` whose ``local_layers`` are each rank's own: their variables
    and gradients are not exchanged, and updates of them are by this rank's gradients.

    Args:
        compression: as :class:`DistributedOptimizer`; None: ``Compression.none``.
        local_layers: a Keras layer or several, which have their variables; None: no layer.
        scale_local_gradients: divides their gradients by the size of the process set, so that
            those of a mean loss have the scale of the others.
        settings: as :class:`DistributedOptimizer`: ``method`` for example.
        Others: as :class:`DistributedOptimizer`.

    Raises:
        InvalidArgument: (a ValueError) something in ``local_layers`` is no layer.
        Unsupported: (a ValueError) there are local layers, and the method does not do an update for
            each step: see :meth:`DistributedOptimizer.register_local_var`.
        Others: as :class:`DistributedOptimizer`.

    Example:
        >>> optimizer = hvd.PartialDistributedOptimizer("adam", local_layers=model.layers[0])
    """
    local = trainable_of(local_layers)
    if compression is not None:
        settings["compression"] = compression
    made: WrappedOptimizer = names_here().DistributedOptimizer(
        optimizer,
        name,
        device_dense,
        device_sparse,
        sparse_as_dense=sparse_as_dense,
        gradient_predivide_factor=gradient_predivide_factor,
        op=op,
        groups=groups,
        process_set=process_set,
        scale_local_gradients=scale_local_gradients,
        **settings,
    )
    for variable in local:
        made.register_local_var(variable)
    return made
