"""The collective operations in which a rank averages with some others instead of all. Internal.

As those of collectives.py, of which they are a part.
"""

from __future__ import annotations

from typing import Any, Dict, Optional, Sequence, TypeVar

from covey.call_variants import CallVariant
from covey.group import Group, world
from covey.handles import Handle
from covey.requests import NEIGHBOR_ALLREDUCE, How, Requests
from covey.topology import Row, rank_of, row_for

T = TypeVar("T")


class Neighbors(Requests[T]):
    """Those for the tensors of one framework."""

    def neighbor_allreduce(
        self,
        variant: CallVariant,
        tensor: T,
        self_weight: Optional[float] = None,
        src_weights: Optional[Dict[int, float]] = None,
        dst_ranks: Optional[Sequence[int]] = None,
        topology: Any = None,
        round: int = 0,
        any_sum: bool = False,
        name: Optional[str] = None,
        process_set: Group = world,
        codec: Optional[str] = None,
    ) -> Handle[T]:
        """The weighted mean of this rank's tensor and those of its neighbors, a new tensor.

        All ranks of ``process_set`` call it, each with its own neighbors, which may be others each
        time. It has no gradient.

        Args:
            tensor: the same shape and dtype on every rank; floating-point numbers.
            self_weight: of this rank's tensor. None: the rest to 1.
            src_weights: {rank: weight} of those to take from; ranks are global ones.
            dst_ranks: those that take from this rank; None: all that do.
            topology: instead of these three: a name, a matrix, or what ``covey.topology`` gives,
                over the members of ``process_set`` in rank order.
            round: which of the topology's rounds, where they differ (one_peer, bipartite,
                matching).
            any_sum: weights need not sum to 1, and may be negative.
            name, process_set: as :func:`allreduce`.
            codec: makes float32 smaller before it travels: "int8", "bf16", "fp16" or "qsgd". This
                rank's tensor is moved by the weighted differences of what its neighbors' and its
                own are decoded to: equal tensors stay as they are, and where columns of weights
                sum to 1 the mean of all does. Not with any_sum. Other dtypes travel as they are.

        Returns:
            A new tensor of the same shape and dtype, summed in rank order in float32 (float64 for
            float64) and rounded once.

        Raises:
            InvalidArgument, Unsupported: (ValueErrors) wrong here; nothing was submitted.
            Mismatch: on every rank, later operations work: shapes, dtypes or codecs differ; a
                rank's weights do not sum to 1; a rank is no member; one takes from another that
                does not send to it.
            Aborted: a rank died or left.

        Example:
            >>> model = hvd.neighbor_allreduce(model, topology="ring", name="model")
        """
        row = row_for(
            self_weight, src_weights, dst_ranks, topology, round, any_sum, process_set
        )
        how = How(NEIGHBOR_ALLREDUCE, "neighbor_allreduce", codec=codec)
        return self._alike(how, variant, tensor, name, process_set, row)

    def pair_average(
        self,
        variant: CallVariant,
        tensor: T,
        peer: Optional[int],
        name: Optional[str] = None,
        process_set: Group = world,
        codec: Optional[str] = None,
    ) -> Handle[T]:
        """The mean of this rank's tensor and that of rank ``peer``, the same on both.

        All ranks of ``process_set`` call it, in pairs that name each other. It has no gradient.

        Args:
            tensor: as :func:`neighbor_allreduce`.
            peer: a global rank; None: this rank keeps its own tensor this time.
            name, process_set: as :func:`allreduce`.
            codec: as :func:`neighbor_allreduce`; then the sum of the two stays, and each of them is
                as near to the mean as the codec's steps are small.

        Raises:
            As :func:`neighbor_allreduce`; Mismatch on every rank when two do not name each other.

        Example:
            >>> model = hvd.pair_average(model, peer=covey.rank() ^ 1, name="model")
        """
        row = Row(1.0, (), (), ())
        if peer is not None:
            peer = rank_of(peer, "pair_average: peer")
            row = Row(0.5, (peer,), (0.5,), (peer,))
        how = How(NEIGHBOR_ALLREDUCE, "pair_average", codec=codec)
        return self._alike(how, variant, tensor, name, process_set, row)
