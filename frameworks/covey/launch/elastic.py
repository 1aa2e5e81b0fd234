"""The worlds of an elastic job, as coveyrun makes them: `Worlds` decides, and here ranks are told.

Each world has a memory of its own, which is made when it begins. Internal.
"""

from __future__ import annotations

import os
import selectors
import socket
from typing import Callable, Dict, List, Optional, Tuple

from covey.launch.door import Door, pair
from covey.launch.hosts import places
from covey.launch.spec import LaunchError
from covey.launch.start import HostPart, Starter, make_memory
from covey.launch.worlds import Terms, Worlds


class Elastic:
    """The ranks of an elastic job and their worlds. Close it.

    Attributes:
        worlds: which there are.
        starter: starts the ranks.
    """

    def __init__(
        self,
        terms: Terms,
        size: int,
        selector: selectors.BaseSelector,
        store: Optional[Tuple[str, int]],
    ) -> None:
        """`selector` returns when a rank says something; `store`: as of a HostPart."""
        self.worlds = Worlds(terms, range(size))
        self.starter = Starter()
        self._size, self._store = size, store
        self._doors: Dict[int, Door] = {}
        self._selector = selector

    def part(self, number: Optional[int] = None) -> HostPart:
        """The part of this host that starts the worker with this number; None: all first ones."""
        every = places([self._size])
        chosen = every if number is None else [every[number]]
        doors = [self._door(place.rank) for place in chosen]
        return HostPart(chosen, -1, store=self._store, doors=doors, starter=self.starter)

    def replace(self, start: Callable[[HostPart], None]) -> None:
        """Starts the workers that are wanted."""
        for number in self.worlds.wanted():
            try:
                self._start(number, start)
            except LaunchError as error:
                self.worlds.failure = str(error)
                return
            self.worlds.starts(number)

    def _start(self, number: int, start: Callable[[HostPart], None]) -> None:
        try:
            start(self.part(number))
        except LaunchError:
            self.starter.close()  # Of --preload: its process may be gone.
            start(self.part(number))

    def _door(self, number: int) -> socket.socket:
        """The worker's end of a new way to it."""
        self._drop(number)
        self._doors[number], theirs = pair()
        self._selector.register(self._doors[number].socket, selectors.EVENT_READ, self)
        return theirs

    def ends(self, number: int, is_well: bool) -> None:
        """A worker has ended."""
        self.worlds.ends(number, is_well)
        self._drop(number)

    def act(self, now: float) -> List[str]:
        """Hears the ranks and tells them what follows. Returns what there is to say to the user."""
        for number, door in list(self._doors.items()):
            said = door.receive()
            while said is not None:
                if said.kind == "ask":
                    self.worlds.asks(number)
                elif said.kind == "ready":
                    self.worlds.is_ready(number)
                said = door.receive()
            if door.at_end:
                self._drop(number)
        lines = [*self._make(now), *filter(None, [self.worlds.notice(now)])]
        for number in self.worlds.called():
            self._tell(number, "come")
        why = self.worlds.failure or "other ranks have ended the training well"
        for number in self.worlds.dismissed():
            self._tell(number, "over", why=why)
        return lines

    def _make(self, now: float) -> List[str]:
        world = self.worlds.advance(now)
        if world is None:
            return []
        size = len(world.workers)
        try:
            memory = make_memory(size)
        except LaunchError as error:
            self.worlds.failure = str(error)
            return []
        for rank, number in enumerate(world.workers):
            place = {"world": world.number, "rank": rank, "size": size}
            self._tell(number, "world", memory, **place)
        os.close(memory)
        return [] if world.number == 0 else [f"world {world.number + 1}: {size} ranks"]

    def deadlines(self) -> List[float]:
        """When `act` has something to do, event or not."""
        return self.worlds.deadlines()

    def _tell(self, number: int, kind: str, fd: int = -1, **fields: object) -> None:
        if number in self._doors:
            self._doors[number].send(kind, fd, **fields)

    def _drop(self, number: int) -> None:
        door: Optional[Door] = self._doors.pop(number, None)
        if door is not None:
            self._selector.unregister(door.socket)
            door.close()

    def close(self) -> None:
        """May be called again."""
        self.starter.close()
        for number in list(self._doors):
            self._drop(number)
