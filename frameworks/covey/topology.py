"""Topologies: the neighbors of each rank, and the row of weights that one rank has in them."""

from __future__ import annotations

import functools
import json
import operator
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from covey import _native
from covey.errors import InvalidArgument
from covey.group import Group, world


_KEPT_ROWS = 256
_INT32 = 1 << 31


class Row(NamedTuple):
    """The data of one rank in a neighbor_allreduce: the core's covey_neighbors."""

    own_weight: float
    sources: Tuple[int, ...]
    weights: Tuple[float, ...]
    receivers: Optional[Tuple[int, ...]]
    any_sum: bool = False


class Topology:
    """The neighbors and weights of each rank in each round: a matrix W, row by row.

    Rank i's tensor becomes the sum over j of W[i][j] times rank j's. Every row sums to 1. Made by
    :func:`topology`, which tells the errors; a ``matrix`` is W, row by row, where ``name`` is None.

    Attributes:
        name: "ring", "exponential", "one_peer", "bipartite", "full", "matching" or "matrix".
        size: how many ranks.
        seed: of the random one.
        hosts: the host of each rank; (): all are on one.
        cross_every: every so-many-th round is between hosts, the others are within them.
        period: rounds until W repeats itself; 0: never, or after more than a million.
        column_error: by how much the sum of a column differs from 1, at most. 0: W is doubly
            stochastic, and no averaging moves the mean of all ranks.
        is_connected: whether what any rank has reaches all.
        contraction: to how much of it, at most, a round shrinks the distance from the mean, over a
            period (a random one: over 64 rounds); W's second largest singular value when it is
            always the same. 0: all are equal after a period. 1: never.
        gap: 1 - contraction, the spectral gap.
    """

    def __init__(
        self,
        name: Optional[str],
        size: int,
        seed: int,
        matrix: Tuple[float, ...],
        hosts: Tuple[int, ...] = (),
        cross_every: int = 1,
    ) -> None:
        numbers = matrix if name is None else None
        self._parts = (name, size, seed, numbers, hosts or None, cross_every)
        _native.topology_check(*self._parts)
        self.name = name or "matrix"
        self.size = size
        self.seed = seed
        self.hosts = hosts
        self.cross_every = cross_every
        self._rows: Dict[Tuple[int, int], Tuple[Tuple[float, ...], Tuple[int, ...]]] = {}

    def __repr__(self) -> str:
        return f"Topology({self.name!r}, size={self.size}, gap={self.gap:.4g})"

    @functools.cached_property
    def _report(self) -> Dict[str, Any]:
        return dict(json.loads(_native.topology_report(*self._parts)))

    @property
    def period(self) -> int:
        return int(self._report["period"])

    @property
    def column_error(self) -> float:
        return float(self._report["column_error"])

    @property
    def is_connected(self) -> bool:
        return bool(self._report["connected"])

    @property
    def contraction(self) -> float:
        return float(self._report["contraction"])

    @property
    def gap(self) -> float:
        return 1 - self.contraction

    def weights(self, index: int, round: int = 0) -> List[float]:
        """Row ``index`` of W in that ``round``, its own weight among them.

        Example:
            >>> covey.topology("ring", size=4).weights(1)
            [0.3333333333333333, 0.3333333333333333, 0.3333333333333333, 0.0]
        """
        return list(self._row(index, round)[0])

    def receivers(self, index: int, round: int = 0) -> List[int]:
        """The indices that take from ``index`` in that ``round``.

        Example:
            >>> covey.topology("one_peer", size=4).receivers(3, round=1)
            [1]
        """
        takes = self._row(index, round)[1]
        return [other for other, one in enumerate(takes) if one]

    def _row(self, index: int, turn: int) -> Tuple[Tuple[float, ...], Tuple[int, ...]]:
        place = (index, turn)
        if place not in self._rows:
            if len(self._rows) >= _KEPT_ROWS:
                self._rows.clear()
            self._rows[place] = _native.topology_row(self._parts, turn, index)[:2]
        return self._rows[place]

    def row_of(self, group: Group, turn: int) -> Row:
        """That of this rank, by global ranks. Internal."""
        ranks, index = group.ranks, group.rank()
        if index is None:  # The core says so.
            return Row(1.0, (), (), ())
        weights, takes = self._row(index, turn)
        return row_by_index(ranks, index, weights, takes)


def row_by_index(
    ranks: Sequence[int], index: int, weights: Sequence[float], takes: Sequence[int]
) -> Row:
    """A row by index in a group, by global ranks. Internal."""
    sources = [i for i, weight in enumerate(weights) if weight and i != index]
    return Row(
        weights[index],
        tuple(ranks[i] for i in sources),
        tuple(weights[i] for i in sources),
        tuple(ranks[i] for i, one in enumerate(takes) if one),
    )


_named = functools.lru_cache(maxsize=64)(Topology)


def topology(
    which: Any,
    size: Optional[int] = None,
    seed: int = 1,
    hosts: Optional[Sequence[int]] = None,
    cross_every: int = 1,
) -> Topology:
    """A topology, looked at: is it connected, does it keep the mean, how fast does it mix.

    Args:
        which: "ring", "exponential" (i takes from i - 2^k for all k), "one_peer" (from one of
            these, the next one each round), "bipartite" (pairs, by odd hops; even numbers of
            ranks), "full", "matching" (random pairs); or a matrix, [size][size], as nested
            sequences, an array or a tensor: not negative, each row summing to 1. Or a Topology.
        size: how many ranks. None: those of this job, or as many as the matrix has rows.
        seed: of matching.
        hosts: [size] the host of each rank, numbers from 0 and below size. None: all are on one.
        cross_every: with hosts and a name: ranks average within their host, and in every so-many-th
            round with ranks of other hosts, as ``cross_every`` of a method says; 1 to 1000. 1:
            hosts make no difference.

    Returns:
        A :class:`Topology`.

    Raises:
        InvalidArgument: (a ValueError) there is no such topology; the message names the row, or
            what there is and the nearest.

    Papers: Lian et al., 2017, arXiv:1705.09056; Ying et al., 2021, arXiv:2110.13363.

    Example:
        >>> ring = covey.topology("ring", size=8)
        >>> ring.period, ring.is_connected, round(ring.gap, 3)
        (1, True, 0.195)
        >>> covey.topology("full", size=4, hosts=[0, 0, 1, 1], cross_every=2).weights(0, round=1)
        [0.5, 0.0, 0.5, 0.0]
    """
    if isinstance(which, Topology):
        return which
    crossing = _crossing(hosts, cross_every)
    if isinstance(which, str):
        size = _number(_size(size), "size", _INT32)
        return _named(which.replace("-", "_"), size, _number(seed, "seed", 1 << 64), (), *crossing)
    rows = which.tolist() if hasattr(which, "tolist") else which
    try:
        numbers = tuple(float(weight) for row in rows for weight in row)
        count = len(rows)
    except (TypeError, ValueError):
        raise InvalidArgument(
            f"a topology is a name or a matrix (rows of weights), not {which!r}"
        ) from None
    if any(len(row) != count for row in rows) or size not in (None, count):
        shape = f"rows of {sorted({len(row) for row in rows})} weights, {count} of them"
        raise InvalidArgument(f"the matrix of a topology of {size or count} ranks has {shape}")
    return _named(None, count, seed, numbers, *crossing)


def _crossing(hosts: Optional[Sequence[int]], cross_every: int) -> Tuple[Tuple[int, ...], int]:
    every = _number(cross_every, "cross_every", _INT32)
    if every > 1 and hosts is None:
        raise InvalidArgument(
            f"cross_every of a topology is {every}, and hosts, the host of each rank, is not given"
        )
    if every == 0:
        raise InvalidArgument("cross_every of a topology is a number from 1, not 0")
    return tuple(_number(host, "host", _INT32) for host in hosts or ()), every


def _number(value: Any, what: str, end: int) -> int:
    """A number that a topology is made with. Raises InvalidArgument (a ValueError)."""
    try:
        number = operator.index(value)
    except TypeError:
        number = -1
    if not 0 <= number < end:
        raise InvalidArgument(f"the {what} of a topology is a whole number from 0, not {value!r}")
    return number


def _size(size: Optional[int]) -> int:
    return len(world.ranks) if size is None else size


def row_for(
    self_weight: Optional[float],
    src_weights: Optional[Mapping[int, float]],
    dst_ranks: Optional[Sequence[int]],
    which: Any,
    turn: int,
    any_sum: bool,
    group: Group,
) -> Row:
    """The arguments of neighbor_allreduce as a row. Internal."""
    if which is not None:
        if src_weights is not None or self_weight is not None or dst_ranks is not None:
            raise InvalidArgument(
                "neighbor_allreduce: a topology says with whom and with what weights; give it, or "
                "self_weight, src_weights and dst_ranks"
            )
        chosen = topology(which, None if isinstance(which, Topology) else group.size())
        if chosen.size != group.size():
            raise InvalidArgument(
                f"neighbor_allreduce: the topology {chosen.name} is one of {chosen.size} ranks, "
                f"and {group.size()} take part"
            )
        return chosen.row_of(group, turn)
    if src_weights is None:
        raise InvalidArgument(
            "neighbor_allreduce: give src_weights={rank: weight}, or a topology (ring, "
            "exponential, one_peer, bipartite, full, matching, or a matrix)"
        )
    if not isinstance(src_weights, Mapping):
        raise InvalidArgument(
            f"neighbor_allreduce: src_weights is {src_weights!r}, not a dict {{rank: weight}}"
        )
    sources = tuple(rank_of(rank, "neighbor_allreduce: src_weights") for rank in src_weights)
    weights = tuple(_weight(weight) for weight in src_weights.values())
    own = 1.0 - sum(weights) if self_weight is None else _weight(self_weight)
    return Row(own, sources, weights, _receivers(dst_ranks), bool(any_sum))


def rank_of(rank: Any, where: str) -> int:
    """A rank that a user gives. Internal."""
    try:
        number = operator.index(rank)
    except TypeError:
        number = _INT32
    if isinstance(rank, bool) or not -_INT32 <= number < _INT32:
        raise InvalidArgument(f"{where} has {rank!r}, which is no rank: ranks are integers")
    return number


def _weight(weight: Any) -> float:
    try:
        return float(weight)
    except (TypeError, ValueError):
        raise InvalidArgument(
            f"neighbor_allreduce: a weight is {weight!r}, which is no number"
        ) from None


def _receivers(dst_ranks: Optional[Sequence[int]]) -> Optional[Tuple[int, ...]]:
    if dst_ranks is None:
        return None
    try:
        listed = list(dst_ranks)
    except TypeError:
        raise InvalidArgument(
            f"neighbor_allreduce: dst_ranks is {dst_ranks!r}, not a list of ranks"
        ) from None
    return tuple(rank_of(rank, "neighbor_allreduce: dst_ranks") for rank in listed)
