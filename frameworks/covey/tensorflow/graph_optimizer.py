"""Optimizers of TensorFlow 1 whose gradients are those of all ranks."""

from __future__ import annotations

from typing import Any, List, Optional, Type

import tensorflow as tf

from covey.arguments import truth_of
from covey.errors import Unsupported
from covey.group import Group, world
from covey.local_variables import VariableSet
from covey.method import unused
from covey.reduce_op import Adasum, Average
from covey.tensorflow.compression import Compression, Compressor
from covey.tensorflow.reduction import Reduction, scaled


class GraphOptimizer(tf.compat.v1.train.Optimizer):
    """Wraps a ``tf.compat.v1.train.Optimizer``: ``compute_gradients()`` gives gradients reduced
    over the ranks, so ``minimize()`` and ``apply_gradients()`` train all ranks by an allreduce.

    Slots and variables are the wrapped one's. On a rank that is not in ``process_set`` gradients
    stay its own.

    Args:
        optimizer: the one that is wrapped.
        name: of the optimizer; None: "Distributed" and the class of ``optimizer``.
        use_locking: accepted for Horovod's sake.
        compression, sparse_as_dense, op, gradient_predivide_factor, num_groups, groups,
            process_set: as :class:`covey.tensorflow.DistributedGradientTape`, without op=Adasum.
        backward_passes_per_step: 1.
        scale_local_gradients: divides the gradients of local variables by the size of
            ``process_set``.
        method, settings: none: there are no methods but allreduce here.

    Raises:
        InvalidArgument, Unsupported: (ValueErrors) an option is wrong, or is not there.

    Example:
        >>> optimizer = hvd.DistributedOptimizer(tf.compat.v1.train.GradientDescentOptimizer(0.1))
        >>> step = optimizer.minimize(loss)
    """

    def __init__(
        self,
        optimizer: Any,
        name: Optional[str] = None,
        use_locking: bool = False,
        compression: Type[Compressor] = Compression.none,
        sparse_as_dense: bool = False,
        backward_passes_per_step: int = 1,
        op: int = Average,
        gradient_predivide_factor: float = 1.0,
        num_groups: int = 0,
        groups: Any = None,
        process_set: Group = world,
        scale_local_gradients: bool = True,
        method: Optional[str] = None,
        **settings: object,
    ) -> None:
        kind = type(optimizer).__name__
        super().__init__(use_locking, name or f"Distributed{kind}")
        if method is not None or settings:
            raise Unsupported(
                f"{kind} is an optimizer of TensorFlow 1, which has no methods but allreduce: use "
                f"one of keras.optimizers, or leave out {', '.join(['method', *settings])}"
            )
        if backward_passes_per_step != 1:
            raise Unsupported(
                f"{kind} is an optimizer of TensorFlow 1: backward_passes_per_step must be 1; "
                "keras.optimizers have it"
            )
        if op == Adasum:
            raise Unsupported(
                f"{kind} is an optimizer of TensorFlow 1: op=Adasum needs one of keras.optimizers"
            )
        self._optimizer = optimizer
        self._reduction = Reduction(
            compression, sparse_as_dense, op, gradient_predivide_factor, num_groups, groups,
            process_set,
        )  # fmt: skip
        self._local = VariableSet()
        scales = truth_of("scale_local_gradients", scale_local_gradients)
        self._local_scale = 1 / process_set.size() if scales else 1.0
        unused("DistributedOptimizer")

    def register_local_var(self, var: Any) -> None:
        """From now on the gradient of the variable ``var`` is this rank's own."""
        self._local.add(var)

    def compute_gradients(self, *args: Any, **options: Any) -> List[Any]:
        """As the wrapped one's, reduced over the ranks."""
        pairs = self._optimizer.compute_gradients(*args, **options)
        shared = [(grad, it) for grad, it in pairs if it not in self._local]
        reduced = iter(self._reduction.of([grad for grad, _ in shared], [it for _, it in shared]))
        return [
            (scaled(grad, self._local_scale) if it in self._local else next(reduced), it)
            for grad, it in pairs
        ]

    def apply_gradients(self, *args: Any, **options: Any) -> Any:
        """As the wrapped one's."""
        return self._optimizer.apply_gradients(*args, **options)

    def get_slot(self, *args: Any, **options: Any) -> Any:
        """As the wrapped one's."""
        return self._optimizer.get_slot(*args, **options)

    def get_slot_names(self, *args: Any, **options: Any) -> Any:
        """As the wrapped one's."""
        return self._optimizer.get_slot_names(*args, **options)

    def variables(self, *args: Any, **options: Any) -> Any:
        """As the wrapped one's."""
        return self._optimizer.variables(*args, **options)
