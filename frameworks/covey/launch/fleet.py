"""The hosts of a job, seen from coveyrun: their agents become ready, start the ranks, and tell of
them. Nothing of it listens: all goes through ssh. Internal.

Phases, each with all hosts at once: hello -> ready (folder, command, listeners) -> reached (each
other) -> started. A host that fails in one ends the start, after the others have answered too.
"""

from __future__ import annotations

import os
import secrets
import selectors
import signal
from typing import Any, Callable, Dict, List, Optional, Protocol, Sequence

from covey.errors import shown
from covey.launch import book, identity, network, reach, report
from covey.launch.carried import carried
from covey.launch.channel import Channel, end_all
from covey.launch.hosts import Place, places
from covey.launch.pulse import Heart
from covey.launch.spec import JobSpec, LaunchError
from covey.launch.waiting import Waiting
from covey.launch.witness import Witnesses

# A host may import the package, and preload modules, for so long.
_PREPARE_S = 120.0


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


class Sink(Protocol):
    """The receiver of the output and the reports of ranks."""

    def feed(self, rank: int, name: str, data: bytes, now: float) -> None:
        """A piece of stdout or stderr. May raise."""

    def told(self, text: str) -> None:
        """For the summary."""


class Fleet:
    """All hosts of a job. Close it."""

    def __init__(self, spec: JobSpec, say: Callable[[str], None]) -> None:
        """Starts nothing yet."""
        assert spec.plan is not None
        self._spec, self._plan, self._say = spec, spec.plan, say
        self._channels: List[Channel] = []
        self._places: List[List[Place]] = [[] for _ in spec.plan.hosts]
        for place in places(self._counts()):
            self._places[place.host].append(place)
        self._addresses: List[str] = []  # of the ranks' listeners, by host
        self._ranks: Dict[int, RemoteRank] = {}
        self._selector = selectors.EpollSelector()
        self._heart: Optional[Heart] = None
        self._witnesses = Witnesses()
        self._world = 0  # Of an elastic job: whose they are.
        self.said: List[Dict[str, Any]] = []  # by workers of an elastic job, since it was emptied
        self.deaf: List[int] = []  # ranks that cannot say where they are, since it was emptied
        self.has_traces = False  # some host has
        self.job_id = secrets.token_hex(8)

    def fileno(self) -> int:
        """Readable when there is news."""
        return self._selector.fileno()

    # ---- Starting ----------------------------------------------------------------------------

    def start(
        self,
        signals_fd: Optional[int],
        stopped: Callable[[], None],
        add: Callable[[RemoteRank], None],
    ) -> None:
        """Starts the ranks, and adds them. `stopped` is asked when `signals_fd` is readable, and
        raises to give up.

        Raises:
            LaunchError: a host cannot take part: a line for each such host says why.
        """
        for host in self._plan.hosts:
            self._channels.append(Channel(host, self._plan, os.environ))
            self._selector.register(self._channels[-1].wire.read_fd, selectors.EVENT_READ)
        wait = Waiting(self._channels, self._pump, (self, signals_fd), stopped)
        ours = identity.own()
        self._send_all("hello", ours)
        for channel, hello in zip(self._channels, wait.all("hello", self._plan.timeout_s)):
            channel.hello = hello
        _refuse({c: identity.difference(ours, c.hello) for c in self._channels})
        networks = [network.of_hello(channel.name, channel.hello) for channel in self._channels]
        addresses = self._addresses = network.choose(networks, self._plan.network)
        self._tell_of_choices()
        for index, (channel, address) in enumerate(zip(self._channels, addresses)):
            channel.wire.send("job", **self._job(index, address))
        ready = wait.all("ready", _PREPARE_S)
        self._check_reach(ready, wait)
        self._send_all(
            "start",
            {
                "job": self.job_id,
                "size": self._spec.size,
                "store": None if ready[0]["store"] is None else [addresses[0], ready[0]["store"]],
                "book": self._book(ready),
            },
        )
        for index, started in enumerate(wait.all("started", _PREPARE_S)):
            for place, pid in zip(self._places[index], started["pids"]):
                self._add(place, int(pid))
        pulses = [channel.pulse for channel in self._channels]
        self._heart = Heart(pulses, self._plan.lease_s)
        for rank in self._ranks.values():
            add(rank)

    def _add(self, place: Place, pid: int) -> RemoteRank:
        self._ranks[place.rank] = RemoteRank(place.rank, pid, self._channels[place.host])
        return self._ranks[place.rank]

    def _pump(self, channel: Channel, now: float) -> None:
        if not channel.has_ended:
            channel.pump(now)
            if channel.has_ended:
                self._selector.unregister(channel.wire.read_fd)

    def _send_all(self, kind: str, fields: Dict[str, Any]) -> None:
        for channel in self._channels:
            channel.wire.send(kind, **fields)

    def _counts(self) -> List[int]:
        return [host.slots for host in self._plan.hosts]

    def _job(self, index: int, address: str) -> Dict[str, Any]:
        spec = self._spec
        return {
            "lease_s": self._plan.lease_s,
            "elastic": self._spec.elastic is not None,
            "counts": self._counts(),
            "host": index,
            "address": address,
            "cwd": os.getcwd(),
            "environ": carried(os.environ),
            "bind_gpus": self._plan.bind_gpus,
            "spec": {
                "command": list(spec.command),
                "timeline_dir": spec.timeline_dir,
                "extra_env": spec.extra_env,
                "settings_env": spec.settings_env,
                "preload": list(spec.preload),
                "program": spec.program,
            },
        }

    def _check_reach(self, ready: Sequence[Dict[str, Any]], wait: Waiting) -> None:
        count = len(self._channels)
        tried = [reach.targets(count, index) for index in range(count)]
        for channel, targets in zip(self._channels, tried):
            channel.wire.send("reach", addresses=[ready[at]["tried"] for at in targets])
        lines = []
        for index, said in enumerate(wait.all("reached", self._plan.timeout_s + reach.TRY_S)):
            for number, why in said["failures"]:
                other = tried[index][number]
                names = self._channels[index].name, self._channels[other].name
                seen, step = reach.in_words(*names, ready[other]["tried"], str(why))
                lines.append(f"{seen}: {step}")
        if lines:
            raise LaunchError("\n".join(lines))

    def _book(self, ready: Sequence[Dict[str, Any]]) -> str:
        """Empty: all ranks are on one host, or each world of an elastic job has its own."""
        if len(ready) == 1 or self._spec.elastic is not None:
            return ""
        entries = []
        for index, said in enumerate(ready):
            for place, (address, port) in zip(self._places[index], said["listeners"]):
                entries.append(book.Entry(place.lowest, address, port))
        return book.text_of(book.draw_key(), self._plan.security, entries)

    def _tell_of_choices(self) -> None:
        if self._spec.quiet:
            return
        if self._plan.security == "auth":
            self._say(book.UNENCRYPTED)
        by_machine: Dict[str, List[str]] = {}
        for channel in self._channels:
            by_machine.setdefault(channel.hello["machine"], []).append(channel.name)
        for names in by_machine.values():
            if len(names) > 1:
                self._say(
                    f"{' and '.join(names)} are one machine: their ranks would share memory "
                    "if it were named once"
                )

    # ---- While the ranks run -----------------------------------------------------------------

    def described(self) -> str:
        """The job in words, for --verbose."""
        parts = []
        for index, channel in enumerate(self._channels):
            numbers = [place.rank for place in self._places[index]]
            ranks = [self._ranks[number] for number in numbers if number in self._ranks]
            words = report.ranks_in_words([it.rank for it in ranks])
            where = f"{channel.name} ({self._addresses[index]})"
            parts.append(f"{where}: {words}, pids {[it.pid for it in ranks]}")
        return f"job {self.job_id}: {len(self._ranks)} ranks; " + "; ".join(parts)

    def cores(self) -> int:
        """Of all hosts."""
        return sum(channel.hello["cores"] for channel in self._channels)

    def deadline(self, now: float) -> float:
        """When `take` has to be called, news or not."""
        open_ones = [channel for channel in self._channels if not channel.has_ended]
        return min((it.deadline(now) for it in open_ones), default=now + self._plan.lease_s)

    def take(self, sink: Sink, now: float) -> None:
        """Passes on what has come. An error of `sink` comes through; the rest comes next time."""
        for channel in self._channels:
            self._pump(channel, now)
        for channel in self._channels:
            while channel.messages:
                self._on_message(channel, channel.messages.popleft(), sink, now)
            if channel.has_ended:
                self._lose(channel, channel.why_lost())
            elif channel.pulse.is_silent(now):
                text = f"nothing was heard of it for {self._plan.lease_s:g} s (COVEY_LEASE)"
                self._lose(channel, text)
                self._selector.unregister(channel.wire.read_fd)
                channel.abandon()

    def _on_message(self, channel: Channel, message: dict, sink: Sink, now: float) -> None:
        kind = message["covey"]
        if kind in ("out", "err"):
            data = message["text"].encode("utf-8", "surrogateescape")
            sink.feed(message["rank"], f"std{kind}", data, now)
        elif kind == "exit":
            self._ranks[message["rank"]].report(message["code"], message["out_of_memory"])
            self.has_traces = self.has_traces or message["has_traces"]
        elif kind == "told":
            sink.told(message["text"])
        elif kind == "said":
            self.said.append(message)
        elif kind == "begun":
            self._ranks[message["rank"]].pid = message["pid"]
        elif kind == "witness" and message["world"] == self._world:
            answer = self._witnesses.answer(bytes.fromhex(message["packet"]))
            if answer is not None:
                channel.wire.send("witness", rank=message["rank"], packet=answer.hex())
        elif kind == "deaf":
            self.deaf += message["ranks"]
        elif kind == "lost":
            self._lose(channel, shown(message["text"]))

    def _lose(self, channel: Channel, why: str) -> None:
        """Its ranks count as ended. Nothing happens when they have."""
        ranks = [it for it in self._ranks.values() if it.is_on(channel) and not it.is_over]
        if ranks:
            with_it = report.ranks_in_words([it.rank for it in ranks])
            text = f"host {shown(channel.name)} is lost, and with it {with_it}: {why}"
            for rank in ranks:
                rank.report(1, lost=text)

    # ---- Of an elastic job -------------------------------------------------------------------

    @property
    def security(self) -> str:
        """As of the book."""
        return self._plan.security

    def hosts_of_places(self) -> List[int]:
        """By number."""
        return [place.host for its in self._places for place in its]

    def addresses_of_places(self) -> List[str]:
        """By number."""
        return [self._addresses[host] for host in self.hosts_of_places()]

    def lost_places(self) -> List[int]:
        """The numbers of places on hosts that are lost."""
        of_hosts = zip(self._channels, self._places)
        return [place.rank for channel, its in of_hosts if channel.has_ended for place in its]

    def send(self, number: int, kind: str, **fields: Any) -> None:
        """To the host of that place."""
        self._channels[self.hosts_of_places()[number]].wire.send(kind, **fields)

    def more(self, number: int) -> RemoteRank:
        """Has that host start a worker; its process id follows."""
        place = next(place for its in self._places for place in its if place.rank == number)
        self.send(number, "more", rank=number)
        return self._add(place, 0)

    def begin_world(self, world: int) -> None:
        """It has witnesses of its own."""
        self._world, self._witnesses = world, Witnesses()

    def close(self) -> None:
        """The agents end, and what they have started."""
        if self._heart is not None:
            self._heart.close()
            self._heart = None
        end_all(self._channels)
        self._channels = []
        self._selector.close()


def _refuse(reasons: Dict[Channel, str]) -> None:
    """Raises LaunchError with a line for each host that has one."""
    lines = [f"{channel.name}: {shown(text)}" for channel, text in reasons.items() if text]
    if lines:
        raise LaunchError("\n".join(lines))
