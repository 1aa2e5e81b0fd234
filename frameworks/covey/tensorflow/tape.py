"""DistributedGradientTape: a tf.GradientTape whose gradients are those of all ranks."""

from __future__ import annotations

from typing import Any, Dict, Iterable, List, NamedTuple, Optional, Sequence, Type

import tensorflow as tf

from covey.errors import InvalidArgument, Unsupported
from covey.group import Group, world
from covey.method import unused
from covey.reduce_op import Average, Sum
from covey.tensorflow.compression import Compression, Compressor
from covey.tensorflow.ops import allreduce, grouped_allreduce

FIRST_BUCKET_BYTES = 1 << 20
BUCKET_BYTES = 8 << 20


class _Options(NamedTuple):
    """How gradients are reduced."""

    op: int
    prescale: float
    postscale: float
    compression: Type[Compressor]
    sparse_as_dense: bool
    group: Group


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
        op: Average or Sum.
        gradient_predivide_factor: with Average: divides before the sum by this, after it by the
            size over this.
        num_groups: how many buckets; 0: by size.
        groups: None, or a number as ``num_groups``; lists of variables are not possible yet.
        process_set: the ranks that take part; this rank must be one of them.
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
        groups: Optional[int] = None,
        process_set: Group = world,
        scale_local_gradients: bool = True,
    ) -> None:
        del device_dense, device_sparse
        if op not in (Average, Sum):
            raise Unsupported("DistributedGradientTape: op must be Average or Sum")
        if groups is not None and not isinstance(groups, int):
            raise Unsupported("DistributedGradientTape: groups must be a number or None")
        self._count = num_groups if groups is None else groups
        if self._count < 0:
            raise InvalidArgument("DistributedGradientTape: the number of groups is negative")
        scales = (1.0, 1.0)
        if gradient_predivide_factor != 1.0:
            if op != Average or gradient_predivide_factor <= 0:
                raise InvalidArgument(
                    "gradient_predivide_factor must be positive and goes with op=Average only"
                )
            scales = (1.0 / gradient_predivide_factor, gradient_predivide_factor)
        self._options = _Options(op, *scales, compression, sparse_as_dense, process_set)
        self._tape = gradtape
        self._local_scale = 1 / process_set.size() if scale_local_gradients else 1.0
        self._local: Dict[int, Any] = {}
        unused("DistributedGradientTape")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tape, name)

    def __enter__(self) -> "DistributedGradientTape":
        self._tape.__enter__()
        return self

    def __exit__(self, *exception: Any) -> Any:
        return self._tape.__exit__(*exception)

    def gradient(
        self, target: Any, sources: Any, output_gradients: Any = None, **options: Any
    ) -> Any:
        """As ``tf.GradientTape.gradient``, reduced over the ranks.

        Args:
            target, sources, output_gradients, options: as ``tf.GradientTape.gradient``.

        Returns:
            The gradients in the structure of ``sources``; None where a source has none.
        """
        own = self._tape.gradient(target, sources, output_gradients, **options)
        flat = tf.nest.flatten(own)
        stay = [id(_plain(source)) in self._local for source in tf.nest.flatten(sources)]
        given = [gradient for gradient, stays in zip(flat, stay) if not stays]
        reduced = iter(reduce_gradients(given, self._count, self._options))
        result = [
            _scaled(gradient, self._local_scale) if stays else next(reduced)
            for gradient, stays in zip(flat, stay)
        ]
        return tf.nest.pack_sequence_as(own, result)

    def register_local_source(self, source: Any) -> None:
        """From now on the gradient of the variable ``source`` is this rank's own."""
        plain = _plain(source)
        self._local[id(plain)] = plain


def _plain(source: Any) -> Any:
    """The tf.Variable of a Keras variable; anything else is what it is."""
    value = getattr(source, "value", None)
    return source if value is None or callable(value) else value


def _scaled(gradient: Any, scale: float) -> Any:
    if gradient is None or scale == 1.0:
        return gradient
    if isinstance(gradient, tf.IndexedSlices):
        values = _scaled(gradient.values, scale)
        return tf.IndexedSlices(values, gradient.indices, gradient.dense_shape)
    return gradient * tf.cast(scale, gradient.dtype)


def reduce_gradients(gradients: Sequence[Any], count: int, options: _Options) -> List[Any]:
    """Dense gradients by buckets, ``tf.IndexedSlices`` one by one, None as it is."""
    results = list(gradients)
    if options.sparse_as_dense:
        results = [g if g is None else tf.convert_to_tensor(g) for g in results]
    sparse = [i for i, g in enumerate(results) if isinstance(g, tf.IndexedSlices)]
    dense = [i for i, g in enumerate(results) if g is not None and i not in sparse]
    for i in sparse:
        results[i] = allreduce(
            results[i], op=options.op, name=f"gradients.sparse.{i}", process_set=options.group
        )
    sizes = [_size_bytes(results[i]) for i in dense]
    for number, places in enumerate(buckets(sizes, count)):
        mine = [dense[place] for place in places]
        reduced = grouped_allreduce(
            [results[i] for i in mine],
            compression=options.compression,
            op=options.op,
            prescale_factor=options.prescale,
            postscale_factor=options.postscale,
            process_set=options.group,
            name=f"gradients.{number}",
        )
        for i, tensor in zip(mine, reduced):
            results[i] = tensor
    return results


def _size_bytes(tensor: Any) -> int:
    """0 for a shape that is not known before it runs."""
    return (tensor.shape.num_elements() or 0) * int(tensor.dtype.size)


def buckets(sizes_bytes: Iterable[int], count: int = 0) -> List[List[int]]:
    """Which places travel together: from the last, which backward computes first.

    Args:
        sizes_bytes: of each place.
        count: how many buckets of about as many places; 0: closed at 1 MiB, then at 8 MiB.

    Example:
        >>> buckets([100, 2 << 20, 3, 4])
        [[3, 2, 1], [0]]
    """
    sizes = list(sizes_bytes)
    backwards = list(range(len(sizes) - 1, -1, -1))
    if count > 0:
        bounds = [len(sizes) * i // count for i in range(count + 1)]
        cut = [backwards[begin:end] for begin, end in zip(bounds, bounds[1:])]
        return [bucket for bucket in cut if bucket]
    result: List[List[int]] = []
    filled, limit = 0, 0
    for place in backwards:
        if not result or filled >= limit:
            limit = BUCKET_BYTES if result else FIRST_BUCKET_BYTES
            result.append([])
            filled = 0
        result[-1].append(place)
        filled += sizes[place]
    return result
