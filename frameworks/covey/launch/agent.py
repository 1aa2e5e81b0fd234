"""coveyrun on one host of a job: `python -m covey.launch.agent`, by ssh. Internal.

It talks to coveyrun over its standard input and output, and ends when its input does, with all that
it has started. The messages of each side:

    coveyrun  hello  reach (hosts, their listeners)  start (book)  signal, ask, witness  (the end)
    agent     hello, ready or refused  reached       started       out, err, told, exit, gone, deaf,
                                                                   lost, witness

and while the ranks of an elastic job run, which are called workers then:

    coveyrun  more (number)  world (its places, book)  tell (a worker, as in door.py)
    agent     begun (pid)                              said (by a worker, as in door.py; port)
    coveyrun  try (a host that comes)
    agent     tried

`job` follows hello from coveyrun and is answered by ready; either side may say alive at any time.
`covey doctor` sends `look` instead of `job`, and then asks without starting anything:

    doctor    hello  look   open (address)  try (hosts, their sinks)  (end of input)
    agent     hello  facts  opened          tried
"""

from __future__ import annotations

import contextlib
import os
import selectors
import sys
import time
from typing import Any, Dict, Iterator, List, NoReturn

from covey.doctor import facts, passage
from covey.errors import CoveyError
from covey.launch import identity, reach
from covey.launch.pulse import Pulse
from covey.launch.signals import SignalInbox
from covey.launch.spec import LaunchError
from covey.launch.station import Station
from covey.launch.tending import Tending
from covey.launch.wire import Wire

_FIRST_LEASE_S = 60.0  # until coveyrun has told its own
_FAREWELL_S = 10.0


class Left(Exception):
    """coveyrun is gone, or a signal ends the agent, before there are ranks."""


class Agent:
    """The conversation with coveyrun."""

    def __init__(self, wire: Wire, inbox: SignalInbox) -> None:
        """Borrows both."""
        self._wire, self._inbox = wire, inbox
        self._pulse = Pulse(wire, _FIRST_LEASE_S, time.monotonic())
        self._came: List[Dict[str, Any]] = []

    def run(self) -> None:
        """The whole of it. Raises Left."""
        try:
            self._expect("hello")
            self._wire.send("hello", **identity.of_host())
            job = self._expect("job", "look")
            if job["covey"] == "look":
                self._examine(job)
                return
            self._pulse = Pulse(self._wire, job["lease_s"], time.monotonic())
            with contextlib.closing(Station(job)) as station:
                self._prepare(station)
                self._tend(station)
        except CoveyError as error:
            self._wire.send("refused", text=str(error))
            self._await_the_end()

    def _prepare(self, station: Station) -> None:
        station.enter()
        *listeners, tried = station.listen()
        self._wire.send("ready", listeners=listeners, tried=tried, store=station.store_port)
        addresses = [(str(a), int(p)) for a, p in self._expect("reach")["addresses"]]
        why = reach.failures(addresses)
        self._wire.send("reached", failures=[[index, text] for index, text in why.items()])

    def _tend(self, station: Station) -> None:
        start = self._expect("start")
        tending = Tending(self._wire, self._inbox, self._pulse, station)
        with contextlib.closing(tending):
            pids = []
            watching = tending.watching()
            for process in station.start(start, self._await_readable, watching):
                tending.add(process)
                pids.append(process.pid)
            self._wire.send("started", pids=pids)
            tending.run()

    def _examine(self, look: Dict[str, Any]) -> None:
        """For the doctor. Raises Left."""
        self._wire.send("facts", **facts.of_host(look))
        where = self._expect("open")
        try:
            sink = passage.Sink(where["address"], where["token"])
        except OSError as error:
            raise LaunchError(f"cannot listen at {where['address']}: {error.strerror}") from error
        with contextlib.closing(sink):
            self._wire.send("opened", port=sink.port)
            targets = [(str(a), int(p)) for a, p in self._expect("try")["targets"]]
            self._wire.send("tried", outcomes=passage.outcomes(targets, where["token"]))
            self._expect()  # Nothing comes: the others may still be sending.

    # ---- Waiting -----------------------------------------------------------------------------

    def _expect(self, *kinds: str) -> Dict[str, Any]:
        """The next message, which is of one of these kinds."""
        while True:
            self._take()
            while self._came:
                message = self._came.pop(0)
                if message["covey"] in kinds:
                    return message
                if message["covey"] != "alive":
                    wanted = " or ".join(kinds) or "the end"
                    raise LaunchError(f"a message {ascii(message['covey'])} instead of {wanted}")
            self._wait([])

    def _await_readable(self, fd: Any) -> None:
        """Until there is something to read. Raises Left."""
        while fd not in self._wait([fd]):
            self._take()

    def _await_the_end(self) -> None:
        """coveyrun reads the last message, then closes the wire."""
        until = time.monotonic() + _FAREWELL_S
        with contextlib.suppress(Left):
            while time.monotonic() < until:
                self._take()
                self._wait([])

    def _take(self) -> None:
        """Takes what has come. Raises Left."""
        now = time.monotonic()
        self._wire.flush()
        came = self._wire.receive()
        if came:
            self._pulse.heard(now)
        self._came += came
        self._pulse.beat(now)
        is_signalled = any(self._inbox.take())
        if is_signalled or (self._wire.at_end and not came) or self._pulse.is_silent(now):
            raise Left

    def _wait(self, wanted: List[Any]) -> List[Any]:
        """Until it is time to `_take`, or one of `wanted` is readable: returns those."""
        with contextlib.closing(selectors.DefaultSelector()) as selector:
            for it in (*wanted, self._wire.read_fd, self._inbox.fd):
                if it is not None:
                    selector.register(it, selectors.EVENT_READ)
            if self._wire.pending_bytes:
                selector.register(self._wire.write_fd, selectors.EVENT_WRITE)
            left = max(0.0, self._pulse.deadline() - time.monotonic())
            return [key.fileobj for key, _ in selector.select(left)]


@contextlib.contextmanager
def _own_streams() -> Iterator[Wire]:
    """The wire. Other output goes to standard error, and other input is empty."""
    read_fd, write_fd = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    os.dup2(2, 1)
    try:
        yield Wire(read_fd, write_fd)
    finally:
        os.close(read_fd)
        os.close(write_fd)


def main() -> NoReturn:
    """The program."""
    if os.isatty(0):
        sys.exit("covey.launch.agent is started by coveyrun -H, not by hand")
    with _own_streams() as wire, SignalInbox() as inbox:
        with contextlib.suppress(Left):
            Agent(wire, inbox).run()
    sys.exit(0)


if __name__ == "__main__":
    main()
