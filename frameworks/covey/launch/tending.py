"""The ranks of a host while they run: their output and ends go to coveyrun, its signals to them.

coveyrun decides all endings but one: when it is gone, or silent for a lease, the ranks are ended
here. Internal.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import time
from typing import Any, Dict, List, Optional, Sequence, Tuple

from covey.launch import endings, reach, rest
from covey.launch.output import READ_BYTES, READS_PER_TURN
from covey.launch.process import RankProcess
from covey.launch.pulse import Pulse
from covey.launch.signals import SignalInbox
from covey.launch.spec import LaunchError
from covey.launch.station import Station
from covey.launch.wire import Wire
from covey.launch.workers import Workers

# With so much unsent the ranks' pipes are left alone: a rank that writes faster waits.
_MOST_UNSENT_BYTES = 1 << 20
_DRAIN_READS = 1024
_MOST_PACKET_BYTES = 512
_POLL_S = 0.05  # where the system has no descriptor for a process's end
_FAREWELL_S = 1.0


class Tending:
    """The ranks of this host. Use once, then `close`."""

    def __init__(self, wire: Wire, inbox: SignalInbox, pulse: Pulse, station: Station) -> None:
        """Borrows all of them."""
        self._wire, self._inbox, self._pulse, self._station = wire, inbox, pulse, station
        self._everything = selectors.DefaultSelector()
        self._but_output = selectors.DefaultSelector()
        self._ranks: Dict[int, RankProcess] = {}
        self._before: List[RankProcess] = []  # Others have taken their numbers.
        self._ending: Optional[endings.Ending] = None
        for selector in (self._everything, self._but_output):
            selector.register(wire.read_fd, selectors.EVENT_READ, None)
            if inbox.fd is not None:
                selector.register(inbox.fd, selectors.EVENT_READ, None)

    def watching(self) -> Sequence[selectors.BaseSelector]:
        """Those it waits with. Their data (rank, "witness") is a request for a witness record."""
        return self._everything, self._but_output

    def add(self, process: RankProcess) -> None:
        """A rank that was started; one with its number has ended before."""
        before = self._ranks.get(process.rank)
        if before is not None:
            for fd in (before.stdout_fd, before.stderr_fd):
                if fd in self._everything.get_map():
                    self._everything.unregister(fd)
            if before.has_rest:
                self._before.append(before)
            else:
                before.close()
        self._ranks[process.rank] = process
        for name, fd in (("out", process.stdout_fd), ("err", process.stderr_fd)):
            self._everything.register(fd, selectors.EVENT_READ, (process.rank, name))
        for selector in (self._everything, self._but_output):
            if process.exit_fd is not None:
                selector.register(process.exit_fd, selectors.EVENT_READ, None)
            if process.rank in self._station.witnesses:
                witness = self._station.witnesses[process.rank]
                selector.register(witness, selectors.EVENT_READ, (process.rank, "witness"))

    def run(self) -> None:
        """Until coveyrun has closed the wire, or is lost, and no rank is left."""
        while not self._is_over():
            self._turn()

    def _is_over(self) -> bool:
        if self._ending is None:
            return False
        running = any(process.returncode is None for process in self._ranks.values())
        return not running or self._ending.given_up(time.monotonic())

    def _turn(self) -> None:
        is_full = self._wire.pending_bytes > _MOST_UNSENT_BYTES and self._ending is None
        selector = self._but_output if is_full else self._everything
        self._watch_room(selector)
        ready = selector.select(self._timeout())
        now = time.monotonic()
        for key, _ in ready:
            if key.data is not None:
                rank, name = key.data
                if name == "witness":
                    self._ask_witness(rank)
                else:
                    self._pass_on(key.fd, rank, name, READS_PER_TURN)
        self._wire.flush()
        deaf: List[Tuple[int, str]] = []
        try:
            for message in self._wire.receive():
                self._pulse.heard(now)
                deaf += self._obey(message)
            for said in [] if self._station.workers is None else self._station.workers.heard():
                self._wire.send("said", **said)
        except LaunchError as error:
            self._end(str(error), now)
        if deaf:
            self._wire.send("deaf", ranks=deaf)
        self._reap()
        self._sweep(now)
        self._pulse.beat(now)
        self._look_for_the_end(now)

    def _watch_room(self, selector: selectors.BaseSelector) -> None:
        """Has the selector return when more can be sent."""
        is_watched = self._wire.write_fd in selector.get_map()
        if self._wire.pending_bytes and not self._wire.at_end:
            if not is_watched:
                selector.register(self._wire.write_fd, selectors.EVENT_WRITE, None)
        elif is_watched:
            selector.unregister(self._wire.write_fd)

    def _timeout(self) -> float:
        now = time.monotonic()
        deadlines = [self._pulse.deadline()]
        if self._ending is not None:
            deadlines.append(self._ending.deadline())
        if any(it.exit_fd is None and it.returncode is None for it in self._ranks.values()):
            deadlines.append(now + _POLL_S)
        if any(it.has_rest for it in self._all()):
            deadlines.append(now + rest.LOOK_S)
        return max(0.0, min(deadlines) - now)

    def _pass_on(self, fd: int, rank: int, name: str, reads: int) -> None:
        for _ in range(reads):
            try:
                data = os.read(fd, READ_BYTES)
            except BlockingIOError:
                return
            if not data:
                if fd in self._everything.get_map():
                    self._everything.unregister(fd)
                return
            self._wire.send(name, rank=rank, text=data.decode("utf-8", "surrogateescape"))

    def _ask_witness(self, rank: int) -> None:
        witness = self._station.witnesses[rank]
        try:
            request = witness.recv(_MOST_PACKET_BYTES)
        except BlockingIOError:
            return
        except OSError:
            request = b""
        if request:
            workers = self._station.workers
            world = 0 if workers is None else workers.world
            self._wire.send("witness", rank=rank, world=world, packet=request.hex())
        else:
            self._everything.unregister(witness)
            self._but_output.unregister(witness)

    def _obey(self, message: dict) -> List[Tuple[int, str]]:
        """Takes the messages of coveyrun. Returns ranks that do not say where they are, and why."""
        if message["covey"] == "signal":
            self._pulse.is_suspended = message["number"] == signal.SIGSTOP
            for rank in message["ranks"]:
                self._ranks[rank].signal_group(message["number"])
        elif message["covey"] == "witness":
            with contextlib.suppress(OSError):  # The rank has ended.
                witness = self._station.witnesses[message["rank"]]
                witness.send(bytes.fromhex(message["packet"]))
        elif message["covey"] == "ask":
            asked = [(rank, self._ranks[rank].ask_where()) for rank in message["ranks"]]
            return [(rank, why) for rank, why in asked if why]
        elif self._station.workers is not None:
            self._obey_elastic(message, self._station.workers)
        return []

    def _obey_elastic(self, message: dict, workers: Workers) -> None:
        """The messages of an elastic job alone. Raises LaunchError."""
        if message["covey"] == "more":
            process = self._station.more(message["number"], self._await_readable)
            self.add(process)
            self._wire.send("begun", number=process.rank, pid=process.pid)
        elif message["covey"] == "try":
            address, port = message["where"]
            why = reach.failures([(address, port)], message["limit_s"])
            self._wire.send("tried", where=message["where"], why=why.get(0, ""))
        elif message["covey"] == "world":
            workers.admit(message)
        elif message["covey"] == "tell":
            workers.doors.tell(message["number"], message["what"], **message["fields"])

    def _await_readable(self, it: Any) -> None:
        """Until there is something to read; coveyrun hears that this host lives."""
        with contextlib.closing(selectors.DefaultSelector()) as selector:
            selector.register(it, selectors.EVENT_READ)
            while not selector.select(max(0.0, self._pulse.deadline() - time.monotonic())):
                self._pulse.beat(time.monotonic())

    def _reap(self) -> None:
        for process in self._ranks.values():
            if process.returncode is not None or process.poll() is None:
                continue
            if self._station.workers is not None:
                self._station.workers.drop(process.rank)
            if process.exit_fd is not None:
                for selector in (self._everything, self._but_output):
                    selector.unregister(process.exit_fd)
            for name, fd in (("out", process.stdout_fd), ("err", process.stderr_fd)):
                self._pass_on(fd, process.rank, name, _DRAIN_READS)
            told = self._station.summary.news()
            if told:
                self._wire.send("told", text=told)
            self._wire.send(
                "exit",
                rank=process.rank,
                code=process.returncode,
                out_of_memory=process.out_of_memory,
                has_traces=self._station.has_traces(),
            )

    def _all(self) -> List[RankProcess]:
        return [*self._ranks.values(), *self._before]

    def _sweep(self, now: float) -> None:
        """Ends what ranks have left, and tells when it is gone."""
        ended = [it for it in self._all() if it.has_rest]
        rest.sweep(ended, now)
        for it in (it for it in ended if not it.has_rest):
            self._wire.send("gone", rank=it.rank, pid=it.pid, left_rest=it.left_rest)
            if it in self._before:
                self._before.remove(it)
                it.close()

    def _look_for_the_end(self, now: float) -> None:
        if self._ending is None:
            why = self._why_to_end(now)
            if why is None:
                return
            self._end(why, now)
        assert self._ending is not None
        number = self._ending.due(now)
        while number is not None:
            for process in self._ranks.values():
                process.signal_group(number)
            number = self._ending.due(now)

    def _end(self, why: str, now: float) -> None:
        """Begins to end the ranks. `why`, unless it is empty, is told to coveyrun."""
        if why:
            self._wire.send("lost", text=why)
        self._ending = endings.Ending(endings.AFTER_TERMINATE, None, now)

    def _why_to_end(self, now: float) -> Optional[str]:
        """None: nothing says so. Empty: coveyrun knows."""
        if self._wire.at_end:
            return ""
        if self._pulse.is_silent(now):
            return "it has heard nothing from coveyrun for a lease"
        for number in self._inbox.take():
            if number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                return f"its agent got {signal.Signals(number).name}"
        return None

    def close(self) -> None:
        """No rank outlives this."""
        rest.end_all(self._all())
        until = time.monotonic() + _FAREWELL_S
        while self._wire.pending_bytes and not self._wire.at_end and time.monotonic() < until:
            self._watch_room(self._but_output)
            self._but_output.select(_POLL_S)
            self._wire.flush()
        for process in self._all():
            process.close()
        if self._station.workers is not None:
            self._station.workers.close()
        self._everything.close()
        self._but_output.close()
