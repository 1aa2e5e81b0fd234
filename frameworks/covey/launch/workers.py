"""The workers of an elastic job on a host: the agent passes on what they and coveyrun say.

A worker that asks for a place gets a listener, whose port coveyrun is told. In a world on several
hosts it also gets a socket by which it asks for that world's witness records. Internal.
"""

from __future__ import annotations

import selectors
import socket
from typing import Any, Dict, List, Sequence

from covey.launch import reach, witness
from covey.launch.doors import Doors
from covey.launch.hosts import Place


class Workers:
    """All of them. Close it.

    Attributes:
        doors: the ways to them.
        witnesses: by number, the sockets of their requests for witness records.
        world: the number of their last world.
    """

    def __init__(self, address: str, selectors_: Sequence[selectors.BaseSelector]) -> None:
        """`address`: of this host, for the others. The selectors return when a worker says
        something: a request of number n with (n, "witness")."""
        self.doors = Doors(selectors_, None)
        self._address, self._selectors = address, selectors_
        self._listeners: Dict[int, socket.socket] = {}
        self.witnesses: Dict[int, socket.socket] = {}
        self.world = 0

    def heard(self) -> List[Dict[str, Any]]:
        """The messages of workers since the last call, as coveyrun gets them. Raises
        LaunchError."""
        found = []
        for number, kind in self.doors.heard():
            said: Dict[str, Any] = {"number": number, "what": kind}
            if kind == "ask":
                self._forget(number)
                (self._listeners[number],) = reach.listen(self._address, 1)
                said["port"] = self._listeners[number].getsockname()[1]
            found.append(said)
        return found

    def admit(self, message: Dict[str, Any]) -> None:
        """They become ranks of a world. Raises LaunchError."""
        places = {int(number): Place(**place) for number, place in message["places"].items()}
        self.world, text = message["world"], message["book"]
        sockets: Dict[int, Dict[str, int]] = {}
        theirs = []
        for number in places if text else ():
            if number in self._listeners:  # Else it has ended.
                theirs.append(self._witness(number))
                sockets[number] = {
                    "listen_fd": self._listeners[number].fileno(),
                    "witness_fd": theirs[-1].fileno(),
                }
        try:
            self.doors.admit(self.world, places, text, sockets)
        finally:
            for it in theirs:
                it.close()
            for number in places:
                self._close_listener(number)

    def _witness(self, number: int) -> socket.socket:
        """A new socket for requests for witness records: the worker's end."""
        self.witnesses[number], theirs = witness.way()
        for selector in self._selectors:
            selector.register(self.witnesses[number], selectors.EVENT_READ, (number, "witness"))
        return theirs

    def _close_listener(self, number: int) -> None:
        listener = self._listeners.pop(number, None)
        if listener is not None:
            listener.close()

    def _forget(self, number: int) -> None:
        """It is in no world."""
        self._close_listener(number)
        requests = self.witnesses.pop(number, None)
        if requests is not None:
            for selector in self._selectors:
                if requests in selector.get_map():
                    selector.unregister(requests)
            requests.close()

    def drop(self, number: int) -> None:
        """A worker has ended."""
        self._forget(number)
        self.doors.drop(number)

    def close(self) -> None:
        """May be called again."""
        for number in {*self._listeners, *self.witnesses}:
            self._forget(number)
        self.doors.close()
