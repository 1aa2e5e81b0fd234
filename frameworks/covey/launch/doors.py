"""The ways of a launcher or an agent to the workers of an elastic job on its host. Internal."""

from __future__ import annotations

import dataclasses
import os
import selectors
import socket
from types import MappingProxyType
from typing import Dict, List, Mapping, Sequence, Tuple

from covey.launch import book
from covey.launch.door import NO_FDS, Door, pair
from covey.launch.hosts import Place
from covey.launch.start import make_memory


class Doors:
    """All of them, by the numbers of the workers. Close it."""

    def __init__(self, selectors_: Sequence[selectors.BaseSelector], data: object) -> None:
        """The selectors return, with `data`, when a worker says something."""
        self._selectors, self._data = selectors_, data
        self._doors: Dict[int, Door] = {}

    def open(self, number: int) -> socket.socket:
        """The worker's end of a new way to it."""
        self.drop(number)
        self._doors[number], theirs = pair()
        for selector in self._selectors:
            selector.register(self._doors[number].socket, selectors.EVENT_READ, self._data)
        return theirs

    def heard(self) -> List[Tuple[int, str]]:
        """The messages that have come: the worker and the kind of each."""
        found = []
        for number, door in list(self._doors.items()):
            said = door.receive()
            while said is not None:
                found.append((number, said.kind))
                said = door.receive()
            if door.at_end:
                self.drop(number)
        return found

    def tell(self, number: int, kind: str, **fields: object) -> None:
        """Nothing happens where the worker has gone."""
        self._send(number, kind, NO_FDS, **fields)

    def _send(self, number: int, kind: str, fds: Mapping[str, int], **fields: object) -> None:
        if number in self._doors:
            self._doors[number].send(kind, fds, **fields)

    def admit(
        self,
        world: int,
        places: Mapping[int, Place],
        text: str = "",
        sockets: Mapping[int, Mapping[str, int]] = MappingProxyType({}),
    ) -> None:
        """These workers become ranks of a world, whose memory on this host is made. `text`: its
        book; `sockets`: further descriptors of each worker. Raises LaunchError."""
        fds = {"shm_fd": make_memory(len(places))}
        try:
            if text:
                fds["book_fd"] = book.make(text)
            for number, place in places.items():
                its = {**fds, **sockets.get(number, {})}
                self._send(number, "world", its, world=world, place=dataclasses.asdict(place))
        finally:
            for fd in fds.values():
                os.close(fd)

    def drop(self, number: int) -> None:
        """Closes the way to that worker, if there is one."""
        door = self._doors.pop(number, None)
        if door is not None:
            for selector in self._selectors:
                selector.unregister(door.socket)
            door.close()

    def close(self) -> None:
        """May be called again."""
        for number in list(self._doors):
            self.drop(number)
