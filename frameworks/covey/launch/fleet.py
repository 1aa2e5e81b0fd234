"""The hosts of a job, seen from coveyrun: their agents become ready, start the ranks, and tell of
them. Nothing of it listens: all goes through ssh. Internal.

Phases, each with all hosts at once: hello -> ready (folder, command, listeners) -> reached (each
other) -> started. A host that fails in one ends the start, after the others have answered too.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
import secrets
import selectors
from typing import Any, Callable, Container, Dict, List, Optional, Protocol, Sequence, Tuple

from covey.errors import shown
from covey.launch import book, identity, network, reach, report
from covey.launch.carried import carried
from covey.launch.channel import Channel, end_all
from covey.launch.hosts import Place, places
from covey.launch.pulse import Heart
from covey.launch.remote_rank import RemoteRank
from covey.launch.spec import Host, JobSpec, LaunchError
from covey.launch.waiting import Waiting
from covey.launch.witness import Witnesses

# A host may import the package, and preload modules, for so long.
PREPARE_S = 120.0


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
        slots = [host.slots for host in spec.plan.hosts]
        self._places = {place.rank: place for place in places(slots)}
        self._addresses: List[str] = []  # of the ranks' listeners, by host
        self._ranks: Dict[int, RemoteRank] = {}
        self._ended: List[RemoteRank] = []
        self._selector = selectors.EpollSelector()
        self._heart: Optional[Heart] = None
        self._store: Optional[List[Any]] = None  # The address and port of that which rank 0 serves.
        self._witnesses = Witnesses()
        self._world = 0  # Of an elastic job: whose they are.
        self._retired: List[Channel] = []
        self.said: List[Dict[str, Any]] = []  # by workers of an elastic job, since it was emptied
        self.tried: List[Tuple[Channel, Dict[str, Any]]] = []  # by hosts; likewise
        self.deaf: Dict[int, str] = {}  # why ranks do not say where they are; likewise
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
            self._channels.append(self.connect(host))
        wait = Waiting(self._channels, self.pump, (self, signals_fd), stopped)
        for channel, hello in zip(self._channels, wait.all("hello", self._plan.timeout_s)):
            channel.hello = hello
        ours = identity.own()
        _refuse({c: identity.difference(ours, c.hello) for c in self._channels})
        addresses = self._addresses = network.choose(self.networks(), self._plan.network)
        self._tell_of_choices()
        for index, (channel, address) in enumerate(zip(self._channels, addresses)):
            channel.wire.send("job", **self.job(address, self._on(index)))
        ready = wait.all("ready", PREPARE_S)
        self._check_reach(ready, wait)
        if ready[0]["store"] is not None:
            self._store = [addresses[0], ready[0]["store"]]
        begin = self.begin(range(self._spec.size), self._book(ready))
        for channel in self._channels:
            channel.wire.send("start", **begin)
        self._heart = Heart([channel.pulse for channel in self._channels], self._plan.lease_s)
        for index, started in enumerate(wait.all("started", PREPARE_S)):
            for place, pid in zip(self._on(index), started["pids"]):
                self._ranks[place.rank] = RemoteRank(place.rank, int(pid), self._channels[index])
        for rank in self._ranks.values():
            add(rank)

    def connect(self, host: Host) -> Channel:
        """A new agent there, which has been greeted. Raises LaunchError."""
        channel = Channel(host, self._plan, os.environ)
        self._selector.register(channel.wire.read_fd, selectors.EVENT_READ)
        channel.wire.send("hello", **identity.own())
        return channel

    def pump(self, channel: Channel, now: float) -> None:
        """Takes what has come there."""
        if not channel.has_ended:
            channel.pump(now)
            if channel.has_ended:
                self._selector.unregister(channel.wire.read_fd)

    def _on(self, host: int) -> List[Place]:
        return [place for place in self._places.values() if place.host == host]

    def networks(self) -> List[network.HostNetworks]:
        """Those of all hosts."""
        return [network.of_hello(channel.name, channel.hello) for channel in self._channels]

    def begin(self, numbers: Sequence[int], text: str) -> Dict[str, Any]:
        """The message by which a host starts those of its ranks that have these numbers."""
        ranks = list(numbers)
        return {"job": self.job_id, "ranks": ranks, "store": self._store, "book": text}

    def job(self, address: str, its: Sequence[Place]) -> Dict[str, Any]:
        """The message by which a host prepares its places."""
        spec = self._spec
        return {
            "lease_s": self._plan.lease_s,
            "elastic": self._spec.elastic is not None,
            "places": [dataclasses.asdict(place) for place in its],
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
            for place, (address, port) in zip(self._on(index), said["listeners"]):
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
            ranks = [it for it in self._ranks.values() if it.is_on(channel)]
            words = "no rank"
            if ranks:
                numbers = report.ranks_in_words([it.rank for it in ranks])
                words = f"{numbers}, pids {[it.pid for it in ranks]}"
            parts.append(f"{channel.name} ({self._addresses[index]}): {words}")
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
            self.pump(channel, now)
        for channel in self._channels:
            while channel.messages:
                self._on_message(channel, channel.messages.popleft(), sink, now)
            if channel in self._retired and not self._running_on(channel):
                self._retired.remove(channel)
                self.drop(channel)
            elif channel.has_ended:
                self._lose(channel, channel.why_lost())
            elif channel.pulse.is_silent(now):
                text = f"nothing was heard of it for {self._plan.lease_s:g} s (COVEY_LEASE)"
                self._lose(channel, text)
                self.drop(channel)

    def _on_message(self, channel: Channel, message: dict, sink: Sink, now: float) -> None:
        kind = message["covey"]
        if kind in ("out", "err"):
            data = message["text"].encode("utf-8", "surrogateescape")
            sink.feed(message["rank"], f"std{kind}", data, now)
        elif kind == "exit":
            self._ranks[message["rank"]].report(message["code"], message["out_of_memory"])
            self._ended.append(self._ranks[message["rank"]])
            self.has_traces = self.has_traces or message["has_traces"]
        elif kind == "gone":
            its = message["rank"], message["pid"]
            for rank in (it for it in self._ended if (it.rank, it.pid) == its):
                rank.report_gone(message["left_rest"])
        elif kind == "told":
            sink.told(message["text"])
        elif kind == "said":
            self.said.append(message)
        elif kind == "tried":
            self.tried.append((channel, message))
        elif kind == "begun":
            self._ranks[message["number"]].pid = message["pid"]
        elif kind == "witness" and message["world"] == self._world:
            answer = self._witnesses.answer(bytes.fromhex(message["packet"]))
            if answer is not None:
                channel.wire.send("witness", rank=message["rank"], packet=answer.hex())
        elif kind == "deaf":
            self.deaf.update((int(rank), str(why)) for rank, why in message["ranks"])
        elif kind == "lost":
            self._lose(channel, shown(message["text"]))

    def _running_on(self, channel: Channel) -> List[RemoteRank]:
        return [it for it in self._ranks.values() if it.is_on(channel) and not it.is_over]

    def _lose(self, channel: Channel, why: str) -> None:
        """Its ranks count as ended. Nothing happens when they have."""
        ranks = self._running_on(channel)
        if ranks:
            with_it = report.ranks_in_words([it.rank for it in ranks])
            text = f"host {shown(channel.name)} is lost, and with it {with_it}: {why}"
            for rank in ranks:
                rank.report(1, lost=text)

    # ---- Of an elastic job -------------------------------------------------------------------

    @property
    def lease_s(self) -> float:
        """As of the plan."""
        return self._plan.lease_s

    @property
    def security(self) -> str:
        """As of the book."""
        return self._plan.security

    def places(self) -> Dict[int, Place]:
        """By number; `host` counts all that have been of the job."""
        return dict(self._places)

    def addresses(self) -> List[str]:
        """Where the ranks of each host listen."""
        return list(self._addresses)

    def live(self) -> List[Channel]:
        """The hosts that are neither lost nor about to leave."""
        return [it for it in self._channels if not it.has_ended and it not in self._retired]

    def gone_places(self) -> List[int]:
        """The numbers of places on other hosts."""
        live = self.live()
        return [n for n, place in self._places.items() if self._channels[place.host] not in live]

    def join(self, channel: Channel, address: str, its: Sequence[Place]) -> Dict[int, int]:
        """A host with these `new_places` is one of the job. Returns its number for each."""
        host = len(self._channels)
        self._channels.append(channel)
        self._addresses.append(address)
        self._places.update((it.rank, dataclasses.replace(it, host=host)) for it in its)
        if self._heart is not None:
            self._heart.add(channel.pulse)
        return {place.rank: host for place in its}

    def new_places(self, slots: int, taken: Container[int]) -> List[Place]:
        """For a host that is to join: the lowest numbers that no place has, nor `taken`."""
        gone = {number for number in self.gone_places() if self._is_free(number)}
        free = (n for n in itertools.count() if n in gone or n not in self._places)
        numbers = list(itertools.islice((n for n in free if n not in taken), slots))
        size = max(len(self._places), numbers[-1] + 1)
        first, host = numbers[0], len(self._channels)
        return [Place(n, size, at, slots, 0, 1, host, first) for at, n in enumerate(numbers)]

    def _is_free(self, number: int) -> bool:
        return number not in self._ranks or self._ranks[number].is_over

    def retire(self, channel: Channel) -> None:
        """That host is to leave: its agent ends when no rank is left there."""
        self._retired.append(channel)

    def drop(self, channel: Channel) -> None:
        """That agent ends; nothing it says counts."""
        if not channel.has_ended:
            self._selector.unregister(channel.wire.read_fd)
            channel.abandon()

    def send(self, number: int, kind: str, /, **fields: Any) -> None:
        """To the host of that place."""
        self._channels[self._places[number].host].wire.send(kind, **fields)

    def more(self, number: int) -> RemoteRank:
        """Has that host start a worker; its process id follows."""
        self.send(number, "more", number=number)
        channel = self._channels[self._places[number].host]
        self._ranks[number] = RemoteRank(number, 0, channel)
        return self._ranks[number]

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
