"""The way between coveyrun and a rank of an elastic job: messages, which may carry a descriptor.

    rank      ask                       it wants a place in the next world
              ready                     it has the state of all ranks of its world
    coveyrun  world (its number, the place of a rank), with descriptors: its memory on this host; of
              several hosts also their book, and what the rank listens at and asks a witness by
              come                      others wait for that rank: it is to ask for a place
              lost (world, ranks, after_s)  their host is; the rank, if it does not see that itself
                                        within after_s, is to wait for them no longer
              over (why)                there will be no world for it

A message is one JSON object in one packet of a Unix socket. On other hosts than coveyrun's the
agent is between. Internal.
"""

from __future__ import annotations

import json
import os
import socket
from types import MappingProxyType
from typing import Any, Dict, Mapping, NamedTuple, Optional, Tuple

_MOST_BYTES, _MOST_DESCRIPTORS = 1 << 12, 8

NO_FDS: Mapping[str, int] = MappingProxyType({})


class Said(NamedTuple):
    """A message: its kind, its fields, and descriptors by name, which are the receiver's."""

    kind: str
    fields: Dict[str, Any]
    fds: Dict[str, int]


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

    def send(self, kind: str, fds: Mapping[str, int] = NO_FDS, **fields: Any) -> None:
        """Sends a message, with copies of `fds`. Nothing happens at the end."""
        data = json.dumps({"covey": kind, "fds": list(fds), **fields}).encode()
        try:
            socket.send_fds(self.socket, [data], list(fds.values()))
        except OSError:
            self.at_end = True

    def receive(self) -> Optional[Said]:
        """The next message; None: there is none, if the socket does not block, or no more."""
        try:
            flags = socket.MSG_CMSG_CLOEXEC
            data, fds, _, _ = socket.recv_fds(self.socket, _MOST_BYTES, _MOST_DESCRIPTORS, flags)
        except BlockingIOError:
            return None
        except OSError:
            data, fds = b"", []
        if not data:
            self.at_end = True
            return None
        fields = json.loads(data)
        return Said(str(fields.pop("covey")), fields, dict(zip(fields.pop("fds"), fds)))

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
