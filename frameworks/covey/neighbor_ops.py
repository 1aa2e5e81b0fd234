"""The operations of ``import covey`` among neighbors.

Written as those of :mod:`covey.ops`, which shows them to users.
"""

from __future__ import annotations

from typing import Any, Dict, Optional, Sequence

from covey.adapters import adapter_of, given
from covey.call_variants import LATER, LATER_IN_PLACE, NOW, NOW_IN_PLACE, CallVariant, bind
from covey.group import Group, world


def _neighbor_allreduce(
    variant: CallVariant,
    tensor: Any,
    self_weight: Optional[float] = None,
    src_weights: Optional[Dict[int, float]] = None,
    dst_ranks: Optional[Sequence[int]] = None,
    topology: Any = None,
    round: int = 0,
    any_sum: bool = False,
    name: Optional[str] = None,
    group: Group = world,
    codec: Optional[str] = None,
) -> Any:
    """The weighted mean of this rank's tensor and those of its neighbors, a new tensor.

    All members of ``group`` call it, each with its own neighbors, which may be others each time.

    Args:
        tensor: of torch, NumPy or TensorFlow, of any shape, the same on every rank; float32,
            float64, float16 or bfloat16.
        self_weight: of this rank's tensor. None: the rest to 1.
        src_weights: {rank: weight} of those to take from; ranks are global ones.
        dst_ranks: those that take from this rank; None: all that do.
        topology: instead of these three: a name, a matrix, or what :func:`covey.topology` gives,
            over the members of ``group`` in rank order.
        round: which of the topology's rounds, where they differ (one_peer, bipartite, matching).
        any_sum: weights need not sum to 1, and may be negative.
        name, group: as :func:`covey.allreduce`.
        codec: "int8", "bf16", "fp16" or "qsgd": moves tensors by what is decoded of differences.

    Returns:
        A tensor of the same kind, summed in rank order in float32 (float64: float64), rounded once.

    Raises:
        InvalidArgument, Unsupported: (ValueErrors) wrong here; nothing was submitted.
        Mismatch: on every rank, later operations work: shapes, dtypes or codecs differ; weights do
            not sum to 1; a rank is no member; one takes from another that does not send to it.
        Aborted: a rank died or left.

    Example:
        >>> model = covey.neighbor_allreduce(model, topology="ring", name="model")
        >>> mine = covey.neighbor_allreduce(mine, 0.5, {(covey.rank() - 1) % covey.size(): 0.5})
    """
    function = getattr(adapter_of(tensor), variant.name_of("neighbor_allreduce"))
    peers = (self_weight, src_weights, dst_ranks, topology, round, any_sum)
    return function(tensor, *peers, name=name, process_set=group, **given(codec=codec))


def _pair_average(
    variant: CallVariant,
    tensor: Any,
    peer: Optional[int],
    name: Optional[str] = None,
    group: Group = world,
    codec: Optional[str] = None,
) -> Any:
    """The mean of this rank's tensor and that of rank ``peer``, a new tensor, the same on both.

    All members of ``group`` call it, in pairs that name each other; two of many: of their group.

    Args:
        tensor: as :func:`neighbor_allreduce`.
        peer: a global rank; None: this rank keeps its own tensor this time.
        name, group, codec: as :func:`neighbor_allreduce`; with a codec the two sum to the same.

    Raises:
        As :func:`neighbor_allreduce`; Mismatch on every rank when two do not name each other.

    Example:
        >>> model = covey.pair_average(model, peer=covey.rank() ^ 1, name="model")
    """
    function = getattr(adapter_of(tensor), variant.name_of("pair_average"))
    return function(tensor, peer, name=name, process_set=group, **given(codec=codec))


neighbor_allreduce = bind(_neighbor_allreduce, NOW)
neighbor_allreduce_ = bind(_neighbor_allreduce, NOW_IN_PLACE)
neighbor_allreduce_async = bind(_neighbor_allreduce, LATER)
neighbor_allreduce_async_ = bind(_neighbor_allreduce, LATER_IN_PLACE)
pair_average = bind(_pair_average, NOW)
pair_average_ = bind(_pair_average, NOW_IN_PLACE)
pair_average_async = bind(_pair_average, LATER)
pair_average_async_ = bind(_pair_average, LATER_IN_PLACE)
