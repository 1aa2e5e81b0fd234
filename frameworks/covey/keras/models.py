"""Loading a saved model, with a distributed optimizer."""

from __future__ import annotations

from typing import Any, Dict, Iterable, Optional

import keras

from covey.errors import InvalidArgument
from covey.keras import names_here
from covey.keras.wrapped import WrappedOptimizer
from covey.reduce_op import ReduceOp

_KEPT = ("op", "backward_passes_per_step", "average_aggregated_gradients", "scale_local_gradients")


def load_model(
    filepath: str,
    custom_optimizers: Optional[Iterable[type]] = None,
    custom_objects: Optional[Dict[str, Any]] = None,
    compression: Any = None,
    legacy_opts: bool = False,
    **options: Any,
) -> Any:
    """A saved model, whose optimizer is a ``DistributedOptimizer``, also if it was saved with
    another one.

    Args:
        filepath: a file that ``model.save()`` has written.
        custom_optimizers: classes of optimizers that Keras does not have.
        custom_objects: as for ``keras.models.load_model``.
        compression, options: of ``DistributedOptimizer``, ``method`` for example. Options that
            are not given are as the model was saved, but for the method and
            ``gradient_predivide_factor``.
        legacy_opts: False: Keras 3 has none.

    Raises:
        InvalidArgument: (a ValueError) the model was not compiled, or ``legacy_opts``.
        Others: as ``keras.models.load_model`` and ``DistributedOptimizer``.

    Example:
        >>> model = hvd.load_model("model.keras", method="eager")
    """
    if legacy_opts:
        raise InvalidArgument("legacy_opts: Keras 3 has no legacy optimizers")
    known = {kind.__name__: kind for kind in custom_optimizers or ()}
    known.update(custom_objects or {})
    model = keras.models.load_model(filepath, custom_objects=known)
    optimizer = getattr(model, "optimizer", None)
    if optimizer is None:
        raise InvalidArgument(f"the model in {filepath} has no optimizer: it was not compiled")
    if isinstance(optimizer, WrappedOptimizer):
        saved = optimizer.get_config()
        options = {**{name: saved[name] for name in _KEPT}, **options}
        options["op"] = ReduceOp(options["op"])
        optimizer = optimizer.inner_optimizer
    if compression is not None:
        options["compression"] = compression
    wrapped = names_here().DistributedOptimizer(optimizer, **options)
    wrapped.build(model.trainable_variables)
    model.optimizer = wrapped
    return model
