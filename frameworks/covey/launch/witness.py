"""The witness records of a job's replicas (core/replicated/witness.h), in coveyrun.

There is a record for each bundle of tensors, which changes only for a rank that has seen its last
state. Internal.

A rank asks through its agent. Requests and answers are as in core/api/witness_door.h:

    request  channel, number, state (8 bytes each, little-endian), record; no record: what is it?
    answer   channel, number, state (8 bytes each), 1 byte: it was taken; record
"""

from __future__ import annotations

import socket
import struct
from typing import Dict, Optional, Tuple

_REQUEST = struct.Struct("<QQQ")
_ANSWER = struct.Struct("<QQQ?")
_MOST_RECORD_BYTES = 256
_MOST_RECORDS = 1 << 16


def way() -> Tuple[socket.socket, socket.socket]:
    """Two ends of a socket, by which a rank asks for witness records: the agent's, which does not
    block, and the rank's."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setblocking(False)
    return ours, theirs


class Witnesses:
    """All records of a job."""

    def __init__(self) -> None:
        self._records: Dict[int, Tuple[int, bytes]] = {}  # by channel: number of changes, record

    def answer(self, request: bytes) -> Optional[bytes]:
        """To one request. None: it is none, or there is no room for another record."""
        record = request[_REQUEST.size :]
        if len(request) < _REQUEST.size or len(record) > _MOST_RECORD_BYTES:
            return None
        channel, number, seen = _REQUEST.unpack_from(request)
        state, kept = self._records.get(channel, (0, b""))
        is_taken = bool(record) and seen == state
        if is_taken:
            if state == 0 and len(self._records) >= _MOST_RECORDS:
                return None
            state, kept = state + 1, record
            self._records[channel] = (state, kept)
        return _ANSWER.pack(channel, number, state, is_taken) + kept
