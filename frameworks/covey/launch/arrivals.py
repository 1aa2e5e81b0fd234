"""Hosts that come to a job while it runs: those that were lost, and those that are named later.

A host that is wanted and not of the job is connected to as long as there is room for more ranks:

    it is to send  when that has come                            it is to send next
    hello          it is told its part                           ready
    ready          the hosts of the job try to reach it          reached
    reached        when they do: it is told to begin, no rank    started
    started        it is of the job, and its places are offered

One that is refused, ends or is too slow is tried again, after a pause that doubles; the reason is
said once. Nothing here waits. Internal.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Callable, Dict, List, Optional, Sequence, Set, Tuple

from covey.errors import shown
from covey.launch import identity, network, reach
from covey.launch.channel import Channel, end_all
from covey.launch.fleet import PREPARE_S, Fleet
from covey.launch.hosts import Place
from covey.launch.spec import Host, HostPlan, LaunchError

FIRST_PAUSE_S, LONGEST_PAUSE_S = 5.0, 300.0
_TRIES_PER_LEASE = 4  # An agent that tries says nothing meanwhile.


@dataclasses.dataclass
class Arrival:
    """A host on its way.

    Attributes:
        until: when it is too slow.
        wanted: the kind of message that it is to send next; empty: the others are to have tried.
        address: where its ranks will listen.
        tried: the address and port that the others try.
        missing: those that have not answered yet.
    """

    channel: Channel
    until: float
    wanted: str = "hello"
    address: str = ""
    places: Sequence[Place] = ()
    tried: Sequence[Any] = ()
    missing: Set[Channel] = dataclasses.field(default_factory=set)


class Arrivals:
    """All of them. Close it before the fleet."""

    def __init__(
        self, fleet: Fleet, plan: HostPlan, most: int, say: Callable[[str], None]
    ) -> None:
        """Borrows `fleet`. `most`: ranks of the job."""
        self._fleet, self._plan, self._most, self._say = fleet, plan, most, say
        self._wanted: List[Host] = [*plan.hosts, *plan.spare]
        self._known: Set[str] = {host.name for host in plan.hosts}  # They have been of the job.
        self._coming: List[Arrival] = []
        self._pauses: Dict[str, float] = {}  # After the next failure, by name.
        self._next: Dict[str, float] = {}  # When it may be connected to, likewise.
        self._said: Dict[str, str] = {}
        self._offered: Dict[int, int] = {}

    def want(self, hosts: Sequence[Host]) -> None:
        """From now on these are wanted; hosts of the job that are not among them leave it."""
        self._wanted = list(hosts)
        names = {host.name for host in hosts}
        for channel in self._fleet.live():
            if channel.name not in names:
                self._say(f"host {shown(channel.name)} leaves the job: it is listed no more")
                self._fleet.retire(channel)

    def take(self, now: float) -> Dict[int, int]:
        """Goes on. Returns new places: their hosts, by number."""
        tries, self._fleet.tried = self._fleet.tried, []
        for it in list(self._coming):
            try:
                self._take_tries(it, tries)
                self._follow(it, now)
            except LaunchError as error:
                self._coming.remove(it)
                self._fleet.drop(it.channel)
                it.channel.await_end(now)
                self._fail(it.channel.name, str(error), now)
        self._connect(now)
        offered, self._offered = self._offered, {}
        return offered

    def deadline(self, now: float) -> Optional[float]:
        """When `take` has something to do, news or not."""
        found = [min(it.until, it.channel.deadline(now)) for it in self._coming]
        due = [self._due(host, now) for host in self._missing()]
        return min([*found, *due], default=None)

    def close(self) -> None:
        """Those on their way do not come."""
        end_all([it.channel for it in self._coming])
        self._coming = []

    # ---- Which are connected to, and when ----------------------------------------------------

    def _connected(self) -> List[Channel]:
        return [*self._fleet.live(), *(it.channel for it in self._coming)]

    def _room(self) -> int:
        """For so many ranks more."""
        return self._most - sum(channel.host.slots for channel in self._connected())

    def _missing(self) -> List[Host]:
        """Those to connect to, in their order; none without room."""
        here = {channel.name for channel in self._connected()}
        return [it for it in self._wanted if it.name not in here] if self._room() > 0 else []

    def _due(self, host: Host, now: float) -> float:
        pause = FIRST_PAUSE_S if host.name in self._known else 0.0
        return self._next.setdefault(host.name, now + pause)

    def _connect(self, now: float) -> None:
        for host in self._missing():
            if now < self._due(host, now) or self._room() <= 0:
                continue
            try:
                channel = self._fleet.connect(host)
            except LaunchError as error:
                self._fail(host.name, str(error), now)
            else:
                self._coming.append(Arrival(channel, now + self._plan.timeout_s))

    def _fail(self, name: str, why: str, now: float) -> None:
        pause = self._pauses.get(name, FIRST_PAUSE_S)
        self._pauses[name] = min(LONGEST_PAUSE_S, 2 * pause)
        self._next[name] = now + pause
        if self._said.get(name) != why:
            self._said[name] = why
            self._say(f"host {shown(name)} cannot come: {why}; it is tried again")

    # ---- One that is on its way: each raises LaunchError when it cannot come -----------------

    def _follow(self, it: Arrival, now: float) -> None:
        self._fleet.pump(it.channel, now)
        while it.channel.messages:
            message = it.channel.messages.popleft()
            if message["covey"] == "refused":
                raise LaunchError(shown(message["text"]))
            if message["covey"] != it.wanted:
                raise LaunchError("a message out of turn")
            _STEPS[it.wanted](self, it, message, now)
        if it not in self._coming:
            return
        if it.channel.has_ended:
            raise LaunchError(it.channel.why_not_started().removeprefix(f"{it.channel.name}: "))
        if now >= it.until:
            raise LaunchError(f"its agent has not sent {it.wanted or 'anything'} in time")
        if not it.wanted and not it.missing & set(self._fleet.live()):
            it.channel.wire.send("start", **self._fleet.begin([], ""))
            it.wanted = "started"

    def _greet(self, it: Arrival, hello: Dict[str, Any], now: float) -> None:
        it.channel.hello = hello
        difference = identity.difference(identity.own(), hello)
        if difference:
            raise LaunchError(difference)
        networks = [*self._fleet.networks(), network.of_hello(it.channel.name, hello)]
        *others, it.address = network.choose(networks, self._plan.network)
        if others != self._fleet.addresses():
            raise LaunchError("it is in no network that the hosts of the job use: --network")
        taken = {place.rank for other in self._coming for place in other.places}
        it.places = self._fleet.new_places(it.channel.host.slots, taken)
        it.channel.wire.send("job", **self._fleet.job(it.address, it.places))
        it.wanted, it.until = "ready", now + PREPARE_S

    def _ask_others(self, it: Arrival, ready: Dict[str, Any], now: float) -> None:
        it.tried, it.missing = ready["tried"], set(self._fleet.live())
        limit_s = min(reach.TRY_S, self._plan.lease_s / _TRIES_PER_LEASE)
        for channel in it.missing:
            channel.wire.send("try", where=it.tried, limit_s=limit_s)
        it.channel.wire.send("reach", addresses=[])
        it.wanted, it.until = "reached", now + self._plan.timeout_s

    def _await_others(self, it: Arrival, reached: Dict[str, Any], now: float) -> None:
        it.wanted = ""

    def _take_tries(
        self, it: Arrival, tries: Sequence[Tuple[Channel, Dict[str, Any]]]
    ) -> None:
        for channel, message in tries:
            if message["where"] == it.tried:
                it.missing.discard(channel)
                if message["why"]:
                    names = channel.name, it.channel.name
                    raise LaunchError(": ".join(reach.in_words(*names, it.tried, message["why"])))

    def _join(self, it: Arrival, started: Dict[str, Any], now: float) -> None:
        self._coming.remove(it)
        self._offered.update(self._fleet.join(it.channel, it.address, it.places))
        name = it.channel.name
        self._known.add(name)
        self._pauses.pop(name, None)
        self._next.pop(name, None)
        self._said.pop(name, None)
        count = len(it.places)
        self._say(f"host {shown(name)} has come, with room for {count} rank{'s' * (count > 1)}")


_STEPS: Dict[str, Callable[[Arrivals, Arrival, Dict[str, Any], float], None]] = {
    "hello": Arrivals._greet,
    "ready": Arrivals._ask_others,
    "reached": Arrivals._await_others,
    "started": Arrivals._join,
}
