"""A rank on another host, as coveyrun has it: what its agent tells, and is told. Internal."""

from __future__ import annotations

import signal
from typing import Optional

from covey.errors import shown
from covey.launch.channel import Channel


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

    def ask_where(self) -> bool:
        """As RankProcess's, but it may turn out to be deaf: see `Fleet.deaf`."""
        if self._reported is None:
            self._channel.wire.send("ask", ranks=[self.rank])
        return self._reported is None

    def close(self) -> None:
        """Nothing is held here."""
