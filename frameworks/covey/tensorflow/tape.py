"""DistributedGradientTape: a tf.GradientTape whose gradients are those of all ranks."""

from __future__ import annotations

from typing import Any, List, Tuple, Type

import tensorflow as tf

from covey.arguments import truth_of
from covey.group import Group, world
from covey.local_variables import VariableSet
from covey.method import unused
from covey.reduce_op import Average
from covey.tensorflow.compression import Compression, Compressor
from covey.tensorflow.reduction import Reduction, scaled


class DistributedGradientTape:
    """Wraps a ``tf.GradientTape``: ``gradient()`` returns gradients reduced over the ranks.

    Everything else is the wrapped tape's. Gradients travel in buckets (1 MiB, then 8 MiB) in
    reverse order of the sources; in a ``tf.function`` a bucket leaves while backward goes on. Every
    rank must get gradients for the same sources.

    Args:
        gradtape: the tape.
        device_dense, device_sparse: accepted for Horovod's sake.
        compression: ``Compression.none``, ``.fp16`` or ``.bf16``.
        sparse_as_dense: makes ``tf.IndexedSlices`` dense; else their rows are gathered.
        op: Average, Sum or Adasum, each gradient by itself; by Adasum ``tf.IndexedSlices`` need
            ``sparse_as_dense``.
        gradient_predivide_factor: with Average: divides before the sum by this, after it by the
            size over this.
        num_groups: how many buckets; 0: by size.
        groups: None, or a number as ``num_groups``; or lists of variables: the gradients of a list
            travel together, and each one that is in no list alone.
        process_set: the ranks that take part. On other ranks gradients stay their own.
        scale_local_gradients: divides gradients of local sources by the size of ``process_set``.

    Raises:
        InvalidArgument, Unsupported: (ValueErrors) an option is wrong or not there yet.

    Example:
        >>> with tf.GradientTape() as tape:
        ...     loss = loss_of(model(images), labels)
        >>> tape = hvd.DistributedGradientTape(tape)
        >>> gradients = tape.gradient(loss, model.trainable_variables)
    """

    def __init__(
        self,
        gradtape: tf.GradientTape,
        device_dense: str = "",
        device_sparse: str = "",
        compression: Type[Compressor] = Compression.none,
        sparse_as_dense: bool = False,
        op: int = Average,
        gradient_predivide_factor: float = 1.0,
        num_groups: int = 0,
        groups: Any = None,
        process_set: Group = world,
        scale_local_gradients: bool = True,
    ) -> None:
        del device_dense, device_sparse
        self._reduction = Reduction(
            compression, sparse_as_dense, op, gradient_predivide_factor, num_groups, groups,
            process_set,
        )  # fmt: skip
        self._tape = gradtape
        scales = truth_of("scale_local_gradients", scale_local_gradients)
        self._local_scale = 1 / process_set.size() if scales else 1.0
        self._local = VariableSet()
        unused("DistributedGradientTape")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tape, name)

    def __enter__(self) -> "DistributedGradientTape":
        self._tape.__enter__()
        return self

    def __exit__(self, *exception: Any) -> Any:
        return self._tape.__exit__(*exception)

    @tf.autograph.experimental.do_not_convert  # As operations: covey.tensorflow.ops.
    def gradient(
        self,
        target: Any,
        sources: Any,
        output_gradients: Any = None,
        use_generic_names: bool = False,
        **options: Any,
    ) -> Any:
        """As ``tf.GradientTape.gradient``, reduced over the ranks.

        Args:
            target, sources, output_gradients, options: as ``tf.GradientTape.gradient``.
            use_generic_names: accepted for Horovod's sake.

        Returns:
            The gradients in the structure of ``sources``; None where a source has none.
        """
        del use_generic_names
        own = self._tape.gradient(target, sources, output_gradients, **options)
        flat, listed = tf.nest.flatten(own), tf.nest.flatten(sources)
        shared = [(grad, it) for grad, it in zip(flat, listed) if it not in self._local]
        reduced = iter(self._reduction.of([grad for grad, _ in shared], [it for _, it in shared]))
        result = [
            scaled(gradient, self._local_scale) if it in self._local else next(reduced)
            for gradient, it in zip(flat, listed)
        ]
        return tf.nest.pack_sequence_as(own, result)

    @tf.autograph.experimental.do_not_convert
    def get_local_and_global_gradients(
        self,
        target: Any,
        sources: Any,
        output_gradients: Any = None,
        use_generic_names: bool = False,
    ) -> Tuple[List[Tuple[Any, Any]], List[Tuple[Any, Any]]]:
        """As :meth:`gradient`: (source, gradient) of the local sources, and of the others."""
        found = self.gradient(target, sources, output_gradients, use_generic_names)
        pairs = list(zip(tf.nest.flatten(sources), tf.nest.flatten(found)))
        return (
            [pair for pair in pairs if pair[0] in self._local],
            [pair for pair in pairs if pair[0] not in self._local],
        )

    def register_local_source(self, source: Any) -> None:
        """From now on the gradient of the variable ``source`` is this rank's own."""
        self._local.add(source)
