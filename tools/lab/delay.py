"""Delay without netem: one process carries each host's packets between its cable and its port.

A packet from a host waits for the delay, one to it does not: between any two hosts the one-way
delay is the one asked for. Packets are those of the kernel, segmentation and checksums undone.
"""

from __future__ import annotations

import collections
import select
import socket
import time
from typing import Deque, Dict, List, NoReturn, Optional, Tuple

from lab import linux

_ALL_PROTOCOLS = 3
_SOL_PACKET, _VNET_HEADER, _IGNORE_OUTGOING = 263, 15, 23
_SO_RCVBUFFORCE = 33
_BUFFER = 16 * 2**20
_LARGEST = 2**17
_BATCH = 64


def packets_of(device: str) -> socket.socket:
    """All packets that arrive at a device; what is sent leaves by it."""
    found = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    found.setsockopt(_SOL_PACKET, _VNET_HEADER, 1)
    found.setsockopt(_SOL_PACKET, _IGNORE_OUTGOING, 1)
    try:
        found.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _BUFFER)
    except PermissionError:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER)
    found.bind((device, _ALL_PROTOCOLS))
    found.setblocking(False)
    return found


class Relay:
    """Every cable of a cluster."""

    def __init__(self, hosts: int, delay_s: float) -> None:
        self._delay_s = delay_s
        self._due: Deque[Tuple[float, socket.socket, bytes]] = collections.deque()
        self._other_end: Dict[socket.socket, socket.socket] = {}
        self._from_host: Dict[socket.socket, bool] = {}
        for index in range(1, hosts + 1):
            cable, port = packets_of(f"cable{index}"), packets_of(f"relay{index}")
            self._other_end[cable], self._other_end[port] = port, cable
            self._from_host[cable], self._from_host[port] = True, False

    def run(self) -> NoReturn:
        """Until the process is killed."""
        linux.sleep_exactly()
        ends = list(self._other_end)
        while True:
            ready, _, _ = select.select(ends, [], [], self._send_due())
            self._take(ready)

    def _send_due(self) -> Optional[float]:
        """Sends what has waited. Returns the seconds until the next."""
        while self._due:
            left = self._due[0][0] - time.monotonic()
            if left > 0:
                return left
            _, end, packet = self._due.popleft()
            _send(end, packet)
        return None

    def _take(self, ready: List[socket.socket]) -> None:
        for end in ready:
            other, waits = self._other_end[end], self._from_host[end]
            for _ in range(_BATCH):
                try:
                    packet = end.recv(_LARGEST)
                except OSError:  # No more, or the link is down.
                    break
                if waits:
                    self._due.append((time.monotonic() + self._delay_s, other, packet))
                else:
                    _send(other, packet)


def _send(end: socket.socket, packet: bytes) -> None:
    try:
        end.send(packet)
    except OSError:
        pass  # A full queue or a link that is down loses packets, as a network does.
