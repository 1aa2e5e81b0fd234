"""Groups of ranks.

A group is a set of ranks that run collective operations among themselves. Making one is a local
act: no rank is asked, and ranks outside need not make it. Horovod calls this a process set;
``ProcessSet`` is another name of :class:`Group`.
"""

from __future__ import annotations

import operator
from typing import Iterable, List, Optional, Tuple

from covey import _native
from covey.errors import InvalidArgument
from covey.state import state


class Group:
    """The ranks in ``ranks``, or every rank of the job when it is None.

    Order does not matter and the same ranks are the same group on every rank. The object may be
    made before ``init()``; it then takes effect at its first use.

    Args:
        ranks: distinct global ranks, each in 0..size-1.

    Raises:
        InvalidArgument: (a ValueError) a rank is listed twice or is no integer, or, once the job's
            size is known, lies outside of it.

    Example:
        >>> even = covey.Group(range(0, covey.size(), 2))
        >>> if even.included():
        ...     covey.allreduce(tensor, name="even", group=even)
    """

    __slots__ = ("_ranks", "_number", "_init_epoch", "__weakref__")

    def __init__(self, ranks: Optional[Iterable[int]] = None) -> None:
        self._number = 0
        self._init_epoch = -1
        self._ranks: Optional[Tuple[int, ...]] = None
        if ranks is None:
            return
        try:
            listed = [operator.index(rank) for rank in ranks]
        except TypeError:
            raise InvalidArgument(f"a group is made of integer ranks, not of {ranks!r}") from None
        self._ranks = tuple(sorted(set(listed)))
        if len(self._ranks) != len(listed):
            raise InvalidArgument(f"a rank is listed twice in the group {sorted(listed)}")

    @property
    def id(self) -> int:
        """The number of this group in the core. Raises as the constructor does."""
        if self._init_epoch != state.init_epoch and self._ranks is not None:
            state.require()
            self._number = _native.group_of(self._ranks)
            self._init_epoch = state.init_epoch
        return self._number

    @property
    def ranks(self) -> List[int]:
        """The members' global ranks in ascending order."""
        if self._ranks is None:
            return list(range(state.require().size))
        return list(self._ranks)

    @property
    def process_set_id(self) -> Optional[int]:
        """Horovod's name of :attr:`id`: 0 for the group of all ranks, None before ``init()``."""
        if self._ranks is None:
            return 0
        return None if state.place is None else self.id

    @process_set_id.setter
    def process_set_id(self, _number: Optional[int]) -> None:
        # Horovod finds out at the next operation: a ValueError in both.
        raise InvalidArgument("process_set_id is read only: a group is known by its ranks")

    def size(self) -> int:
        """Number of members."""
        return state.require().size if self._ranks is None else len(self._ranks)

    def rank(self) -> Optional[int]:
        """The position of this process among the members, None when it is not one of them."""
        mine = state.require().rank
        if self._ranks is None:
            return mine
        return self._ranks.index(mine) if mine in self._ranks else None

    def included(self) -> bool:
        """Whether this process is a member."""
        return self._ranks is None or state.require().rank in self._ranks

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Group):
            return NotImplemented
        if self._ranks is None or other._ranks is None:
            whole = other if self._ranks is None else self
            if whole._ranks is None:
                return True
            return state.place is not None and whole._ranks == tuple(range(state.place.size))
        return self._ranks == other._ranks

    def __hash__(self) -> int:
        if self._ranks is not None and state.place is not None:
            return hash(None if len(self._ranks) == state.place.size else self._ranks)
        return hash(self._ranks)

    def __repr__(self) -> str:
        return "Group()" if self._ranks is None else f"Group({list(self._ranks)})"


class GroupApart(Group):
    """The same ranks as ``Group(ranks)``, with names and an order of unnamed operations of its own,
    which ``order``, a text that is not empty, tells apart. Internal."""

    __slots__ = ("_order",)

    def __init__(self, ranks: Iterable[int], order: str) -> None:
        super().__init__(ranks)
        self._order = order

    @property
    def id(self) -> int:
        if self._init_epoch != state.init_epoch:
            state.require()
            self._number = _native.group_of(tuple(self.ranks), self._order)
            self._init_epoch = state.init_epoch
        return self._number


world = Group()
"""Every rank of the job: the default of each operation's group. Methods: :class:`Group`."""


def group(ranks: Iterable[int]) -> Group:
    """Makes the group of ``ranks`` and checks it against the job. See :class:`Group`.

    Raises:
        InvalidArgument: (a ValueError) a rank is listed twice or is not in 0..size-1.
        NotInitialized: (a ValueError) before ``init()``.

    Example:
        >>> pair = covey.group([0, 1])
    """
    made = Group(ranks)
    state.require()
    made.id  # pylint: disable=pointless-statement  # Asks the core: refuses wrong ranks now.
    return made
