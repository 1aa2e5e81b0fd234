"""The launcher: starts the ranks of a job and watches them, in one thread and one loop. Those of
other hosts are started by agents there (fleet.py), and watched and ended by the same loop.

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
import time
from typing import Optional, Sequence

from covey.launch import book, check, endings, report
from covey.launch.elastic import Elastic, LocalWorkers
from covey.launch.elastic_fleet import elastic_on
from covey.launch.fleet import Fleet
from covey.launch.hosts import places
from covey.launch.node import NEWS_S, Node
from covey.launch.outcome import Ends, Outcome
from covey.launch.output import ConsoleGone, discard_output, open_tees
from covey.launch.ranks import Rank, Ranks
from covey.launch.rest import LOOK_S
from covey.launch.signals import SignalInbox, Stopped
from covey.launch.spec import JobSpec
from covey.launch.start import HostPart, StorePort, make_memory
from covey.launch.summary import Summary
from covey.launch.where import Where
from covey.trace import ending as traces

# Looked at this often when the system has no descriptor for a process's end.
POLL_S = 0.05
EXIT_OUTPUT_CLOSED = 128 + signal.SIGPIPE


class Job:
    """One job. Use once: `Job(spec).run()`."""

    def __init__(self, spec: JobSpec) -> None:
        """Starts nothing yet."""
        self._spec = spec
        self._size = spec.size  # of the job, with the ranks of other launchers
        self._selector = selectors.DefaultSelector()
        self._summary = Summary(not spec.quiet)
        self._ranks = Ranks(self._selector, self._summary, self._say)
        self._ends = Ends()
        self._ending: Optional[endings.Ending] = None
        self._where = Where(self._ranks, self._say)
        self._is_waiting = False  # A Ctrl-C does, for the ranks' answers.
        self._node: Optional[Node] = None  # None: no other launchers
        self._fleet: Optional[Fleet] = None  # None: all ranks are here
        self._elastic: Optional[Elastic] = None  # None: all ranks stay
        self._job_id = secrets.token_hex(8)
        self._port = StorePort()

    def run(self) -> Outcome:
        """Starts the ranks and returns when all have ended. Raises LaunchError."""
        with SignalInbox() as inbox:
            if inbox.fd is not None:
                self._selector.register(inbox.fd, selectors.EVENT_READ, inbox)
            try:
                if self._spec.plan is not None:
                    self._start_on_hosts(inbox)
                elif self._spec.rendezvous is None:
                    self._start_here(inbox)
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
        node = Node(self._spec.rendezvous, self._spec.size, self._say, self._port.number)
        self._node = node
        it = node.meet(inbox.fd, lambda: self._is_stopped(inbox))
        if it is None:
            raise Stopped
        self._selector.register(node, selectors.EVENT_READ, node)
        if it.book and self._spec.rendezvous.security == "auth" and not self._spec.quiet:
            self._say(book.UNENCRYPTED)
        self._start(HostPart(it.places, it.shm_fd, it.book, it.listeners, it.store), inbox)

    def _start_here(self, inbox: SignalInbox) -> None:
        """Starts the job, which is on this host alone."""
        size, port = self._spec.size, self._port.number
        store = None if port is None else ("127.0.0.1", port)
        if self._spec.elastic is not None:
            ours = LocalWorkers(size, self._selector, store, lambda p: self._start_ranks(p, inbox))
            self._elastic = Elastic(self._spec.elastic, size, ours)
            return self._start(ours.part(), inbox)
        memory = make_memory(size)
        try:
            self._start(HostPart(places([size]), memory, store=store), inbox)
        finally:
            os.close(memory)

    def _start(self, part: HostPart, inbox: SignalInbox) -> None:
        """Starts the ranks. Raises Stopped, LaunchError."""
        self._size = part.places[0].size
        self._start_ranks(part, inbox)
        pids, size = [it.pid for it in self._ranks.all], self._spec.size
        self._tell(f"job {self._job_id}: {size} rank{'s' * (size > 1)}, pids {pids}")

    def _start_ranks(self, part: HostPart, inbox: SignalInbox) -> None:
        names, stopped = (self._job_id, self._summary.fd), lambda: self._is_stopped(inbox)
        for it in part.start(self._spec, os.environ, names, lambda it: inbox.wait(it, stopped)):
            self._add(it)

    def _start_on_hosts(self, inbox: SignalInbox) -> None:
        """The same by the agents of other hosts."""

        def look() -> None:
            if self._is_stopped(inbox):
                raise Stopped

        self._fleet = fleet = Fleet(self._spec, self._say)
        fleet.start(inbox.fd, look, self._add)
        self._elastic = elastic_on(fleet, self._spec, self._add, self._say)
        self._summary.cores = fleet.cores()
        self._selector.register(fleet, selectors.EVENT_READ, fleet)
        self._tell(fleet.described())

    def _add(self, process: Rank) -> None:
        folder = None if self._ranks.has(process.rank) else self._spec.output_dir
        self._ranks.add(process, open_tees(folder, process.rank, self._say))

    # ---- The loop ----------------------------------------------------------------------------

    def _turn(self, inbox: SignalInbox) -> None:
        """Waits for something to happen, then does what follows from it."""
        ready = [key.data for key, _ in self._selector.select(self._timeout())]
        now = time.monotonic()
        try:
            self._ranks.pump(ready, now)
            if self._fleet is not None:
                self._fleet.take(self._ranks, now)
            for number in inbox.take():
                self._on_signal(number, now)
        except ConsoleGone:
            self._on_console_gone(now)
        self._reap(now)
        self._ranks.sweep(now)
        self._change(now)
        self._hear(now)
        self._advance_ending(now)

    def _change(self, now: float) -> None:
        """The ranks of an elastic job may be others from now on."""
        if self._elastic is None:
            return
        if self._ending is None:
            self._elastic.replace()
        self._say(*self._elastic.act(now))
        self._end_ranks(signal.SIGTERM, self._elastic.worlds.superfluous())
        self._ranks.kill(self._elastic.worlds.late(now))
        if self._elastic.worlds.failure and self._ending is None:
            self._say(self._elastic.worlds.failure)
            code = None if self._ends.failed else 1
            self._ending = endings.Ending(endings.AFTER_FAILURE, code, now)

    def _hear(self, now: float) -> None:
        """News of the other launchers: a rank of theirs that fails ends the job here too."""
        if self._fleet is not None and self._fleet.deaf:
            self._where.hear(self._fleet.deaf)
            self._fleet.deaf = {}
        if self._node is None:
            return
        ends = self._node.failures(now)
        if self._spec.keep_going:  # A launcher may be lost after some of its ranks.
            known = {end.rank for end in self._ends.failed}
            ends = [end for end in ends if end.rank not in known]
        self._ends.failed += ends
        if self._spec.keep_going and not self._node.is_over:
            self._tell_of_losses(ends)
        elif ends and self._ending is None:
            self._ending = endings.Ending(endings.AFTER_FAILURE, None, now)

    def _tell_of_losses(self, ends: Sequence[report.Exit]) -> None:
        """The job goes on without these ranks, if others are left."""
        flag = "--keep-going" if len(self._ends.failed) < self._size else ""
        if self._elastic is not None:
            flag = "" if self._elastic.worlds.is_over else "--min-np"
        self._say(*report.losses(ends, flag))

    def _timeout(self) -> Optional[float]:
        deadlines, now = self._ranks.deadlines(), time.monotonic()
        if self._ending is not None:
            deadlines.append(self._ending.deadline())
        if self._fleet is not None:
            deadlines.append(self._fleet.deadline(now))
        if self._elastic is not None:
            deadlines += self._elastic.deadlines(now)
        if self._where.is_open:
            deadlines.append(now + endings.QUIET_S)
        if self._ranks.has_rest():
            deadlines.append(now + LOOK_S)
        if any(not process.is_watched for process in self._ranks.running()):
            deadlines.append(now + POLL_S)
        return max(0.0, min(deadlines) - now) if deadlines else None

    def _reap(self, now: float) -> None:
        known = len(self._ends.failed)
        for process in self._ranks.reaped():
            if self._elastic is not None:
                self._elastic.ends(process.rank, process.returncode == 0)
            if process.returncode == 0:
                self._ends.end_well(process.rank, self._ending is None)
                continue
            end = self._ends.as_failure(self._exit_of(process, now))
            if end is None:
                continue
            self._ends.failed.append(end)
            if self._node is not None:
                self._node.tell_failure(end)
            if not self._spec.keep_going and self._ending is None:
                self._ending = endings.Ending(endings.AFTER_FAILURE, None, now)
        if self._spec.keep_going:
            self._tell_of_losses(self._ends.failed[known:])

    def _exit_of(self, process: Rank, now: float) -> report.Exit:
        try:
            self._ranks.drain_stderr(process.rank, now)
        except ConsoleGone:
            self._on_console_gone(now)
        return self._ranks.exit_of(process, now)

    def _advance_ending(self, now: float) -> None:
        self._where.look(now)
        if self._ending is None:
            return
        if self._is_waiting and not self._where.is_open:
            self._is_waiting = False
            self._ending.hurry(now)
        number = self._ending.due(now)
        while number is not None:
            self._is_waiting = False
            if number == signal.SIGINT:
                self._ranks.hold()
            self._end_ranks(number, [process.rank for process in self._ranks.running()])
            number = self._ending.due(now)

    def _end_ranks(self, number: int, ranks: Sequence[int]) -> None:
        """Sends a signal that ends these ranks; their later deaths are no failures."""
        for process in [it for it in self._ranks.running() if it.rank in ranks]:
            self._tell(f"{signal.Signals(number).name} to rank {process.rank}")
            if process.rank not in self._ends.by_us:
                self._ends.by_us.append(process.rank)
            process.signal_group(number)

    def _all_ended(self) -> bool:
        if not self._ranks.running():
            return not self._ranks.has_rest()
        return self._ending is not None and self._ending.given_up(time.monotonic())

    # ---- Signals to the launcher -------------------------------------------------------------

    def _on_signal(self, number: int, now: float) -> None:
        if number == signal.SIGUSR1:
            self._where.ask(now)
        elif number == signal.SIGTSTP:
            self._ranks.pause()
        elif self._ending is not None:  # once more, or in the middle of another ending
            if number == signal.SIGINT:
                self._ending = endings.Ending(endings.AT_ONCE, self._ending.exit_code, now)
            else:
                self._ending.hurry(now)
        elif number == signal.SIGINT:
            self._say("interrupted; where the ranks are (Ctrl-C again kills them at once):")
            self._ending = endings.Ending(endings.AFTER_INTERRUPT, 128 + number, now)
            self._tell_others(number)
            self._where.ask(now)
            self._is_waiting = True
        else:
            self._say(f"{signal.Signals(number).name}: ending the ranks")
            self._ending = endings.Ending(endings.AFTER_TERMINATE, 128 + number, now)
            self._tell_others(number)

    def _tell_others(self, number: int) -> None:
        if self._node is not None:
            self._node.tell_signal(signal.Signals(number).name, 128 + number)

    def _on_console_gone(self, now: float) -> None:
        """The reader has gone: the job ends, and says no more."""
        discard_output()
        if self._ending is None or self._ending.exit_code is None:
            self._ending = endings.Ending(endings.AFTER_TERMINATE, EXIT_OUTPUT_CLOSED, now)

    # ---- The end -----------------------------------------------------------------------------

    def _drain(self) -> None:
        """The last output of dead ranks in their pipes."""
        try:
            self._ranks.drain(time.monotonic())
        except ConsoleGone:
            self._on_console_gone(time.monotonic())

    def _await_others(self, inbox: SignalInbox) -> None:
        """Until all launchers have ended: one serves the others, and any may fail yet."""
        if self._node is None:
            return
        self._ends.failed += self._node.await_cause(self._ends.failed)
        self._node.leave()
        said = False
        while not self._node.ended and self._ending is None:
            if not said and not self._selector.select(NEWS_S):
                said = True
                self._say(self._node.who_is_left())
            self._turn(inbox)

    def _conclude(self) -> Outcome:
        stuck = [process.rank for process in self._ranks.running()]
        if stuck:
            self._say(f"{report.ranks_in_words(stuck)} did not end even by SIGKILL; leaving them")
        self._say(*self._summary.lines({end.rank: end.how() for end in self._ends.failed}))
        left = [rank for rank in self._summary.unfinished() if rank in self._ends.ended_well]
        if left:
            self._say(report.left_unfinished(left))
        if not self._spec.quiet:
            self._say(*report.left_processes(self._ranks.left_processes(self._ends.by_us)))
        self._tell_of_traces()
        code = self._ending.exit_code if self._ending is not None else 0
        if self._ending is None and self._ends.failed:  # Only where it keeps going.
            done = self._ends.without(left)
            least, worlds = (1, 0) if self._elastic is None else self._elastic.outcome()
            code = 0 if len(done) >= least else None
            self._say(self._ends.in_words(done, self._size, worlds))
        if code is not None:
            return Outcome(code, None, [])
        others_stay = self._node is None and not self._spec.keep_going
        way_on = report.way_on(self._summary.outlives()) if others_stay else []
        outcome = self._ends.failure(way_on)
        self._say(*outcome.summary)
        return outcome

    def _tell_of_traces(self) -> None:
        where = self._spec.timeline_dir
        if self._fleet is not None:
            if self._fleet.has_traces:
                self._say(f"one trace per rank in {where} of its host: covey trace merge FOLDERS")
        elif where is not None and check.has_traces(where):
            self._say(*traces.told(where, self._size))

    def _close(self) -> None:
        """No rank outlives the launcher, not even one of a start that failed half way."""
        if self._node is not None:
            self._node.close()
        self._ranks.close()
        if self._elastic is not None:
            self._elastic.close()
        if self._fleet is not None:
            self._fleet.close()
        self._summary.close()
        self._port.close()
        self._selector.close()

    def _say(self, *lines: str) -> None:
        try:
            prefix = f"{self._spec.program}: ".encode()
            self._ranks.err.write([line.encode(errors="replace") for line in lines], prefix)
        except ConsoleGone:
            self._on_console_gone(time.monotonic())

    def _tell(self, line: str) -> None:
        if self._spec.verbose:
            self._say(line)
