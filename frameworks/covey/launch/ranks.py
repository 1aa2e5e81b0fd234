"""The ranks that a launcher watches, each with its two streams, here or on other hosts.

Nothing here decides: job.py does.
"""

from __future__ import annotations

import os
import selectors
import signal
import sys
import time
from typing import Callable, Dict, List, Optional, Protocol, Sequence

from covey.launch import report, rest
from covey.launch.output import Console, RankStream, TeeFile
from covey.launch.process import RankProcess
from covey.launch.summary import Summary

DRAIN_READS = 1024


class Rank(Protocol):
    """A started rank: see RankProcess, whose attributes these are, and RemoteRank.

    Attributes:
        host: where it runs, when that is not here; else empty.
        lost: how its host was lost, in words, when its end was not seen; else empty.
        exit_fd: readable when it has ended; None: there is none.
        is_watched: whether the launcher wakes up when it ends.
        left_rest: it ended with exit code 0, and what it left did not end by itself.
    """

    left_rest: bool
    rank: int
    pid: int
    host: str
    lost: str

    @property
    def stdout_fd(self) -> Optional[int]:
        """Its output to be read; None: `Ranks.feed` is told."""

    @property
    def stderr_fd(self) -> Optional[int]:
        """The same of its errors."""

    @property
    def exit_fd(self) -> Optional[int]:
        """See above."""

    @property
    def returncode(self) -> Optional[int]:
        """The exit code that the last `poll` saw."""

    @property
    def has_rest(self) -> bool:
        """Whether it has ended, and something of its group may be there."""

    @property
    def out_of_memory(self) -> bool:
        """Whether the kernel has killed it for memory."""

    @property
    def is_watched(self) -> bool:
        """See above."""

    def poll(self) -> Optional[int]:
        """Looks whether it has ended."""

    def signal_group(self, number: int) -> None:
        """Sends a signal to it and all of its group."""

    def kill(self) -> None:
        """Ends it for good."""

    def ask_where(self) -> str:
        """Has it say where it is. Returns why it does not, of where.py; "": it may."""

    def close(self) -> None:
        """Closes its descriptors."""


class Ranks:
    """All of them. What writes to the consoles raises ConsoleGone."""

    def __init__(
        self, selector: selectors.BaseSelector, summary: Summary, say: Callable[[str], None]
    ) -> None:
        """Borrows both."""
        self.all: List[Rank] = []
        lost = "standard output cannot be written ({}): lines of the ranks are lost"
        self.out = Console(sys.stdout, lambda why: say(lost.format(why)))
        self.err = Console(sys.stderr)
        self._selector, self._summary = selector, summary
        self._streams: Dict[str, Dict[int, RankStream]] = {"stdout": {}, "stderr": {}}

    def add(self, process: Rank, tees: Dict[str, TeeFile]) -> None:
        """Watches a rank, which is the process's owner's to close: `tees` are closed by `close`.
        One that takes the place of another goes on with the files of that one."""
        self.all.append(process)
        for fd, name, console in (
            (process.stdout_fd, "stdout", self.out),
            (process.stderr_fd, "stderr", self.err),
        ):
            before = self._streams[name].get(process.rank)
            tee = tees.get(name) if before is None else self._leave(before)
            stream = RankStream(process.rank, fd, console, tee)
            self._streams[name][process.rank] = stream
            if fd is not None:
                self._selector.register(fd, selectors.EVENT_READ, stream)
        if process.exit_fd is not None:
            self._selector.register(process.exit_fd, selectors.EVENT_READ, process)

    def _leave(self, stream: RankStream) -> Optional[TeeFile]:
        """Reads nothing more of it. Returns its file."""
        if not stream.at_end:
            stream.pump(time.monotonic(), DRAIN_READS)
            if stream.fd is not None and stream.fd in self._selector.get_map():
                self._selector.unregister(stream.fd)
        stream.flush_if_due(time.monotonic(), force=True)
        return stream.tee

    def has(self, rank: int) -> bool:
        """Whether such a rank was added."""
        return rank in self._streams["stdout"]

    def running(self) -> List[Rank]:
        """Those that have not ended."""
        return [process for process in self.all if process.returncode is None]

    def _here(self) -> List[RankProcess]:
        return [process for process in self.all if isinstance(process, RankProcess)]

    def _each_stream(self) -> List[RankStream]:
        return [stream for streams in self._streams.values() for stream in streams.values()]

    # ---- What they write ---------------------------------------------------------------------

    def pump(self, ready: List[object], now: float) -> None:
        """Passes on what is to be read at `ready`, and what has waited long enough."""
        for stream in ready:
            if isinstance(stream, RankStream):
                stream.pump(now)
                if stream.at_end and stream.fd is not None:
                    self._selector.unregister(stream.fd)
        for stream in self._each_stream():
            stream.flush_if_due(now)

    def feed(self, rank: int, name: str, data: bytes, now: float) -> None:
        """A piece of a stream, from another host."""
        self._streams[name][rank].take(data, now)

    def told(self, text: str) -> None:
        """For the summary, likewise."""
        self._summary.add(text)

    def deadlines(self) -> List[float]:
        """When `pump` has something to do."""
        found = [stream.deadline() for stream in self._each_stream()]
        return [deadline for deadline in found if deadline is not None]

    def hold(self) -> None:
        """Keeps the stderr of all from now on, for `drain`."""
        for stream in self._streams["stderr"].values():
            stream.hold()

    def drain(self, now: float) -> None:
        """The last output of dead ranks in their pipes."""
        for stream in self._each_stream():
            if not stream.at_end:
                stream.pump(now, DRAIN_READS)
            stream.flush_if_due(now, force=True)
            if stream.held:
                text = [line.decode("utf-8", "replace") for line in stream.held]
                lines = [line.encode() for line in report.without_tracebacks(text)]
                self.err.write(lines, self.err.prefix(stream.rank))

    def drain_stderr(self, rank: int, now: float) -> None:
        """That of a rank that has ended."""
        self._streams["stderr"][rank].pump(now, DRAIN_READS)

    # ---- How they end ------------------------------------------------------------------------

    def reaped(self) -> List[Rank]:
        """Those that have ended since the last call."""
        ended = [process for process in self.running() if process.poll() is not None]
        for process in ended:
            if process.exit_fd is not None:
                self._selector.unregister(process.exit_fd)
        return ended

    def has_rest(self) -> bool:
        """Whether there may be something left of those that have ended: `sweep` ends it."""
        return any(process.has_rest for process in self.all)

    def sweep(self, now: float) -> None:
        """Ends what they have left, as far as it is time."""
        rest.sweep(self._here(), now)

    def left_processes(self, but: Sequence[int]) -> List[int]:
        """Ranks that ended with exit code 0 and left some that did not end by themselves."""
        return sorted({it.rank for it in self.all if it.left_rest} - set(but))

    def exit_of(self, process: Rank, now: float) -> report.Exit:
        """The end of a rank that has failed; `drain_stderr` first."""
        assert process.returncode is not None
        stream = self._streams["stderr"][process.rank]
        return report.Exit(
            rank=process.rank,
            pid=process.pid,
            code=process.returncode,
            at=now,
            traceback_at=stream.traceback_at,
            stderr_tail=[line.decode("utf-8", "replace") for line in stream.tail],
            out_of_memory=process.out_of_memory,
            host=process.host,
            lost=process.lost,
        )

    def said_at(self, rank: int) -> Optional[float]:
        """When something of its stderr came last; None: nothing has."""
        return self._streams["stderr"][rank].last_data_at

    def kill(self, ranks: Sequence[int]) -> None:
        """Ends these; their deaths are failures."""
        for process in self.running():
            if process.rank in ranks:
                process.signal_group(signal.SIGKILL)

    def pause(self) -> None:
        """Ctrl-Z: they stop with this process and go on with it."""
        self._signal(signal.SIGSTOP)
        os.kill(os.getpid(), signal.SIGSTOP)
        self._signal(signal.SIGCONT)

    def _signal(self, number: int) -> None:
        for process in self.all:
            process.signal_group(number)

    def close(self) -> None:
        """None of them is left."""
        rest.end_all(self._here())
        for process in self.all:
            process.kill()
        for stream in self._each_stream():
            stream.close()
        for process in self.all:
            process.close()
