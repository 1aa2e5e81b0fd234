"""Gradients reduced over the ranks, in buckets. Internal."""

from __future__ import annotations

from typing import Any, Iterable, List, Sequence, Type

import tensorflow as tf

from covey.arguments import group_id, truth_of
from covey.errors import InvalidArgument, Unsupported
from covey.group import Group
from covey.local_variables import VariableSet, listed
from covey.reduce_op import Adasum, Average, Sum
from covey.requests import check_predivisor
from covey.tensorflow.compression import Compressor, check_compression
from covey.tensorflow.ops import allreduce, grouped_allreduce

FIRST_BUCKET_BYTES = 1 << 20
BUCKET_BYTES = 8 << 20


class Reduction:
    """How gradients are reduced; the arguments are those of a DistributedGradientTape.

    Raises:
        InvalidArgument, Unsupported: (ValueErrors) an option is wrong, or is not there.
    """

    def __init__(
        self,
        compression: Type[Compressor],
        sparse_as_dense: bool,
        op: int,
        gradient_predivide_factor: float,
        num_groups: int,
        groups: Any,
        process_set: Group,
    ) -> None:
        group_id(process_set)  # Refuses what is none.
        check_compression(compression)
        if not isinstance(op, int) or op not in (Average, Sum, Adasum):
            raise Unsupported("op of gradients must be Average, Sum or Adasum")
        self._groups: List[VariableSet] = []
        if isinstance(groups, (list, tuple)):
            self._groups = [VariableSet(listed(it, "groups", tf.Variable)) for it in groups]
            groups = None
        self._count = num_groups if groups is None else groups
        if not isinstance(self._count, int) or self._count < 0:
            raise InvalidArgument(
                f"groups is a number from 0, lists of variables or None, not {self._count!r}"
            )
        check_predivisor(gradient_predivide_factor, op)
        self._is_dense = truth_of("sparse_as_dense", sparse_as_dense)
        self._compression, self._op = compression, op
        self._factor, self._group = gradient_predivide_factor, process_set

    def of(self, gradients: Sequence[Any], sources: Sequence[Any]) -> List[Any]:
        """The gradients of ``sources`` over all ranks: dense ones by buckets, ``tf.IndexedSlices``
        one by one, None as it is. On a rank that is not in the process set: its own."""
        results = list(gradients)
        if self._is_dense:
            results = [g if g is None else tf.convert_to_tensor(g) for g in results]
        if self._group.rank() is None:
            return results
        sparse = [i for i, g in enumerate(results) if isinstance(g, tf.IndexedSlices)]
        dense = [i for i, g in enumerate(results) if g is not None and i not in sparse]
        for i in sparse:
            results[i] = allreduce(
                results[i], op=self._op, name=f"gradients.sparse.{i}", process_set=self._group
            )
        for number, places in enumerate(self._cut(dense, results, sources)):
            reduced = grouped_allreduce(
                [results[i] for i in places],
                compression=self._compression,
                op=self._op,
                prescale_factor=1.0 / self._factor,
                postscale_factor=self._factor,
                process_set=self._group,
                name=f"gradients.{number}",
            )
            for i, tensor in zip(places, reduced):
                results[i] = tensor
        return results

    def _cut(
        self, places: List[int], gradients: Sequence[Any], sources: Sequence[Any]
    ) -> List[List[int]]:
        """Which of ``places`` travel together."""
        if self._groups:
            cut = by_groups([sources[i] for i in places], self._groups)
        else:
            cut = buckets([_size_bytes(gradients[i]) for i in places], self._count)
        return [[places[i] for i in bucket] for bucket in cut]


def scaled(gradient: Any, scale: float) -> Any:
    """``gradient`` (a tensor, ``tf.IndexedSlices`` or None) * ``scale``, of its dtype."""
    if gradient is None or scale == 1.0:
        return gradient
    if isinstance(gradient, tf.IndexedSlices):
        values = scaled(gradient.values, scale)
        return tf.IndexedSlices(values, gradient.indices, gradient.dense_shape)
    return gradient * tf.cast(scale, gradient.dtype)


def _size_bytes(tensor: Any) -> int:
    """0 for a shape that is not known before it runs."""
    return (tensor.shape.num_elements() or 0) * int(tensor.dtype.size)


def by_groups(sources: Sequence[Any], groups: Sequence[VariableSet]) -> List[List[int]]:
    """Which places travel together: those of each group, and each that is in no group alone."""
    together: List[List[int]] = [[] for _ in groups]
    for place, source in enumerate(sources):
        mine = next((it for it, group in zip(together, groups) if source in group), None)
        if mine is None:
            together.append([place])
        else:
            mine.append(place)
    return [places for places in together if places]


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
