"""A rank on another host, as coveyrun has it: what its agent tells, and is told. Internal."""

from __future__ import annotations

import signal
from typing import Optional

from covey.errors import shown
from covey.launch.channel import Channel
from covey.launch.process import DEAF


class RemoteRank:
    """A rank on a host, as a RankProcess is one here."""

    stdout_fd: Optional[int] = None
    stderr_fd: Optional[int] = None
    exit_fd: Optional[int] = None  # Its end comes with the news.
    is_watched = True

    def __init__(self, rank: int, pid: int, channel: Channel) -> None:
        self.rank, self.pid, self.host = rank, pid, shown(channel.name)
        self.returncode: Optional[int] = None
        self.out_of_memory = False
        self.lost = ""
        self._channel = channel
        self._reported: Optional[int] = None
        self._is_gone = self.left_rest = False

    @property
    def is_over(self) -> bool:
        """Whether its end is known, `poll` or not."""
        return self._reported is not None

    def is_on(self, channel: Channel) -> bool:
        """Whether that is its host."""
        return self._channel is channel

    def report(self, code: int, out_of_memory: bool = False, lost: str = "") -> None:
        """Its end, as the host has told; `lost`: as nobody has told, in words."""
        if self._reported is None:
            self._reported, self.out_of_memory, self.lost = code, out_of_memory, lost

    @property
    def has_rest(self) -> bool:
        """As RankProcess's."""
        is_known = self._is_gone or bool(self.lost) or self._channel.has_ended
        return self.returncode is not None and not is_known

    def report_gone(self, left_rest: bool) -> None:
        """Nothing of its group is left."""
        self._is_gone, self.left_rest = True, left_rest

    def poll(self) -> Optional[int]:
        """As RankProcess's."""
        self.returncode = self._reported
        return self.returncode

    def signal_group(self, number: int) -> None:
        """As RankProcess's, a moment later."""
        if self._reported is None:
            self._channel.wire.send("signal", ranks=[self.rank], number=int(number))

    def kill(self) -> None:
        """As RankProcess's, without waiting."""
        self.signal_group(signal.SIGKILL)

    def ask_where(self) -> str:
        """As RankProcess's, but why it does not say comes later: see `Fleet.deaf`."""
        if self._reported is not None:
            return DEAF
        self._channel.wire.send("ask", ranks=[self.rank])
        return ""

    def close(self) -> None:
        """Nothing is held here."""
