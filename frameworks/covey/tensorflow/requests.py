"""How the operations become nodes of TensorFlow, and their gradients. Internal.

Names, factors and ranks are attributes of a node (frameworks/tensorflow/collectives.cc), which is
all that its gradient has: the gradients below read them there.
"""

from __future__ import annotations

import struct
from typing import Any, Dict, List, Optional, Sequence, Tuple

import tensorflow as tf

from covey.arguments import group_id
from covey.basics import rank
from covey.errors import InvalidArgument
from covey.group import Group
from covey.reduce_op import Average, Sum, core_code
from covey.requests import ALLGATHER, ALLREDUCE, ALLTOALL, BROADCAST, How
from covey.state import state
from covey.tensorflow.streams import handle_of, name_of, operations

_SUM, _AVERAGE = core_code(Sum), core_code(Average)


def _bits(factor: float) -> int:
    return int(struct.unpack("<q", struct.pack("<d", factor))[0])


def _ranks(group: Group) -> Tuple[int, ...]:
    return () if group_id(group) == 0 else tuple(group.ranks)


def _head(how: How, name: Optional[str], group: Group) -> Tuple[Any, Dict[str, Any]]:
    """The handle of the stream, and the attributes that all operations have."""
    state.require()
    stream, ranks = name_of(how, name), _ranks(group)
    return handle_of(stream, ranks), {"request": stream, "ranks": list(ranks)}


def _reduce(
    operation: Any, how: How, tensors: Sequence[Any], name: Optional[str], group: Group
) -> List[Any]:
    handle, attributes = _head(how, name, group)
    factors = {"prescale_bits": _bits(how.prescale), "postscale_bits": _bits(how.postscale)}
    return list(operation(handle, tensors, op=how.op, **factors, **attributes))


def allreduce(how: How, tensors: Sequence[Any], name: Optional[str], group: Group) -> List[Any]:
    """Tensors of one dtype, which travel together. ``how.op`` is a covey_op."""
    return _reduce(operations.covey_allreduce, how, tensors, name, group)


def reducescatter(how: How, tensors: Sequence[Any], name: Optional[str], group: Group) -> List[Any]:
    """Tensors of one dtype, which travel together. ``how.op`` is a covey_op."""
    return _reduce(operations.covey_reducescatter, how, tensors, name, group)


def broadcast(how: How, tensors: Sequence[Any], name: Optional[str], group: Group) -> List[Any]:
    """Tensors of one dtype, which travel together."""
    handle, attributes = _head(how, name, group)
    return list(operations.covey_broadcast(handle, tensors, root=how.root, **attributes))


def allgather(how: How, tensor: Any, name: Optional[str], group: Group) -> Any:
    """One tensor."""
    handle, attributes = _head(how, name, group)
    return operations.covey_allgather(handle, tensor, **attributes)


def gather(how: How, tensor: Any, name: Optional[str], group: Group) -> Tuple[Any, Any]:
    """One tensor. The result, and how many rows of it came from each rank (int64)."""
    handle, attributes = _head(how, name, group)
    return tuple(operations.covey_gather(handle, tensor, root=how.root, **attributes))


def alltoall(
    how: How, tensor: Any, splits: Any, name: Optional[str], group: Group
) -> Tuple[Any, Any]:
    """One tensor; ``splits``: integers, or None for equal parts. Returns what gather does."""
    counts = tf.zeros([0], tf.int64) if splits is None else tf.convert_to_tensor(splits)
    if not counts.dtype.is_integer:
        raise InvalidArgument(
            f"splits must hold one integer for each rank of the process set, not {splits!r}"
        )
    handle, attributes = _head(how, name, group)
    return tuple(
        operations.covey_alltoall(handle, tensor, tf.cast(counts, tf.int64), **attributes)
    )


def neighbor_allreduce(
    how: How,
    tensor: Any,
    row: Sequence[Any],
    name: Optional[str],
    group: Group,
    names_receivers: bool,
    any_sum: bool,
) -> Any:
    """One tensor; ``row``: own weight, sources, weights and receivers, as tensors."""
    handle, attributes = _head(how, name, group)
    return operations.covey_neighbor_allreduce(
        handle,
        tensor,
        *row,
        codec=how.codec or "",
        names_receivers=names_receivers,
        any_sum=any_sum,
        **attributes,
    )


def by_dtype(
    operation: Any, how: How, tensors: Sequence[Any], name: Optional[str], group: Group
) -> List[Any]:
    """The results of ``operation``, one of the functions above, one request for each dtype."""
    places: Dict[Any, List[int]] = {}
    for place, tensor in enumerate(tensors):
        places.setdefault(tensor.dtype, []).append(place)
    results: List[Any] = [None] * len(tensors)
    for dtype, mine in places.items():
        part = name if name is None or len(places) == 1 else f"{name}.{dtype.name}"
        done = operation(how, [tensors[place] for place in mine], part, group)
        for place, result in zip(mine, done):
            results[place] = result
    return results


def read(tensors: Sequence[Any]) -> List[Any]:
    """The values of variables."""
    return [tf.convert_to_tensor(tensor) for tensor in tensors]


def of_root(tensors: Sequence[Any], root: int, name: str, group: Group) -> List[Any]:
    """The values that rank ``root`` has."""
    how = How(BROADCAST, "broadcast", root=root)
    return by_dtype(broadcast, how, read(tensors), name, group)


# ---- Gradients: as in Horovod, of copies of one tensor (broadcast, allgather) the mean -----------


class _Node:
    """The attributes of a node."""

    def __init__(self, node: Any) -> None:
        self.node = node
        request = tf.compat.as_str(node.get_attr("request"))
        _, _, own = request.partition(".")  # what How.stream has put before it
        self.name = f"{own}.gradient" if own else None
        ranks = list(node.get_attr("ranks"))
        self.group = Group(ranks) if ranks else Group()

    def factor(self, attribute: str) -> float:
        return float(struct.unpack("<d", struct.pack("<q", self.node.get_attr(attribute)))[0])

    def back(self, grad: Any, rows: Any) -> Any:
        """Sends rows to the ranks that they came from."""
        how = How(ALLTOALL, "alltoall")
        return alltoall(how, tf.convert_to_tensor(grad), rows, self.name, self.group)[0]

    def mean(self, grads: Sequence[Any]) -> List[Any]:
        """The means over the ranks."""
        how = How(ALLREDUCE, "allreduce", _AVERAGE)
        return allreduce(how, [tf.convert_to_tensor(g) for g in grads], self.name, self.group)


@tf.RegisterGradient("CoveyAllreduce")
def _allreduce_gradient(node: Any, *grads: Any) -> List[Any]:
    """The gradient of a sum over ranks is the sum of the ranks' gradients."""
    op = node.get_attr("op")
    if op not in (_SUM, _AVERAGE):
        raise NotImplementedError("an allreduce has a gradient with op=Average and op=Sum only")
    made = _Node(node)
    factors = made.factor("prescale_bits"), made.factor("postscale_bits")
    how = How(ALLREDUCE, "allreduce", op, 0, *factors)
    dense = [tf.convert_to_tensor(grad) for grad in grads]
    return [None, *allreduce(how, dense, made.name, made.group)]


@tf.RegisterGradient("CoveyBroadcast")
def _broadcast_gradient(node: Any, *grads: Any) -> List[Any]:
    """The root's tensor is used by all ranks, so it gets the mean of their gradients."""
    means = _Node(node).mean(grads)
    if node.get_attr("root") != rank():
        with tf.control_dependencies(means):  # Else a graph leaves out what other ranks wait for.
            means = [tf.zeros_like(mean) for mean in means]
    return [None, *means]


@tf.RegisterGradient("CoveyAllgather")
def _allgather_gradient(node: Any, grad: Any) -> List[Any]:
    """Every rank holds a copy of every row, so a row's gradient is the mean over the ranks."""
    made = _Node(node)
    rows = tf.shape(node.inputs[1], out_type=tf.int64)[:1]
    name = f"{made.name}.rows" if made.name else None
    rows_of_all = allgather(How(ALLGATHER, "allgather"), rows, name, made.group)
    mine = made.group.rank() or 0
    begin = tf.reduce_sum(rows_of_all[:mine])
    (mean,) = made.mean([grad])
    return [None, mean[begin : begin + rows[0]]]


@tf.RegisterGradient("CoveyReducescatter")
def _reducescatter_gradient(node: Any, *grads: Any) -> List[Any]:
    """A row's gradient is with the rank that holds it. The scale is Horovod's."""
    op = node.get_attr("op")
    if op not in (_SUM, _AVERAGE):
        raise NotImplementedError("a reducescatter has a gradient with op=Average and op=Sum only")
    made = _Node(node)
    factor = made.factor("prescale_bits") * made.factor("postscale_bits")
    if op == _SUM:
        factor *= made.group.size()
    how, results = How(ALLGATHER, "allgather"), []
    for i, grad in enumerate(grads):
        scaled = tf.convert_to_tensor(grad) * tf.cast(factor, grad.dtype)
        part = made.name if made.name is None or len(grads) == 1 else f"{made.name}.{i}"
        results.append(allgather(how, scaled, part, made.group))
    return [None, *results]


@tf.RegisterGradient("CoveyGather")
def _gather_gradient(node: Any, grad: Any, _: Any) -> List[Any]:
    """The root holds the only copy of every row: its gradient goes back where the row came from."""
    return [None, _Node(node).back(grad, node.outputs[1])]


@tf.RegisterGradient("CoveyAlltoall")
def _alltoall_gradient(node: Any, grad: Any, _: Any) -> List[Any]:
    """The gradients of the rows go back where the rows came from; other rows went nowhere."""
    back = _Node(node).back(grad, node.outputs[1])
    kept = tf.shape(node.inputs[1])[:1] - tf.shape(back)[:1]
    zeros = tf.zeros(tf.concat([kept, tf.shape(back)[1:]], 0), back.dtype)
    return [None, tf.concat([back, zeros], 0), None]


@tf.RegisterGradient("CoveyNeighborAllreduce")
def _neighbor_gradient(node: Any, grad: Any) -> Any:
    """Refused: it would be lost silently."""
    del node, grad
    raise NotImplementedError(
        "neighbor_allreduce and pair_average have no gradient: give them tf.stop_gradient(tensor)"
    )
