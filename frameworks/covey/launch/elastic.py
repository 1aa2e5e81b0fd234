"""The worlds of an elastic job, as coveyrun makes them: `Worlds` decides, here workers are told.

Each world has memory of its own on each host, which is made when it begins. Internal.
"""

from __future__ import annotations

import selectors
from typing import Callable, Dict, List, Mapping, Optional, Protocol, Sequence, Tuple

from covey.launch.doors import Doors
from covey.launch.hosts import Place, places, places_of
from covey.launch.spec import LaunchError
from covey.launch.start import HostPart, Starter
from covey.launch.worlds import Terms, World, Worlds


class WorkerOps(Protocol):
    """The operations on workers: `LocalWorkers` on the host of coveyrun, `RemoteWorkers` on others.

    Attributes:
        lease_s: so long after coveyrun the ranks see themselves that a host is lost.
    """

    @property
    def lease_s(self) -> float:
        """See above."""

    def hosts(self) -> Sequence[int]:
        """The hosts of all places, by number."""

    def gone(self) -> Sequence[int]:
        """The places of hosts that are lost, or leave."""

    def came(self, now: float) -> Mapping[int, int]:
        """New places: their hosts, by number."""

    def heard(self) -> List[Tuple[int, str]]:
        """The messages that have come: the worker and the kind of each."""

    def tell(self, number: int, kind: str, **fields: object) -> None:
        """Nothing happens where the worker has gone."""

    def admit(self, world: int, seats: Mapping[int, Place]) -> None:
        """These workers become ranks of a world. Raises LaunchError."""

    def start(self, number: int) -> None:
        """Starts a worker. Raises LaunchError."""

    def ends(self, number: int) -> None:
        """A worker has ended."""

    def deadlines(self, now: float) -> List[float]:
        """When `came` has something to do, event or not."""

    def close(self) -> None:
        """May be called again."""


class LocalWorkers:
    """All workers are on this host."""

    lease_s = 0.0

    def __init__(
        self,
        size: int,
        selector: selectors.BaseSelector,
        store: Optional[Tuple[str, int]],
        start: Callable[[HostPart], None],
    ) -> None:
        """`selector` returns when a worker says something; `store`: as of a HostPart."""
        self._size, self._store, self._start = size, store, start
        self._starter = Starter()
        self._doors = Doors([selector], self)

    def hosts(self) -> Sequence[int]:
        """As of WorkerOps."""
        return [0] * self._size

    def gone(self) -> Sequence[int]:
        """As of WorkerOps."""
        return []

    def came(self, now: float) -> Mapping[int, int]:
        """As of WorkerOps."""
        return {}

    def deadlines(self, now: float) -> List[float]:
        """As of WorkerOps."""
        return []

    def part(self, number: Optional[int] = None) -> HostPart:
        """The start of the worker with this number; None: of all that are started first."""
        every = places([self._size])
        chosen = every if number is None else [every[number]]
        doors = [self._doors.open(place.rank) for place in chosen]
        return HostPart(chosen, -1, store=self._store, doors=doors, starter=self._starter)

    def heard(self) -> List[Tuple[int, str]]:
        """As of WorkerOps."""
        return self._doors.heard()

    def tell(self, number: int, kind: str, **fields: object) -> None:
        """As of WorkerOps."""
        self._doors.tell(number, kind, **fields)

    def admit(self, world: int, seats: Mapping[int, Place]) -> None:
        """As of WorkerOps."""
        self._doors.admit(world, seats)

    def start(self, number: int) -> None:
        """As of WorkerOps."""
        self._starter.retried(lambda: self._start(self.part(number)))

    def ends(self, number: int) -> None:
        """As of WorkerOps."""
        self._doors.drop(number)

    def close(self) -> None:
        """As of WorkerOps."""
        self._starter.close()
        self._doors.close()


class Elastic:
    """The workers of an elastic job and their worlds. Close it.

    Attributes:
        worlds: which there are.
    """

    def __init__(self, terms: Terms, size: int, ops: WorkerOps) -> None:
        """`size` workers are started first. Owns `ops`."""
        self.worlds = Worlds(terms, ops.hosts(), size)
        self._ops, self._least = ops, terms.least
        self._lost: List[int] = []  # Ranks of the world whose host is lost, since they were told.

    def replace(self) -> None:
        """Starts the workers that are wanted."""
        for number in self.worlds.wanted():
            try:
                self._ops.start(number)
            except LaunchError as error:
                self.worlds.failure = str(error)
                return
            self.worlds.starts(number)

    def ends(self, number: int, is_well: bool) -> None:
        """A worker has ended."""
        gone, rank = self._ops.gone(), self.worlds.rank_of(number)
        if number in gone and rank >= 0 and not is_well:
            self._lost.append(rank)
        self.worlds.withdraws(gone)
        self.worlds.ends(number, is_well)
        self._ops.ends(number)

    def act(self, now: float) -> List[str]:
        """Hears the workers and tells them what follows. Returns what there is to say to the
        user."""
        self.worlds.withdraws(self._ops.gone())
        if not self.worlds.is_over:
            self.worlds.offers(self._ops.came(now))
        for number, kind in self._ops.heard():
            if kind == "ask":
                self.worlds.asks(number)
            elif kind == "ready":
                self.worlds.is_ready(number)
        self._tell_of_lost()
        world = self.worlds.advance(now)
        lines = [] if world is None else self._begin(world)
        for number in self.worlds.called(now):
            self._ops.tell(number, "come")
        why = self.worlds.failure or "another rank has ended with exit code 0"
        for number in self.worlds.dismissed():
            self._ops.tell(number, "over", why=why)
        return [*lines, *filter(None, [self.worlds.notice(now)])]

    def _tell_of_lost(self) -> None:
        """A host may be silent although its system answers: then ranks wait for it for ever."""
        lost, self._lost = self._lost, []
        if lost:
            about = {"world": self.worlds.made - 1, "ranks": lost, "after_s": self._ops.lease_s}
            for number in self.worlds.members():
                self._ops.tell(number, "lost", **about)

    def _begin(self, world: World) -> List[str]:
        hosts = [self.worlds.host_of(number) for number in world.workers]
        seats = places_of(_numbered(hosts))
        try:
            self._ops.admit(world.number, dict(zip(world.workers, seats)))
        except LaunchError as error:
            self.worlds.failure = str(error)
            return []
        of_hosts = "" if seats[0].local_size == len(seats) else f" on {seats[-1].host + 1} hosts"
        ranks = f"{len(seats)} rank{'s' * (len(seats) > 1)}{of_hosts}"
        return [] if world.number == 0 else [f"world {world.number + 1}: {ranks}"]

    def outcome(self) -> Tuple[int, int]:
        """So many ranks have to end well, and so many worlds were made."""
        return self._least, self.worlds.made

    def deadlines(self, now: float) -> List[float]:
        """When `act` has something to do, event or not."""
        found = [] if self.worlds.is_over else self._ops.deadlines(now)
        return [*self.worlds.deadlines(), *found]

    def close(self) -> None:
        """May be called again."""
        self._ops.close()


def _numbered(hosts: Sequence[int]) -> List[int]:
    """The same hosts, numbered from 0 in their order."""
    numbers: Dict[int, int] = {}
    return [numbers.setdefault(host, len(numbers)) for host in hosts]
