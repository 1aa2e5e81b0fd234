"""Waiting for the answers of several hosts at once. Internal."""

from __future__ import annotations

import select
import time
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

from covey.errors import shown
from covey.launch.channel import Channel
from covey.launch.spec import LaunchError


class Waiting:
    """For answers of all hosts."""

    def __init__(
        self,
        channels: Sequence[Channel],
        pump: Callable[[Channel, float], None],
        readable: Tuple[Any, Optional[int]],
        stopped: Callable[[], None],
    ) -> None:
        """`readable`: something is to be read there when a host has answered; the same of
        signals."""
        self._channels, self._pump, self._stopped = channels, pump, stopped
        self._readable = [it for it in readable if it is not None]
        self._answers: Dict[Channel, Dict[str, Any]] = {}
        self._failed: Dict[Channel, str] = {}

    def all(self, kind: str, limit_s: float) -> List[Dict[str, Any]]:
        """The next message of each, which is of that kind. Raises LaunchError."""
        answers, failed = self.some(self._channels, kind, limit_s)
        if failed:
            raise LaunchError("\n".join(failed.values()))
        return [answers[channel] for channel in self._channels]

    def some(
        self, channels: Sequence[Channel], kind: str, limit_s: float
    ) -> Tuple[Dict[Channel, Dict[str, Any]], Dict[Channel, str]]:
        """The same of these alone: their messages, and why the others have sent none."""
        self._answers, self._failed, until = {}, {}, time.monotonic() + limit_s
        while True:
            now = time.monotonic()
            for channel in channels:
                self._look(channel, kind, now)
            missing = [c for c in channels if c not in self._answers and c not in self._failed]
            if not missing or now >= until:
                break
            beat = min(channel.deadline(now) for channel in channels)
            select.select(self._readable, [], [], max(0.0, min(until, beat) - now))
            self._stopped()
        for channel in missing:
            text = f"{channel.name}: no answer within {limit_s:g} s (--start-timeout)"
            self._failed[channel] = text
        answers = {c: self._answers[c] for c in channels if c in self._answers}
        return answers, {c: self._failed[c] for c in channels if c in self._failed}

    def _look(self, channel: Channel, kind: str, now: float) -> None:
        self._pump(channel, now)
        if channel in self._answers or channel in self._failed:
            return
        if channel.messages:
            message = channel.messages.popleft()
            if message["covey"] == kind:
                self._answers[channel] = message
            elif message["covey"] == "refused":
                self._failed[channel] = f"{channel.name}: {shown(message['text'])}"
            else:
                self._failed[channel] = f"{channel.name}: a message out of turn"
        elif channel.has_ended:
            self._failed[channel] = channel.why_not_started()
