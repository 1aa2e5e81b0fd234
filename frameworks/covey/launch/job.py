"""The launcher: starts the ranks of a job and watches them, in one thread and one loop.

Invariants:
1. `Job.run` returns only when every rank has ended (or did not, seconds after SIGKILL).
2. The first non-zero exit, a signal to the launcher, or a closed output begins an ending; an
   ending in words is in `endings`. A later, harder cause replaces it.
3. The job's shared memory is a descriptor without a name: it goes with its last holder.
"""

from __future__ import annotations

import os
import secrets
import selectors
import signal
import sys
import time
from dataclasses import dataclass
from typing import Dict, List, Optional, Sequence

from covey.launch import endings, environment, report
from covey.launch.node import NEWS_S, Node
from covey.launch.output import Console, ConsoleGone, RankStream, TeeFile, discard_output, open_tees
from covey.launch.process import RankProcess, oom_kills
from covey.launch.signals import SignalInbox, Stopped
from covey.launch.spec import JobSpec
from covey.launch.start import StorePort, make_memory, starting
from covey.launch.summary import Summary

# Looked at this often when the system has no descriptor for a process's end.
POLL_S = 0.05
DRAIN_READS = 1024
EXIT_OUTPUT_CLOSED = 128 + signal.SIGPIPE


@dataclass(frozen=True)
class Outcome:
    """How the job ended.

    Attributes:
        exit_code: 0, the first failing rank's (128 + signal), or 128 + the launcher's signal.
        failure: the rank that failed first, or None.
        summary: the lines that were shown about it.
    """

    exit_code: int
    failure: Optional[report.Exit]
    summary: Sequence[str]


class Job:
    """One job. Use once: `Job(spec).run()`."""

    def __init__(self, spec: JobSpec) -> None:
        """Starts nothing yet."""
        self._spec = spec
        self._selector = selectors.DefaultSelector()
        self._out = Console(sys.stdout)
        self._err = Console(sys.stderr)
        self._ranks: List[RankProcess] = []
        self._streams: Dict[int, RankStream] = {}  # by descriptor
        self._stderr: Dict[int, RankStream] = {}  # by rank
        self._exits: List[report.Exit] = []
        self._ending: Optional[endings.Ending] = None
        self._ended_by_us: List[int] = []
        self._done: List[int] = []  # ended with exit code 0 before anything failed,
        self._done_late: List[int] = []  # or after that
        self._asked_at = 0.0
        self._asked: List[int] = []  # ranks whose answer a Ctrl-C waits for
        self._oom_kills = 0
        self._node: Optional[Node] = None  # None: no other launchers
        self._summary = Summary(not spec.quiet)
        self._first = 0  # the rank that _ranks begins with
        self._port = StorePort()

    def run(self) -> Outcome:
        """Starts the ranks and returns when all have ended. Raises LaunchError."""
        self._oom_kills = oom_kills()
        with SignalInbox() as inbox:
            if inbox.fd is not None:
                self._selector.register(inbox.fd, selectors.EVENT_READ, inbox)
            try:
                if self._spec.rendezvous is None:
                    self._start(0, self._spec.size, make_memory(self._spec.size), inbox)
                else:
                    self._meet(inbox)
                while not self._all_ended():
                    self._turn(inbox)
                self._drain()
                self._await_others(inbox)
                return self._conclude()
            except Stopped:
                assert self._ending is not None and self._ending.exit_code is not None
                return Outcome(self._ending.exit_code, None, [])
            finally:
                self._close()

    # ---- Starting ----------------------------------------------------------------------------

    def _is_stopped(self, inbox: SignalInbox) -> bool:
        for number in inbox.take():
            self._on_signal(number, time.monotonic())
        return self._ending is not None

    def _meet(self, inbox: SignalInbox) -> None:
        """Becomes one job with the other launchers, and starts. Raises Stopped."""
        assert self._spec.rendezvous is not None
        self._node = Node(self._spec.rendezvous, self._spec.size, self._say)
        place = self._node.meet(inbox.fd, lambda: self._is_stopped(inbox))
        if place is None:
            raise Stopped
        self._selector.register(self._node, selectors.EVENT_READ, self._node)
        self._start(place.first_rank, place.size, place.shm_fd, inbox)

    def _start(self, first: int, size: int, shm_fd: int, inbox: SignalInbox) -> None:
        """Starts the ranks. Raises Stopped, LaunchError."""
        spec, job_id, stopped = self._spec, secrets.token_hex(8), lambda: self._is_stopped(inbox)
        self._first, ranks = first, range(first, first + spec.size)
        port = self._port.number if self._node is None else None  # else each would say another
        more = (size, job_id, (shm_fd, self._summary.fd), port)
        envs = [environment.rank_environment(os.environ, spec, rank, *more) for rank in ranks]
        try:
            with starting(spec, envs, more[2], lambda it: inbox.wait(it, stopped)) as start:
                for rank, env in zip(ranks, envs):
                    tees = open_tees(spec.output_dir, rank, self._say)
                    self._ranks.append(RankProcess(rank, start(env)))
                    self._watch(self._ranks[-1], tees)
        finally:
            if self._node is None:
                os.close(shm_fd)
        self._tell(f"job {job_id}: {spec.size} ranks, pids {[it.pid for it in self._ranks]}")

    def _watch(self, process: RankProcess, tees: Dict[str, TeeFile]) -> None:
        for fd, name, console in (
            (process.stdout_fd, "stdout", self._out),
            (process.stderr_fd, "stderr", self._err),
        ):
            stream = RankStream(process.rank, fd, console, tees.get(name))
            self._streams[fd] = stream
            self._selector.register(fd, selectors.EVENT_READ, stream)
            if name == "stderr":
                self._stderr[process.rank] = stream
        if process.exit_fd is not None:
            self._selector.register(process.exit_fd, selectors.EVENT_READ, process)

    # ---- The loop ----------------------------------------------------------------------------

    def _turn(self, inbox: SignalInbox) -> None:
        """Waits for something to happen, then does what follows from it."""
        ready = [key.data for key, _ in self._selector.select(self._timeout())]
        now = time.monotonic()
        try:
            for stream in (item for item in ready if isinstance(item, RankStream)):
                stream.pump(now)
                if stream.at_end:
                    self._selector.unregister(stream.fd)
            for stream in self._streams.values():
                stream.flush_if_due(now)
            for number in inbox.take():
                self._on_signal(number, now)
        except ConsoleGone:
            self._on_console_gone(now)
        self._reap(now)
        self._hear(now)
        self._advance_ending(now)

    def _hear(self, now: float) -> None:
        """News of the other launchers: a rank of theirs that fails ends the job here too."""
        ends = [] if self._node is None else self._node.failures(now)
        self._exits += ends
        if ends and self._ending is None:
            self._ending = endings.Ending(endings.AFTER_FAILURE, None, now)

    def _timeout(self) -> Optional[float]:
        deadlines = [stream.deadline() for stream in self._streams.values()]
        if self._ending is not None:
            deadlines.append(self._ending.deadline())
        now = time.monotonic()
        if self._asked:
            deadlines.append(now + endings.QUIET_S)
        if any(p.returncode is None and p.exit_fd is None for p in self._ranks):
            deadlines.append(now + POLL_S)
        known = [deadline for deadline in deadlines if deadline is not None]
        return max(0.0, min(known) - now) if known else None

    def _reap(self, now: float) -> None:
        for process in self._ranks:
            if process.returncode is not None or process.poll() is None:
                continue
            if process.exit_fd is not None:
                self._selector.unregister(process.exit_fd)
            if process.returncode == 0:
                (self._done if self._ending is None else self._done_late).append(process.rank)
                continue
            seen, is_ended = self._exit_of(process, now), process.rank in self._ended_by_us
            end = report.as_failure(seen, self._exits) if is_ended else seen
            if end is None:
                continue
            self._exits.append(end)
            if self._spec.keep_going:
                self._say(report.loss(end, len(self._exits) < len(self._ranks)))
                continue
            if self._node is not None:
                self._node.tell_failure(end)
            if self._ending is None:
                self._ending = endings.Ending(endings.AFTER_FAILURE, None, now)

    def _exit_of(self, process: RankProcess, now: float) -> report.Exit:
        stream = self._stderr[process.rank]
        try:
            stream.pump(now, DRAIN_READS)
        except ConsoleGone:
            self._on_console_gone(now)
        assert process.returncode is not None
        killed = process.returncode == -signal.SIGKILL
        return report.Exit(
            rank=process.rank,
            pid=process.pid,
            code=process.returncode,
            at=now,
            traceback_at=stream.traceback_at,
            stderr_tail=[line.decode("utf-8", "replace") for line in stream.tail],
            out_of_memory=killed and oom_kills() > self._oom_kills,
        )

    def _advance_ending(self, now: float) -> None:
        if self._ending is None:
            return
        if self._asked and self._answers_complete(now):
            self._asked = []
            self._ending.hurry(now)
        number = self._ending.due(now)
        while number is not None:
            self._end_ranks(number)
            number = self._ending.due(now)

    def _end_ranks(self, number: int) -> None:
        """Sends a signal that ends the ranks; later deaths of ranks are no failures."""
        if number == signal.SIGINT:
            for stream in self._stderr.values():
                stream.hold()
        self._asked = []
        for process in self._ranks:
            if process.returncode is None:
                self._tell(f"{signal.Signals(number).name} to rank {process.rank}")
                if process.rank not in self._ended_by_us:
                    self._ended_by_us.append(process.rank)
                process.signal_group(number)

    def _answers_complete(self, now: float) -> bool:
        """True when every rank asked has said something since, or ended, and is quiet."""
        for rank in self._asked:
            said_at = self._stderr[rank].last_data_at
            if self._ranks[rank - self._first].returncode is not None:
                continue
            if said_at is None or said_at < self._asked_at or now < said_at + endings.QUIET_S:
                return False
        return True

    def _all_ended(self) -> bool:
        if all(process.returncode is not None for process in self._ranks):
            return True
        return self._ending is not None and self._ending.given_up(time.monotonic())

    # ---- Signals to the launcher -------------------------------------------------------------

    def _on_signal(self, number: int, now: float) -> None:
        if number == signal.SIGUSR1:
            self._ask_where()
        elif number == signal.SIGTSTP:
            self._pause()
        elif self._ending is not None:  # once more, or in the middle of another ending
            if number == signal.SIGINT:
                self._ending = endings.Ending(endings.AT_ONCE, self._ending.exit_code, now)
            else:
                self._ending.hurry(now)
        elif number == signal.SIGINT:
            self._say("interrupted; where the ranks are (Ctrl-C again kills them at once):")
            self._ending = endings.Ending(endings.AFTER_INTERRUPT, 128 + number, now)
            self._tell_others(number)
            self._asked_at = now
            self._asked = self._ask_where()
            if not self._asked:
                self._ending.hurry(now)
        else:
            self._say(f"{signal.Signals(number).name}: ending the ranks")
            self._ending = endings.Ending(endings.AFTER_TERMINATE, 128 + number, now)
            self._tell_others(number)

    def _tell_others(self, number: int) -> None:
        if self._node is not None:
            self._node.tell_signal(signal.Signals(number).name, 128 + number)

    def _ask_where(self) -> List[int]:
        """Has the ranks say what they wait for. Returns those that will."""
        running = [process for process in self._ranks if process.returncode is None]
        asked = [process.rank for process in running if process.ask_where()]
        deaf = [process.rank for process in running if process.rank not in asked]
        if deaf:
            why = "not past covey.init(), or not Python"
            self._say(f"{report.ranks_in_words(deaf)} cannot say: {why}")
        return asked

    def _pause(self) -> None:
        """Ctrl-Z: the ranks stop with the launcher and go on with it."""
        for process in self._ranks:
            process.signal_group(signal.SIGSTOP)
        os.kill(os.getpid(), signal.SIGSTOP)
        for process in self._ranks:
            process.signal_group(signal.SIGCONT)

    def _on_console_gone(self, now: float) -> None:
        """The reader has gone: the job ends, and says no more."""
        discard_output()
        if self._ending is None or self._ending.exit_code is None:
            self._ending = endings.Ending(endings.AFTER_TERMINATE, EXIT_OUTPUT_CLOSED, now)

    # ---- The end -----------------------------------------------------------------------------

    def _drain(self) -> None:
        """The last output of dead ranks in their pipes."""
        now = time.monotonic()
        try:
            for stream in self._streams.values():
                if not stream.at_end:
                    stream.pump(now, DRAIN_READS)
                stream.flush_if_due(now, force=True)
                if stream.held:
                    text = [line.decode("utf-8", "replace") for line in stream.held]
                    lines = [line.encode() for line in report.without_tracebacks(text)]
                    self._err.write(lines, self._err.prefix(stream.rank))
        except ConsoleGone:
            self._on_console_gone(now)

    def _await_others(self, inbox: SignalInbox) -> None:
        """Until all launchers have ended: one serves the others, and any may fail yet."""
        if self._node is None:
            return
        self._exits += self._node.await_cause(self._exits)
        self._node.leave()
        said = False
        while not self._node.ended and self._ending is None:
            if not said and not self._selector.select(NEWS_S):
                said = True
                self._say(self._node.who_is_left())
            self._turn(inbox)

    def _conclude(self) -> Outcome:
        stuck = [p.rank for p in self._ranks if p.returncode is None]
        if stuck:
            self._say(f"{report.ranks_in_words(stuck)} did not end even by SIGKILL; leaving them")
        self._say(*self._summary.lines({end.rank: end.how() for end in self._exits}))
        ended_well = {*self._done, *self._done_late}
        left = [rank for rank in self._summary.unfinished() if rank in ended_well]
        if left:
            self._say(report.left_unfinished(left))
        self._tell_of_traces()
        code = self._ending.exit_code if self._ending is not None else 0
        if self._ending is None and self._exits:  # Only where it keeps going.
            code = 0 if self._done else None
            self._say(report.went_on(self._exits, self._done))
        if code is not None:
            return Outcome(code, None, [])
        first = report.first_failure(self._exits)
        others = [end for end in self._exits if end.rank != first.rank]
        left = [rank for rank in self._done_late if rank not in self._ended_by_us]
        summary = report.failure_summary(first, others, self._ended_by_us, self._done, left)
        if first.code < 0 and self._node is None and not self._spec.keep_going:
            summary += report.way_on(self._summary.outlives())
        self._say(*summary)
        return Outcome(first.shell_code, first, summary)

    def _tell_of_traces(self) -> None:
        folder = self._spec.timeline_dir
        if folder is not None and any(name.endswith(".json") for name in os.listdir(folder)):
            self._say(f"one trace per rank in {folder}; ui.perfetto.dev shows them")

    def _close(self) -> None:
        """No rank outlives the launcher, not even one of a start that failed half way."""
        if self._node is not None:
            self._node.close()
        self._summary.close()
        self._port.close()
        for process in self._ranks:
            process.kill()
        for stream in self._streams.values():
            stream.close()
        for process in self._ranks:
            process.close()
        self._selector.close()

    def _say(self, *lines: str) -> None:
        try:
            self._err.write([f"{self._spec.program}: {x}".encode(errors="replace") for x in lines])
        except ConsoleGone:
            self._on_console_gone(time.monotonic())

    def _tell(self, line: str) -> None:
        if self._spec.verbose:
            self._say(line)
