"""Adasum over the ranks of a group, made of other operations. Internal.

Maleki, Musuvathi, Mytkowicz, Saarikivi, Xu, Eksarevskiy, Ekanayake and Barsoum (2021), Scaling
Distributed Training with Adaptive Summation, MLSys, arXiv:2006.02924. ``covey/adasum_layout.py``
has the arithmetic, and ``covey/torch/adasum.py`` the same for torch. Each rank gets one part of all
ranks' vectors by an alltoall, so that of the L bytes of a vector (P-1)/P L travel; it goes through
the levels of pairs, for each of which three numbers per tensor and pair are added up over the
ranks; an allgather of (P-1)/P L bytes ends it. In a tf.function all of this is part of the graph.
"""

from __future__ import annotations

import hashlib
from typing import Any, List, Optional, Sequence, Tuple

import tensorflow as tf

from covey.adasum_layout import Pair, factors_of, levels_of, part_of, segments_of
from covey.errors import InvalidArgument, Unsupported
from covey.group import Group
from covey.reduce_op import Sum, core_code
from covey.requests import ALLGATHER, ALLREDUCE, ALLTOALL, How
from covey.tensorflow import requests

_HALVES = (tf.float16, tf.bfloat16)
DTYPES = (tf.float32, tf.float64, *_HALVES)
"""The dtypes of Adasum; halves are added in float32."""

_SUM = core_code(Sum)

Rows = List[List[Any]]
"""By rank the segments of its vectors that are this rank's part."""


def allreduce(how: How, tensors: Sequence[Any], name: Optional[str], group: Group) -> List[Any]:
    """Adasum of ``tensors``, each by itself, of one dtype; ``how`` has the factors. All members
    call it.

    Raises:
        Unsupported: (a ValueError) another dtype, or a shape that is not known before it runs.
        InvalidArgument: (a ValueError) this rank is not in ``group``.
    """
    for tensor in tensors:
        if tensor.dtype not in DTYPES or not tensor.shape.is_fully_defined():
            raise Unsupported(
                "op=Adasum is for floating-point numbers in shapes that are known before it runs, "
                f"not of {tensor.dtype.name}, {tensor.shape}: use op=Sum or op=Average"
            )
    if not group.included():
        raise InvalidArgument(f"this rank is not in the process set {group.ranks}")
    whole = name if name is None else f"adasum.{name}"

    @tf.custom_gradient
    def reduced(*given: Any) -> Tuple[List[Any], Any]:
        return _Adasum(how, given, whole, group).of(given), _no_gradient

    return list(reduced(*tensors))


def _no_gradient(*_: Any) -> Any:
    raise NotImplementedError("an allreduce has a gradient with op=Average and op=Sum only")


class _Adasum:
    """One operation."""

    def __init__(self, how: How, tensors: Sequence[Any], name: Optional[str], group: Group) -> None:
        self._how, self._name, self._group = how, name, group
        self._shapes = [tensor.shape for tensor in tensors]
        self._counts = [shape.num_elements() for shape in self._shapes]
        self._dtype = tensors[0].dtype
        self._part = part_of(self._counts, group.size(), self._dtype.size)
        self._segments = segments_of(self._counts, self._part, group.rank() or 0)

    def of(self, tensors: Sequence[Any]) -> List[Any]:
        """The result for each."""
        with tf.control_dependencies([self._checked(tensors)]):
            flat = self._flat(tensors)
        if self._part == 0:
            return [tf.reshape(flat, shape) for shape in self._shapes]
        rows = self._rows(flat)
        last = rows[0][-1]  # A rank whose part has no tensor goes no further than others, either.
        for number, pairs in enumerate(levels_of(self._group.size())):
            with tf.control_dependencies([last]):
                dots = tf.identity(self._dots(rows, pairs))
            name = self._named(f"dots{number}")
            how = How(ALLREDUCE, "allreduce", _SUM)
            (total,) = requests.allreduce(how, [dots], name, self._group)
            self._combine(rows, pairs, total)
            last = total
        with tf.control_dependencies([last]):
            return self._gathered(rows[0])

    def _named(self, part: str) -> Optional[str]:
        return None if self._name is None else f"{self._name}.{part}"

    def _checked(self, tensors: Sequence[Any]) -> Any:
        """A tensor that is there when all ranks are known to have equal kinds of tensors. If not,
        an allreduce of these, which the core refuses, says on all ranks what differs."""
        kinds = [f"{it.dtype.name} {it.shape.as_list()}" for it in tensors]
        words = repr((kinds, self._how.prescale, self._how.postscale)).encode()
        digest = hashlib.blake2b(words, digest_size=16).digest()
        halves = [int.from_bytes(it, "little", signed=True) for it in (digest[:8], digest[8:])]
        own = tf.constant([halves], tf.int64)
        everyone = requests.allgather(
            How(ALLGATHER, "allgather"), own, self._named("kinds"), self._group
        )

        def refused() -> Any:
            how = self._how._replace(op=_SUM)
            done = requests.allreduce(how, tensors, self._named("differ"), self._group)
            with tf.control_dependencies(done):
                return tf.constant(False)

        is_same = tf.reduce_all(tf.equal(everyone, own))
        return tf.cond(is_same, lambda: tf.constant(True), refused)

    def _flat(self, tensors: Sequence[Any]) -> Any:
        """[ranks * part] One behind the other, then zeros."""
        rest = self._part * self._group.size() - sum(self._counts)
        pieces = [tf.reshape(tensor, [-1]) for tensor in tensors]
        return tf.concat([*pieces, tf.zeros([rest], self._dtype)], 0)

    def _lengths(self) -> List[int]:
        """The lengths of the segments, and of the rest of the part."""
        lengths = [segment.end - segment.begin for segment in self._segments]
        return [*lengths, self._part - sum(lengths)]

    def _rows(self, flat: Any) -> Rows:
        how = How(ALLTOALL, "alltoall")
        received, _ = requests.alltoall(how, flat, None, self._named("parts"), self._group)
        wide = tf.float32 if self._dtype in _HALVES else self._dtype
        rows = tf.cast(tf.reshape(received, [self._group.size(), self._part]), wide)
        if self._how.prescale != 1.0:
            rows = rows * tf.cast(self._how.prescale, wide)
        by_segment = [tf.unstack(it) for it in tf.split(rows, self._lengths(), 1)]
        return [list(row) for row in zip(*by_segment)]

    def _dots(self, rows: Rows, pairs: Sequence[Pair]) -> Any:
        """[3, pairs, tensors] float64 The dot products aa, bb and ab of what lies here."""
        found = []
        for i, j in pairs:
            a, b = ([tf.cast(it, tf.float64) for it in rows[k]] for k in (i, j))
            found.append([self._by_tensor(*both) for both in ((a, a), (b, b), (a, b))])
        return tf.stack([tf.stack(one) for one in found], 1)

    def _by_tensor(self, first: List[Any], second: List[Any]) -> Any:
        """[tensors] float64"""
        values: List[Any] = [tf.constant(0.0, tf.float64)] * len(self._counts)
        for place, segment in enumerate(self._segments):
            values[segment.number] = tf.reduce_sum(first[place] * second[place])
        return tf.stack(values)

    def _combine(self, rows: Rows, pairs: Sequence[Pair], dots: Any) -> None:
        """``dots``: the same of all ranks."""
        factors = tf.cast(factors_of(dots[:2], dots[2], _where), rows[0][0].dtype)
        for p, (i, j) in enumerate(pairs):
            for place, segment in enumerate(self._segments):
                of_a, of_b = (factors[k, p, segment.number] for k in (0, 1))
                rows[i][place] = rows[i][place] * of_a + rows[j][place] * of_b

    def _gathered(self, row: List[Any]) -> List[Any]:
        """``row``: this rank's part of the whole."""
        part = tf.concat(row, 0)
        if self._how.postscale != 1.0:
            part = part * tf.cast(self._how.postscale, part.dtype)
        own = tf.cast(part, self._dtype)
        how = How(ALLGATHER, "allgather")
        whole = requests.allgather(how, own, self._named("whole"), self._group)
        pieces = tf.split(whole[: sum(self._counts)], self._counts)
        return [tf.reshape(piece, shape) for piece, shape in zip(pieces, self._shapes)]


def _where(condition: Any, number: float, other: Any) -> Any:
    return tf.where(condition, tf.constant(number, other.dtype), other)
