"""The operations of ``import covey``: each goes to the adapter of its tensor's framework.

A framework is imported when one of its tensors is seen, so ``import covey`` loads none. An
operation is written once, as a function that picks the adapter's by the variant of the call; see
:mod:`covey.call_variants`.
"""

from __future__ import annotations

from typing import Any, Optional, Sequence

from covey import collectives
from covey.adapters import absent, adapter_of, adapter_of_all, given  # noqa: F401
from covey.call_variants import LATER, LATER_IN_PLACE, NOW, NOW_IN_PLACE, CallVariant, bind
from covey.group import Group, world
from covey.neighbor_ops import neighbor_allreduce, neighbor_allreduce_, neighbor_allreduce_async
from covey.neighbor_ops import neighbor_allreduce_async_, pair_average, pair_average_
from covey.neighbor_ops import pair_average_async, pair_average_async_
from covey.reduce_op import Average

__all__ = [
    "allgather",
    "allgather_async",
    "allreduce",
    "allreduce_",
    "allreduce_async",
    "allreduce_async_",
    "alltoall",
    "alltoall_async",
    "barrier",
    "broadcast",
    "broadcast_",
    "broadcast_async",
    "broadcast_async_",
    "gather",
    "gather_async",
    "grouped_allgather",
    "grouped_allgather_async",
    "grouped_allreduce",
    "grouped_allreduce_",
    "grouped_allreduce_async",
    "grouped_allreduce_async_",
    "grouped_reducescatter",
    "grouped_reducescatter_async",
    "join",
    "neighbor_allreduce",
    "neighbor_allreduce_",
    "neighbor_allreduce_async",
    "neighbor_allreduce_async_",
    "pair_average",
    "pair_average_",
    "pair_average_async",
    "pair_average_async_",
    "reducescatter",
    "reducescatter_async",
]


def _allreduce(
    variant: CallVariant,
    tensor: Any,
    name: Optional[str] = None,
    op: int = Average,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    group: Group = world,
    codec: Optional[str] = None,
) -> Any:
    """``postscale_factor`` * ``op`` over the ranks of (``prescale_factor`` * tensor), a new tensor.

    Args:
        tensor: torch tensor or numpy array of any shape, the same on every rank; float32, float64,
            float16, bfloat16, or an integer of 8 to 64 bits.
        name: of the operation; the same name on every rank finds together, in any order. Operations
            without a name must come in one order on every rank.
        op: Average, Sum, Min, Max or Product.
        prescale_factor: not 0.
        postscale_factor: not 0.
        group: the ranks that take part; this rank must be one of them.
        codec: makes float32 smaller before it travels: "int8", "qsgd@bits=4". Not TensorFlow's.

    Returns:
        A tensor of the same framework, shape and dtype, bitwise equal on every rank.

    Raises:
        InvalidArgument, Unsupported: (ValueErrors) wrong here; nothing was submitted.
        Mismatch: the ranks disagree on shape, dtype, op, factors, codec; later operations work.
        Aborted: a rank died or left.

    Example:
        >>> loss = covey.allreduce(loss, name="loss")
    """
    return getattr(adapter_of(tensor), variant.name_of("allreduce"))(
        tensor,
        name=name,
        op=op,
        prescale_factor=prescale_factor,
        postscale_factor=postscale_factor,
        process_set=group,
        **given(codec=codec),
    )


def _grouped_allreduce(
    variant: CallVariant,
    tensors: Sequence[Any],
    name: Optional[str] = None,
    op: int = Average,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    group: Group = world,
    codec: Optional[str] = None,
) -> Any:
    """As :func:`allreduce` for a list of tensors that travel together; returns the list.

    Tensors of different dtypes may be mixed: those of one dtype travel together.

    Args:
        tensors: of one framework; as many, of the same shapes and dtypes, on every rank.
        name, op, prescale_factor, postscale_factor, group, codec: as :func:`allreduce`.

    Raises:
        As :func:`allreduce`.

    Example:
        >>> loss, hits = covey.grouped_allreduce([loss, hits], op=covey.Sum, name="metrics")
    """
    adapter, listed = adapter_of_all(tensors)
    return getattr(adapter, variant.name_of("grouped_allreduce"))(
        listed,
        name=name,
        op=op,
        prescale_factor=prescale_factor,
        postscale_factor=postscale_factor,
        process_set=group,
        **given(codec=codec),
    )


def _broadcast(
    variant: CallVariant,
    tensor: Any,
    root_rank: int,
    name: Optional[str] = None,
    group: Group = world,
) -> Any:
    """The tensor of rank ``root_rank``, as a new tensor on every rank.

    Args:
        tensor: torch tensor or numpy array of any shape, the same on every rank; the dtypes of
            :func:`allreduce`, and bool.
        root_rank: a global rank, also inside a group; a member of ``group``.
        name, group: as :func:`allreduce`.

    Raises:
        As :func:`allreduce`.

    Example:
        >>> seed = covey.broadcast(seed, root_rank=0, name="seed")
    """
    function = getattr(adapter_of(tensor), variant.name_of("broadcast"))
    return function(tensor, root_rank, name=name, process_set=group)


def _allgather(
    variant: CallVariant, tensor: Any, name: Optional[str] = None, group: Group = world
) -> Any:
    """The tensors of all ranks, concatenated on dimension 0 in rank order.

    Args:
        tensor: torch tensor or numpy array with at least one dimension; dimension 0 may differ
            between the ranks (and be 0), the others not. The dtypes of :func:`broadcast`.
        name, group: as :func:`allreduce`.

    Raises:
        As :func:`allreduce`.

    Example:
        >>> everyones = covey.allgather(mine, name="scores")
    """
    function = getattr(adapter_of(tensor), variant.name_of("allgather"))
    return function(tensor, name=name, process_set=group)


def _gather(
    variant: CallVariant,
    tensor: Any,
    root_rank: int,
    name: Optional[str] = None,
    group: Group = world,
) -> Any:
    """The tensors of all ranks on rank ``root_rank``, concatenated on dimension 0 in rank order.

    Args:
        tensor: as :func:`allgather`.
        root_rank: a global rank, also inside a group; a member of ``group``.
        name, group: as :func:`allreduce`.

    Returns:
        On ``root_rank`` the tensors of all; on the others a tensor of 0 rows.

    Raises:
        As :func:`allreduce`.

    Example:
        >>> scores = covey.gather(scores, root_rank=0, name="scores")
    """
    function = getattr(adapter_of(tensor), variant.name_of("gather"))
    return function(tensor, root_rank, name=name, process_set=group)


def _grouped_allgather(
    variant: CallVariant, tensors: Sequence[Any], name: Optional[str] = None, group: Group = world
) -> Any:
    """As :func:`allgather` for a list of tensors; returns the list.

    Args:
        tensors: of one framework, as many on every rank.
        name, group: as :func:`allreduce`.

    Raises:
        As :func:`allreduce`.

    Example:
        >>> scores, labels = covey.grouped_allgather([scores, labels], name="evaluation")
    """
    adapter, listed = adapter_of_all(tensors)
    function = getattr(adapter, variant.name_of("grouped_allgather"))
    return function(listed, name=name, process_set=group)


def _alltoall(
    variant: CallVariant,
    tensor: Any,
    splits: Any = None,
    name: Optional[str] = None,
    group: Group = world,
) -> Any:
    """Each rank sends some of its rows to each rank, and gets what the ranks send to it.

    Args:
        tensor: torch tensor or numpy array with at least one dimension; dimension 0 may differ
            between the ranks, the others not. The dtypes of :func:`broadcast`.
        splits: how many rows go to each rank, in rank order: integers in a sequence, array or
            tensor, as many as the group has members; 0 is possible. None: equal parts.
        name, group: as :func:`allreduce`.

    Returns:
        The received rows, concatenated on dimension 0 in rank order. When ``splits`` is given a
        pair: that, and how many rows came from each rank, as int32. As in Horovod the handle of
        ``alltoall_async`` always gives the pair.

    Raises:
        As :func:`allreduce`.

    Example:
        >>> mine, counts = covey.alltoall(tokens, splits=per_expert, name="tokens")
    """
    function = getattr(adapter_of(tensor), variant.name_of("alltoall"))
    return function(tensor, splits, name=name, process_set=group)


def _reducescatter(
    variant: CallVariant,
    tensor: Any,
    name: Optional[str] = None,
    op: int = Average,
    group: Group = world,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Any:
    """As :func:`allreduce`, and each rank gets a part of the result's rows.

    Args:
        tensor: as :func:`allreduce`, with at least one dimension.
        name, op, group, prescale_factor, postscale_factor: as :func:`allreduce`.

    Returns:
        A new tensor: dimension 0 is divided in rank order as evenly as possible, the first ranks
        get one row more.

    Raises:
        As :func:`allreduce`.

    Example:
        >>> part = covey.reducescatter(gradient, op=covey.Sum, name="part")
    """
    function = getattr(adapter_of(tensor), variant.name_of("reducescatter"))
    return function(
        tensor,
        name=name,
        op=op,
        process_set=group,
        prescale_factor=prescale_factor,
        postscale_factor=postscale_factor,
    )


def _grouped_reducescatter(
    variant: CallVariant,
    tensors: Sequence[Any],
    name: Optional[str] = None,
    op: int = Average,
    group: Group = world,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Any:
    """As :func:`reducescatter` for a list of tensors that travel together; returns the list.

    Args:
        tensors: of one framework; as many, of the same shapes and dtypes, on every rank.
        name, op, group, prescale_factor, postscale_factor: as :func:`allreduce`.

    Raises:
        As :func:`allreduce`.

    Example:
        >>> weights, biases = covey.grouped_reducescatter([weights, biases], name="parts")
    """
    adapter, listed = adapter_of_all(tensors)
    return getattr(adapter, variant.name_of("grouped_reducescatter"))(
        listed,
        name=name,
        op=op,
        process_set=group,
        prescale_factor=prescale_factor,
        postscale_factor=postscale_factor,
    )


_ALL = (NOW, NOW_IN_PLACE, LATER, LATER_IN_PLACE)
allreduce, allreduce_, allreduce_async, allreduce_async_ = (bind(_allreduce, w) for w in _ALL)
_grouped = (bind(_grouped_allreduce, w) for w in _ALL)
grouped_allreduce, grouped_allreduce_, grouped_allreduce_async, grouped_allreduce_async_ = _grouped
broadcast, broadcast_, broadcast_async, broadcast_async_ = (bind(_broadcast, w) for w in _ALL)
allgather = bind(_allgather, NOW)
allgather_async = bind(_allgather, LATER)
gather = bind(_gather, NOW)
gather_async = bind(_gather, LATER)
grouped_allgather = bind(_grouped_allgather, NOW)
grouped_allgather_async = bind(_grouped_allgather, LATER)
alltoall = bind(_alltoall, NOW)
alltoall_async = bind(_alltoall, LATER)
reducescatter = bind(_reducescatter, NOW)
reducescatter_async = bind(_reducescatter, LATER)
grouped_reducescatter = bind(_grouped_reducescatter, NOW)
grouped_reducescatter_async = bind(_grouped_reducescatter, LATER)


def barrier(group: Group = world) -> None:
    """Waits until every member of ``group`` has called this.

    Raises:
        Aborted: a rank died or left.

    Example:
        >>> covey.barrier()
    """
    collectives.barrier(group)


join = collectives.join
