"""Operations in which a rank averages with some others instead of all, on TensorFlow's tensors.

They keep the rules of :mod:`covey.tensorflow.ops`. A node of a graph takes this rank's row of
weights as tensors, so a ``tf.function`` need not be traced anew for other neighbors.
"""

from __future__ import annotations

from typing import Any, Dict, Optional, Sequence, Tuple

import tensorflow as tf

from covey.errors import InvalidArgument
from covey.group import Group, world
from covey.requests import NEIGHBOR_ALLREDUCE, How
from covey.tensorflow import requests
from covey.topology import Row, Topology, rank_of, row_for, topology as topology_of

__all__ = ["neighbor_allreduce", "pair_average"]


def neighbor_allreduce(
    tensor: Any,
    self_weight: Optional[float] = None,
    src_weights: Optional[Dict[int, float]] = None,
    dst_ranks: Optional[Sequence[int]] = None,
    topology: Any = None,
    round: Any = 0,
    any_sum: bool = False,
    name: Optional[str] = None,
    process_set: Group = world,
    codec: Optional[str] = None,
) -> Any:
    """The weighted mean of this rank's tensor and those of its neighbors, a new tensor.

    All ranks of ``process_set`` call it, each with its own neighbors, which may be others each
    time. It has no gradient.

    Args:
        tensor: the same shape and dtype on every rank: float32, float64, float16 or bfloat16.
        self_weight: of this rank's tensor. None: the rest to 1.
        src_weights: {rank: weight} of those to take from; ranks are global ones.
        dst_ranks: those that take from this rank; None: all that do.
        topology: instead of these three: a name, a matrix, or what ``covey.topology`` gives, over
            the members of ``process_set`` in rank order.
        round: which of the topology's rounds, where they differ (one_peer, bipartite, matching); an
            integer, or an integer scalar tensor where the rounds repeat themselves (not matching).
        any_sum: weights need not sum to 1, and may be negative.
        name, process_set: see covey.tensorflow.ops.
        codec: makes float32 smaller before it travels: "int8", "bf16", "fp16" or "qsgd". This
            rank's tensor is moved by the weighted differences of what its neighbors' and its own
            are decoded to. Not with any_sum. Other dtypes travel as they are.

    Returns:
        A new tensor of the same shape and dtype, summed in rank order in float32 (float64 for
        float64) and rounded once.

    Raises:
        ValueError: wrong here; nothing was submitted.
        NotImplementedError: a gradient through it was asked for.
        tf.errors.FailedPreconditionError: on every rank, later operations work: shapes, dtypes or
            codecs differ; a rank's weights do not sum to 1; a rank is no member; one takes from
            another that does not send to it.
        Others: see covey.tensorflow.ops.

    Example:
        >>> model = hvd.neighbor_allreduce(model, topology="ring", name="model")
    """
    given = (self_weight, src_weights, dst_ranks)
    if tf.is_tensor(round):
        row = _row_of_round(given, topology, round, process_set)
        is_known = True
    else:
        one = row_for(*given, topology, round, any_sum, process_set)
        row, is_known = _as_tensors(one), one.receivers is not None
    how = How(NEIGHBOR_ALLREDUCE, "neighbor_allreduce", codec=codec)
    return _averaged(how, tensor, row, name, process_set, is_known, any_sum)


def pair_average(
    tensor: Any,
    peer: Any,
    name: Optional[str] = None,
    process_set: Group = world,
    codec: Optional[str] = None,
) -> Any:
    """The mean of this rank's tensor and that of rank ``peer``, the same on both.

    All ranks of ``process_set`` call it, in pairs that name each other. It has no gradient.

    Args:
        tensor: as :func:`neighbor_allreduce`.
        peer: a global rank. None: this rank keeps its own tensor this time. Or an integer scalar
            tensor, in which a number below 0 stands for None.
        name, process_set: see covey.tensorflow.ops.
        codec: as :func:`neighbor_allreduce`; then the sum of the two stays, and each of them is as
            near to the mean as the codec's steps are small.

    Returns:
        A new tensor of the same shape and dtype.

    Raises:
        As :func:`neighbor_allreduce`; tf.errors.FailedPreconditionError on every rank when two do
        not name each other.

    Example:
        >>> model = hvd.pair_average(model, peer=hvd.rank() ^ 1, name="model")
    """
    if tf.is_tensor(peer):
        row = _row_of_peer(peer)
    elif peer is None:
        row = _as_tensors(Row(1.0, (), (), ()))
    else:
        other = (rank_of(peer, "pair_average: peer"),)
        row = _as_tensors(Row(0.5, other, (0.5,), other))
    how = How(NEIGHBOR_ALLREDUCE, "pair_average", codec=codec)
    return _averaged(how, tensor, row, name, process_set, True, False)


_Tensors = Tuple[Any, Any, Any, Any]  # own weight, sources, their weights, receivers


def _averaged(
    how: How, tensor: Any, row: _Tensors, name: Optional[str], group: Group,
    names_receivers: bool, any_sum: bool,
) -> Any:
    dense = tf.convert_to_tensor(tensor)
    if not dense.dtype.is_floating:
        raise InvalidArgument(
            f"{how.kind_name} averages floating-point numbers, and the tensor is of "
            f"{dense.dtype.name}"
        )
    codec = how.codec if dense.dtype == tf.float32 else None
    how = how._replace(codec=codec)
    return requests.neighbor_allreduce(how, dense, row, name, group, names_receivers, any_sum)


def _as_tensors(row: Row) -> _Tensors:
    return (
        tf.constant(row.own_weight, tf.float64),
        tf.constant(row.sources, tf.int32, [len(row.sources)]),
        tf.constant(row.weights, tf.float64, [len(row.weights)]),
        tf.constant(row.receivers or (), tf.int32, [len(row.receivers or ())]),
    )


def _check_scalar(tensor: Any, what: str) -> None:
    if not tensor.dtype.is_integer or tensor.shape.rank not in (0, None):
        raise InvalidArgument(
            f"{what} must be an integer scalar, not {tensor.dtype.name} of the shape {tensor.shape}"
        )


def _row_of_peer(peer: Any) -> _Tensors:
    _check_scalar(peer, "pair_average: peer")
    others = tf.boolean_mask(tf.reshape(tf.cast(peer, tf.int32), [1]), tf.reshape(peer >= 0, [1]))
    halves = tf.fill(tf.shape(others), tf.constant(0.5, tf.float64))
    return tf.constant(1.0, tf.float64) - tf.reduce_sum(halves), others, halves, others


def _row_of_round(given: Sequence[Any], which: Any, turn: Any, group: Group) -> _Tensors:
    """One row out of those of all rounds of a topology."""
    _check_scalar(turn, "neighbor_allreduce: round")
    first = row_for(*given, which, 0, False, group)
    if which is None:
        return _as_tensors(first)
    size = None if isinstance(which, Topology) else group.size()
    chosen = topology_of(which, size)
    if chosen.period < 1:
        raise InvalidArgument(
            f"neighbor_allreduce: the rounds of {chosen.name} never repeat themselves, so round "
            "must be a number, not a tensor"
        )
    rows = [_as_tensors(chosen.row_of(group, it)) for it in range(chosen.period)]
    if len(rows) == 1:
        return rows[0]
    number = tf.cast(tf.math.floormod(turn, tf.cast(chosen.period, turn.dtype)), tf.int32)
    return tuple(tf.switch_case(number, [lambda row=row: row for row in rows]))


for _name in __all__:  # As in covey.tensorflow.ops.
    globals()[_name] = tf.autograph.experimental.do_not_convert(globals()[_name])
