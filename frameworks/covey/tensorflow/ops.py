"""Collective operations on TensorFlow's tensors, by Horovod's names.

Their common rules: :mod:`covey.tensorflow`.
"""

from __future__ import annotations

from typing import Any, List, Optional, Sequence, Type

import tensorflow as tf

from covey.arguments import many_of, part_name, scales_of, whole_of
from covey.group import Group, world
from covey.reduce_op import CORE_CODES, Adasum, Average, Sum, choose_op, core_code, is_adasum
from covey.requests import ALLGATHER, ALLREDUCE, ALLTOALL, BROADCAST, GATHER, REDUCESCATTER, How
from covey.tensorflow import adasum, requests
from covey.tensorflow.compression import Compression, Compressor, check_compression
from covey.tensorflow.requests import by_dtype

__all__ = [
    "allgather",
    "allreduce",
    "alltoall",
    "broadcast",
    "gather",
    "grouped_allgather",
    "grouped_allreduce",
    "grouped_reducescatter",
    "reducescatter",
]

_ADASUM = CORE_CODES[Adasum]  # No covey_op: the core knows nothing of it.


def allreduce(
    tensor: Any,
    average: Optional[bool] = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Type[Compressor] = Compression.none,
    op: Optional[int] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    name: Optional[str] = None,
    process_set: Group = world,
    ignore_name_scope: bool = False,
) -> Any:
    """``postscale_factor`` * ``op`` over the ranks of (``prescale_factor`` * tensor).

    Gradients flow through Average and Sum.

    Args:
        tensor: the same shape and dtype on every rank; or ``tf.IndexedSlices``, whose rows are
            gathered instead of added (Average and Sum only, without factors).
        average: deprecated, use ``op``.
        device_dense, device_sparse, ignore_name_scope: accepted for Horovod's sake.
        compression: ``Compression.none``, ``.fp16`` or ``.bf16``.
        op: Average (when None), Sum, Min, Max, Product or, of floating-point numbers in shapes that
            are known before it runs, Adasum.
        prescale_factor, postscale_factor: not 0.
        name, process_set: see :mod:`covey.tensorflow`.

    Returns:
        A tensor of the same shape and dtype, bitwise equal on every rank.

    Raises:
        ValueError: wrong here; nothing was submitted. Others: see :mod:`covey.tensorflow`.

    Example:
        >>> mean_loss = hvd.allreduce(loss, name="loss")
    """
    del device_dense, device_sparse, ignore_name_scope
    chosen = choose_op(op, average)
    if isinstance(tensor, tf.IndexedSlices):
        if prescale_factor != 1.0 or postscale_factor != 1.0:
            raise _refused_slices(name, "takes no factors")
        return _allreduce_slices(tensor, chosen, name, process_set)
    how = _reduction(ALLREDUCE, "allreduce", chosen, prescale_factor, postscale_factor)
    small, ctx = check_compression(compression).compress(tf.convert_to_tensor(tensor))
    return compression.decompress(_allreduce(how, [small], name, process_set)[0], ctx)


def _reduction(kind: int, kind_name: str, op: int, prescale: float, postscale: float) -> How:
    code = _ADASUM if is_adasum(op) and kind == ALLREDUCE else core_code(op)
    return How(kind, kind_name, code, 0, *scales_of(prescale, postscale))


def _allreduce(how: How, tensors: Sequence[Any], name: Optional[str], group: Group) -> List[Any]:
    operation = adasum.allreduce if how.op == _ADASUM else requests.allreduce
    return operation(how, tensors, name, group)


def _refused_slices(name: Optional[str], why: str) -> NotImplementedError:
    which = "unnamed allreduce" if name is None else f"allreduce '{name}'"
    return NotImplementedError(f"{which} of tf.IndexedSlices {why}")


def _allreduce_slices(slices: Any, op: int, name: Optional[str], group: Group) -> Any:
    if op not in (Average, Sum):
        raise _refused_slices(name, "goes by Average or Sum")
    parts = [None if name is None else f"{name}.{part}" for part in ("values", "indices")]
    values = allgather(slices.values, parts[0], process_set=group)
    indices = allgather(slices.indices, parts[1], process_set=group)
    if op == Average:
        values = values / tf.cast(group.size(), values.dtype)
    return tf.IndexedSlices(values, indices, dense_shape=slices.dense_shape)


def grouped_allreduce(
    tensors: Sequence[Any],
    average: Optional[bool] = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Type[Compressor] = Compression.none,
    op: Optional[int] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: Group = world,
    ignore_name_scope: bool = False,
    name: Optional[str] = None,
) -> List[Any]:
    """As :func:`allreduce` for a list of tensors that travel together; returns the list.

    Dtypes may be mixed: the tensors of one dtype then travel together.

    Args:
        tensors: as many, of the same shapes and dtypes, on every rank. Those that are
            ``tf.IndexedSlices`` are gathered one by one, as by :func:`allreduce`.
        average, compression, op, prescale_factor, postscale_factor, process_set, name: as
            :func:`allreduce`.
        device_dense, device_sparse, ignore_name_scope: accepted for Horovod's sake.

    Raises:
        As :func:`allreduce`.

    Example:
        >>> loss, hits = hvd.grouped_allreduce([loss, hits], op=hvd.Sum, name="metrics")
    """
    del device_dense, device_sparse, ignore_name_scope
    chosen = choose_op(op, average)
    results = list(many_of(tensors))
    sparse = [i for i, tensor in enumerate(results) if isinstance(tensor, tf.IndexedSlices)]
    for i in sparse:
        part = None if name is None else f"{name}.{i}"
        factors = {"prescale_factor": prescale_factor, "postscale_factor": postscale_factor}
        results[i] = allreduce(results[i], op=chosen, name=part, process_set=process_set, **factors)
    dense = [i for i in range(len(results)) if i not in sparse]
    if sparse and not dense:
        return results
    how = _reduction(ALLREDUCE, "grouped_allreduce", chosen, prescale_factor, postscale_factor)
    given = [results[i] for i in dense]
    reduced = _compressed(_allreduce, how, given, compression, name, process_set)
    for i, tensor in zip(dense, reduced):
        results[i] = tensor
    return results


def _compressed(
    operation: Any,
    how: How,
    tensors: Sequence[Any],
    compression: Type[Compressor],
    name: Optional[str],
    group: Group,
) -> List[Any]:
    check_compression(compression)
    pairs = [compression.compress(tf.convert_to_tensor(it)) for it in many_of(tensors)]
    results = by_dtype(operation, how, [tensor for tensor, _ in pairs], name, group)
    return [compression.decompress(it, ctx) for it, (_, ctx) in zip(results, pairs)]


def broadcast(
    tensor: Any,
    root_rank: int,
    name: Optional[str] = None,
    ignore_name_scope: bool = False,
    process_set: Group = world,
) -> Any:
    """The tensor of rank ``root_rank``, as a new tensor on every rank. Gradients flow.

    Args:
        tensor: the same shape and dtype on every rank.
        root_rank: a global rank, also inside a process set.
        name, process_set: see :mod:`covey.tensorflow`.
        ignore_name_scope: accepted for Horovod's sake.

    Raises:
        See :mod:`covey.tensorflow`.

    Example:
        >>> order = hvd.broadcast(order, root_rank=0, name="order")
    """
    del ignore_name_scope
    how = How(BROADCAST, "broadcast", root=whole_of("root_rank", root_rank))
    return requests.broadcast(how, [tf.convert_to_tensor(tensor)], name, process_set)[0]


def allgather(
    tensor: Any,
    name: Optional[str] = None,
    ignore_name_scope: bool = False,
    process_set: Group = world,
) -> Any:
    """The tensors of all ranks, concatenated on dimension 0 in rank order. Gradients flow.

    Args:
        tensor: at least one dimension; dimension 0 may differ between the ranks and may be 0, the
            other dimensions and the dtype may not differ.
        name, process_set: see :mod:`covey.tensorflow`.
        ignore_name_scope: accepted for Horovod's sake.

    Raises:
        See :mod:`covey.tensorflow`.

    Example:
        >>> predictions = hvd.allgather(predictions, name="predictions")
    """
    del ignore_name_scope
    how = How(ALLGATHER, "allgather")
    return requests.allgather(how, tf.convert_to_tensor(tensor), name, process_set)


def grouped_allgather(
    tensors: Sequence[Any],
    name: Optional[str] = None,
    ignore_name_scope: bool = False,
    process_set: Group = world,
) -> List[Any]:
    """As :func:`allgather` for a list of tensors; returns the list.

    Args:
        tensors: as many on every rank.
        name, process_set: see :mod:`covey.tensorflow`.
        ignore_name_scope: accepted for Horovod's sake.

    Raises:
        See :mod:`covey.tensorflow`.

    Example:
        >>> scores, labels = hvd.grouped_allgather([scores, labels], name="evaluation")
    """
    del ignore_name_scope
    tensors = many_of(tensors)
    count = len(tensors)
    names = [part_name(name, i, count) for i in range(count)]
    return [allgather(t, part, process_set=process_set) for t, part in zip(tensors, names)]


def gather(
    tensor: Any, root_rank: int, name: Optional[str] = None, process_set: Group = world
) -> Any:
    """The tensors of all ranks on rank ``root_rank``, concatenated on dimension 0. Gradients flow.

    Args:
        tensor: as :func:`allgather`.
        root_rank: a global rank, also inside a process set.
        name, process_set: see :mod:`covey.tensorflow`.

    Returns:
        On ``root_rank`` the tensors of all in rank order; on the others a tensor of 0 rows.

    Raises:
        See :mod:`covey.tensorflow`.

    Example:
        >>> scores = hvd.gather(scores, root_rank=0, name="scores")
    """
    how = How(GATHER, "gather", root=whole_of("root_rank", root_rank))
    return requests.gather(how, tf.convert_to_tensor(tensor), name, process_set)[0]


def reducescatter(
    tensor: Any,
    device_dense: str = "",
    compression: Type[Compressor] = Compression.none,
    op: int = Average,
    name: Optional[str] = None,
    process_set: Group = world,
    ignore_name_scope: bool = False,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Any:
    """As :func:`allreduce`, and each rank gets a part of the result's rows.

    Gradients flow through Average and Sum; for their scale see :mod:`covey.tensorflow`.

    Args:
        tensor: at least one dimension; the same shape and dtype on every rank.
        compression, prescale_factor, postscale_factor, name, process_set: as :func:`allreduce`.
        op: Average, Sum, Min, Max or Product.
        device_dense, ignore_name_scope: accepted for Horovod's sake.

    Returns:
        A new tensor: dimension 0 is divided in rank order as evenly as possible, the first ranks
        get one row more.

    Raises:
        As :func:`allreduce`.

    Example:
        >>> part = hvd.reducescatter(gradient, op=hvd.Sum, name="part")
    """
    del device_dense, ignore_name_scope
    how = _reduction(REDUCESCATTER, "reducescatter", op, prescale_factor, postscale_factor)
    return _compressed(requests.reducescatter, how, [tensor], compression, name, process_set)[0]


def grouped_reducescatter(
    tensors: Sequence[Any],
    device_dense: str = "",
    compression: Type[Compressor] = Compression.none,
    op: int = Average,
    process_set: Group = world,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    name: Optional[str] = None,
) -> List[Any]:
    """As :func:`reducescatter` for a list of tensors that travel together; returns the list.

    Dtypes may be mixed: the tensors of one dtype then travel together.

    Args:
        tensors: as many, of the same shapes and dtypes, on every rank.
        device_dense, compression, op, process_set, prescale_factor, postscale_factor, name: as
            :func:`reducescatter`.

    Raises:
        As :func:`allreduce`.

    Example:
        >>> weights, biases = hvd.grouped_reducescatter([weights, biases], name="parts")
    """
    del device_dense
    kind_name = "grouped_reducescatter"
    how = _reduction(REDUCESCATTER, kind_name, op, prescale_factor, postscale_factor)
    return _compressed(requests.reducescatter, how, tensors, compression, name, process_set)


def alltoall(
    tensor: Any,
    splits: Any = None,
    name: Optional[str] = None,
    ignore_name_scope: bool = False,
    process_set: Group = world,
) -> Any:
    """Each rank sends some of its rows to each rank, and gets what the ranks send to it.

    Gradients flow.

    Args:
        tensor: at least one dimension; dimension 0 may differ between the ranks, the others and
            the dtype may not.
        splits: how many rows go to each rank, in rank order: integers in a sequence or a tensor,
            as many as there are ranks; 0 is possible. None: equal parts.
        name, process_set: see :mod:`covey.tensorflow`.
        ignore_name_scope: accepted for Horovod's sake.

    Returns:
        The received rows, concatenated on dimension 0 in rank order. When ``splits`` is given a
        pair: that, and how many rows came from each rank, as int32.

    Raises:
        See :mod:`covey.tensorflow`.

    Example:
        >>> mine, counts = hvd.alltoall(tokens, splits=per_expert, name="tokens")
    """
    del ignore_name_scope
    how = How(ALLTOALL, "alltoall")
    given = tf.convert_to_tensor(tensor)
    received, rows = requests.alltoall(how, given, splits, name, process_set)
    return received if splits is None else (received, tf.cast(rows, tf.int32))


# AutoGraph would rewrite these and all that they call, half a second of each rank's first
# tf.function, and change nothing: no branch of theirs depends on what is in a tensor.
for _name in __all__:
    globals()[_name] = tf.autograph.experimental.do_not_convert(globals()[_name])
