"""The connections that the ranks of a host will need: listeners, and tries of those of other hosts
before a rank starts. Internal."""

from __future__ import annotations

import errno
import os
import selectors
import socket
import time
from typing import Any, Dict, List, Sequence, Tuple

from covey.errors import shown
from covey.launch.spec import LaunchError

TRY_S = 3.0
# Each host tries so many others, those that follow it: all pairs of 17 hosts, of more a sample.
MOST_TRIED = 16
_BACKLOG = 4096  # Every rank of the job may connect at once; the system has a limit of its own.


def listen(address: str, count: int) -> List[socket.socket]:
    """Listeners at free ports of that address, the caller's to close. Raises LaunchError."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    made: List[socket.socket] = []
    try:
        for _ in range(count):
            made.append(socket.create_server((address, 0), family=family, backlog=_BACKLOG))
    except OSError as error:
        for listener in made:
            listener.close()
        raise LaunchError(f"cannot listen at {address}: {error.strerror}") from error
    return made


def targets(count: int, index: int) -> List[int]:
    """The hosts that host `index` of `count` tries."""
    return [(index + step) % count for step in range(1, min(count, MOST_TRIED + 1))]


def failures(addresses: Sequence[Tuple[str, int]], limit_s: float = TRY_S) -> Dict[int, str]:
    """Why there is no connection to which of `addresses`, by index; tries all at once."""
    selector, why = selectors.DefaultSelector(), {}
    for index, (address, port) in enumerate(addresses):
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        attempt = socket.socket(family, socket.SOCK_STREAM)
        attempt.setblocking(False)
        error = attempt.connect_ex((address, port))
        if error not in (0, errno.EINPROGRESS):
            why[index] = _words(error)
            attempt.close()
            continue
        selector.register(attempt, selectors.EVENT_WRITE, index)
    until = time.monotonic() + limit_s
    while selector.get_map() and time.monotonic() < until:
        for key, _ in selector.select(max(0.0, until - time.monotonic())):
            attempt = key.fileobj  # type: ignore[assignment]
            error = attempt.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if error:
                why[key.data] = _words(error)
            selector.unregister(attempt)
            attempt.close()
    for key in list(selector.get_map().values()):
        why[key.data] = f"no answer within {limit_s:g} s"
        key.fileobj.close()  # type: ignore[union-attr]
    selector.close()
    return why


def in_words(host: str, other: str, where: Sequence[Any], why: str) -> Tuple[str, str]:
    """The failure of `host` to reach `other`, as seen, and the next step."""
    seen = f"{host} cannot reach {other} at {where[0]}:{where[1]} ({shown(why)})"
    step = "open the TCP ports between the hosts, or choose another network by --network"
    return seen, f"a firewall? {step}"


def _words(error: int) -> str:
    return os.strerror(error).lower()
