"""The way of packets from one host to others: connections, and packets of full size. Internal.

A host opens a Sink at the address where ranks would listen, and the others send to it, all at once:

    sender  token               DATA_BYTES           -> closes
    sink    (closes: not ours)  "."                  "."

The token comes by ssh, so no stranger takes part. Small packets have passed both ways before a
large one leaves: when none of these is confirmed, packets of full size are lost on the way and no
router says so. Then smaller ones are tried.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import fcntl
import socket
import struct
import termios
import threading
import time
from typing import Any, Dict, List, Sequence, Tuple

from covey.launch import reach

DATA_BYTES = 1 << 20
PATIENCE_S = 3.0
# Sizes of packets that are tried where the network's own do not arrive: of Ethernet, of tunnels,
# and what IPv6 demands.
TRIED_SIZES = (1500, 1450, 1400, 1280)
# The longest that `outcomes` takes.
LONGEST_S = reach.TRY_S + 4 * PATIENCE_S
_BACKLOG = 128
_MOST_AT_ONCE = 64
_HEADERS = {socket.AF_INET: 40, socket.AF_INET6: 60}  # of IP and TCP
_IP_MTU = {socket.AF_INET: (socket.IPPROTO_IP, 14), socket.AF_INET6: (socket.IPPROTO_IPV6, 24)}
_TCP_INFO_RTT_AT = 68  # tcpi_rtt of linux/tcp.h, in microseconds


class Sink:
    """Takes what the other hosts send. Close it."""

    def __init__(self, address: str, token: str) -> None:
        """Listens at any free port. Raises OSError."""
        self._token = token.encode("ascii")
        family = _family(address)
        self._listener = socket.create_server((address, 0), family=family, backlog=_BACKLOG)
        self._pool = concurrent.futures.ThreadPoolExecutor(_MOST_AT_ONCE)
        self._thread = threading.Thread(target=self._run, name="covey-sink", daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self._listener.getsockname()[1])

    def _run(self) -> None:
        with contextlib.suppress(OSError):  # It is closed.
            while True:
                self._pool.submit(self._take, self._listener.accept()[0])

    def _take(self, came: socket.socket) -> None:
        with contextlib.suppress(OSError), came:
            came.settimeout(PATIENCE_S)
            if _exactly(came, len(self._token)) != self._token:
                return
            came.sendall(b".")
            left, until = DATA_BYTES, time.monotonic() + LONGEST_S
            while left and time.monotonic() < until:
                data = came.recv(1 << 16)
                if not data:
                    return
                left -= len(data)
            came.sendall(b".")

    def close(self) -> None:
        """Ends."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # Wakes accept.
        self._listener.close()
        self._thread.join()
        self._pool.shutdown(wait=False, cancel_futures=True)


def outcomes(targets: Sequence[Tuple[str, int]], token: str) -> List[Dict[str, Any]]:
    """The outcome of sending to the Sink at each of `targets`, with:

    why          why there is no connection; empty: there is one
    source       the own address that the system has chosen
    packet       bytes of the largest packet, as both ends see it
    round_trip_s, bytes_per_s (0: not all bytes arrived within PATIENCE_S)
    passed       bytes that have arrived
    fits         the largest of TRIED_SIZES that arrives, where `packet` does not; 0: none does
    """
    why = reach.failures(targets)
    with concurrent.futures.ThreadPoolExecutor(_MOST_AT_ONCE) as pool:
        tried = {
            index: pool.submit(_send, target, token, 0)
            for index, target in enumerate(targets)
            if index not in why
        }
        found = [
            tried[index].result() if index in tried else {"why": why[index]}
            for index in range(len(targets))
        ]
        holes = [index for index, one in enumerate(found) if is_hole(one)]
        sizes = {
            (index, size): pool.submit(_send, targets[index], token, size)
            for index in holes
            for size in TRIED_SIZES
            if size < found[index]["packet"]
        }
        for index in holes:
            fit = [s for (at, s), it in sizes.items() if at == index and it.result()["passed"]]
            found[index]["fits"] = max(fit, default=0)
    return found


def is_hole(one: Dict[str, Any]) -> bool:
    """Whether small packets arrive there and those of full size do not."""
    return not one["why"] and not one["passed"]


def _send(target: Tuple[str, int], token: str, size: int) -> Dict[str, Any]:
    """An outcome; `size`: of packets, 0: the network's."""
    family = _family(target[0])
    with socket.socket(family, socket.SOCK_STREAM) as out:
        if size:
            out.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, size - _HEADERS[family])
        out.settimeout(PATIENCE_S)
        found = {"why": "", "source": "", "packet": 0, "round_trip_s": 0.0, "bytes_per_s": 0.0,
                 "passed": 0}  # fmt: skip
        try:
            out.connect(target)
            out.sendall(token.encode("ascii"))
            if _exactly(out, 1) != b".":
                return {**found, "why": "something else answers there"}
            found["source"] = out.getsockname()[0]
            found["packet"] = out.getsockopt(*_IP_MTU[family])
            info = out.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_RTT_AT + 4)
            found["round_trip_s"] = struct.unpack_from("I", info, _TCP_INFO_RTT_AT)[0] / 1e6
        except OSError as error:
            why = error.strerror or f"{error} within {PATIENCE_S:g} s"
            return {**found, "why": why.lower()}
        begun = time.monotonic()
        found["passed"] = _data_passed(out)
        if found["passed"] == DATA_BYTES:
            found["bytes_per_s"] = DATA_BYTES / max(1e-9, time.monotonic() - begun)
        return found


def _data_passed(out: socket.socket) -> int:
    """How many of DATA_BYTES the other side has confirmed within PATIENCE_S."""
    sent, data, until = 0, memoryview(bytes(DATA_BYTES)), time.monotonic() + PATIENCE_S
    try:
        while sent < DATA_BYTES:
            out.settimeout(max(1e-3, until - time.monotonic()))
            sent += out.send(data[sent:])
        out.settimeout(max(1e-3, until - time.monotonic()))
        if _exactly(out, 1) == b".":
            return DATA_BYTES
    except OSError:
        pass
    (waiting,) = struct.unpack("i", fcntl.ioctl(out.fileno(), termios.TIOCOUTQ, bytes(4)))
    return max(0, min(sent - waiting, DATA_BYTES - 1))


def _exactly(sock: socket.socket, length: int) -> bytes:
    """So many bytes, or fewer at the end."""
    data = b""
    while len(data) < length:
        more = sock.recv(length - len(data))
        if not more:
            break
        data += more
    return data


def _family(address: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in address else socket.AF_INET
