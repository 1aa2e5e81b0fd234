"""Signs of life on a wire: each side sends some while it has nothing else to say, and takes the
other for dead after a silence. No clock of its own. Internal."""

from __future__ import annotations

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
        self.is_suspended = False  # the other side has said that it will be silent

    def heard(self, now: float) -> None:
        """Something has come."""
        self._heard_at = now
        self.is_suspended = False

    def beat(self, now: float) -> None:
        """Sends a sign when it is time."""
        if now >= self._next_at:
            self._next_at = now + self._lease_s / _BEATS_PER_LEASE
            if not self._wire.pending_bytes:  # Else the other side has enough to read.
                self._wire.send("alive")

    def is_silent(self, now: float) -> bool:
        """Whether the other side counts as dead. Ask when all that has come is read."""
        return not self.is_suspended and now > self._heard_at + self._lease_s

    def deadline(self) -> float:
        """When to ask and to beat again."""
        return self._next_at
