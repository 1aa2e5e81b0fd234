"""Signs of life on a wire: each side sends some while it has nothing else to say, and takes the
other for dead after a silence. Internal."""

from __future__ import annotations

import threading
import time
from typing import Sequence

from covey.launch.wire import Wire

_BEATS_PER_LEASE = 4


class Pulse:
    """Of one wire."""

    def __init__(self, wire: Wire, lease_s: float, now: float) -> None:
        """`lease_s`: a silence that is longer means death."""
        self._wire = wire
        self._lease_s = lease_s
        self._heard_at = now
        self._next_at = now
        self.is_suspended = False  # the other side may be silent, as it has said

    def heard(self, now: float) -> None:
        """Something has come."""
        self._heard_at = now

    def beat(self, now: float) -> None:
        """Sends a sign when it is time."""
        if now >= self._next_at:
            self._next_at = now + self._lease_s / _BEATS_PER_LEASE
            self._wire.send_if_idle("alive")

    def is_silent(self, now: float) -> bool:
        """Whether the other side counts as dead. Ask when all that has come is read."""
        return not self.is_suspended and now > self._heard_at + self._lease_s

    def deadline(self) -> float:
        """When to ask and to beat again."""
        return self._next_at


class Heart:
    """A thread that beats: the other sides hear of this one even while it waits for a reader of its
    output, as for a pager."""

    def __init__(self, pulses: Sequence[Pulse], lease_s: float) -> None:
        """Begins. Close it before the wires."""
        self._pulses, self._wait_s = list(pulses), lease_s / (2 * _BEATS_PER_LEASE)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="covey-heart", daemon=True)
        self._thread.start()

    def add(self, pulse: Pulse) -> None:
        """One more."""
        self._pulses.append(pulse)

    def _run(self) -> None:
        while not self._stopped.wait(self._wait_s):
            for pulse in list(self._pulses):
                pulse.beat(time.monotonic())

    def close(self) -> None:
        """Ends."""
        self._stopped.set()
        self._thread.join()
