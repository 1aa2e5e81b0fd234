"""The way between coveyrun and a rank of an elastic job: messages, which may carry a descriptor.

    rank      ask                       it wants a place in the next world
              ready                     it has the state of all ranks of its world
    coveyrun  world (its number, rank, size), with the descriptor of its memory
              come                      others wait for that rank: it is to ask for a place
              over (why)                there will be no world for it

A message is one JSON object in one packet of a Unix socket. Internal.
"""

from __future__ import annotations

import json
import os
import socket
from typing import Any, Dict, NamedTuple, Optional, Tuple

_MOST_BYTES = 1 << 12


class Said(NamedTuple):
    """A message: its kind, its fields, and a descriptor, which is the receiver's; -1: none."""

    kind: str
    fields: Dict[str, Any]
    fd: int


class Door:
    """One end. Close it.

    Attributes:
        socket: readable when there is a message, or the other end is closed.
        at_end: the other end is closed.
    """

    def __init__(self, own: socket.socket) -> None:
        """Owns the socket from now on."""
        self.socket = own
        self.at_end = False

    def send(self, kind: str, fd: int = -1, **fields: Any) -> None:
        """Sends a message, with a copy of `fd` unless that is -1. Nothing happens at the end."""
        data = json.dumps({"covey": kind, **fields}).encode()
        try:
            if fd < 0:
                self.socket.send(data)
            else:
                socket.send_fds(self.socket, [data], [fd])
        except OSError:
            self.at_end = True

    def receive(self) -> Optional[Said]:
        """The next message; None: there is none, if the socket does not block, or no more."""
        try:
            flags = socket.MSG_CMSG_CLOEXEC
            data, fds, _, _ = socket.recv_fds(self.socket, _MOST_BYTES, 1, flags)
        except BlockingIOError:
            return None
        except OSError:
            data, fds = b"", []
        if not data:
            self.at_end = True
            return None
        fields = json.loads(data)
        return Said(str(fields.pop("covey")), fields, fds[0] if fds else -1)

    def close(self) -> None:
        """May be called again."""
        self.socket.close()


def pair() -> Tuple[Door, socket.socket]:
    """coveyrun's end, which does not block, and the rank's, to be inherited."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setblocking(False)
    return Door(ours), theirs


def inherited(fd: int) -> Door:
    """The rank's end, which its launcher has left it under this number. Raises OSError."""
    return Door(socket.socket(fileno=os.dup(fd)))
