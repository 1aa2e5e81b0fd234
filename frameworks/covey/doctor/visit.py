"""The doctor's conversation with the agents of all hosts, over ssh as coveyrun's. Internal.

Phases, each with all hosts at once: hello -> facts -> opened -> tried. A host that fails in one is
left out of the next.
"""

from __future__ import annotations

import ipaddress
import secrets
import selectors
import time
from dataclasses import dataclass, field
from typing import Any, Dict, List, Mapping, Sequence, Tuple

from covey.doctor import passage
from covey.errors import shown
from covey.launch import identity, network, reach
from covey.launch.carried import carried
from covey.launch.channel import Channel, end_all
from covey.launch.check import working_folder
from covey.launch.environment import OF_LAUNCHERS
from covey.launch.hosts import is_here
from covey.launch.spec import HostPlan, LaunchError
from covey.launch.waiting import Waiting


@dataclass
class Findings:
    """The answers of the hosts, by name of host.

    Attributes:
        ranks: of each host.
        failed: why a host cannot take part: ssh, or another build.
        hellos, facts: the messages of the others.
        apart: the least and the greatest difference of its clock from the doctor's, in seconds.
        addresses: where ranks would listen; empty for a job on one host.
        no_network: why there are no addresses.
        cannot_listen: why a host has no sink.
        pairs: by (from, to): the outcome of passage.py.
        variables: COVEY_* that ranks would get.
        cwd: the folder in which ranks would start.
        here: the host of this program, where coveyrun would run; empty: none of the plan's.
    """

    plan: HostPlan
    ranks: Dict[str, int]
    failed: Dict[str, str] = field(default_factory=dict)
    hellos: Dict[str, Dict[str, Any]] = field(default_factory=dict)
    facts: Dict[str, Dict[str, Any]] = field(default_factory=dict)
    apart: Dict[str, Tuple[float, float]] = field(default_factory=dict)
    addresses: Dict[str, str] = field(default_factory=dict)
    no_network: str = ""
    cannot_listen: Dict[str, str] = field(default_factory=dict)
    pairs: Dict[Tuple[str, str], Dict[str, Any]] = field(default_factory=dict)
    variables: Dict[str, str] = field(default_factory=dict)
    cwd: str = ""
    here: str = ""


class Visit:
    """One visit of all hosts of a plan. Close it."""

    def __init__(self, plan: HostPlan, environ: Mapping[str, str]) -> None:
        """`environ`: that of a coveyrun started here."""
        self._plan, self._environ = plan, environ
        self._channels: List[Channel] = []
        self._selector = selectors.EpollSelector()
        passed = {n: text for n, text in carried(environ).items() if n.startswith("COVEY_")}
        self.findings = Findings(
            plan,
            {host.name: host.slots for host in plan.hosts},
            variables={n: text for n, text in passed.items() if n not in OF_LAUNCHERS},
            cwd=working_folder(),
            here=next((host.name for host in plan.hosts if is_here(host.name)), ""),
        )

    def make(self) -> Findings:
        """The answers. Takes as long as the slowest host, which is given up after the plan's
        time. Raises LaunchError: there is no such program as ssh."""
        for host in self._plan.hosts:
            self._channels.append(Channel(host, self._plan, self._environ))
            self._selector.register(self._channels[-1].wire.read_fd, selectors.EVENT_READ)
        wait = Waiting(self._channels, self._pump, (self._selector, None), lambda: None)
        alive = self._greet(wait)
        alive = self._look(wait, alive)
        if len(self._plan.hosts) > 1 and len(alive) > 1:
            self._try(wait, alive)
        return self.findings

    def _pump(self, channel: Channel, now: float) -> None:
        if not channel.has_ended:
            channel.pump(now)
            if channel.has_ended:
                self._selector.unregister(channel.wire.read_fd)

    def _ask(
        self, wait: Waiting, asked: Sequence[Channel], kind: str, limit_s: float
    ) -> Dict[Channel, Dict[str, Any]]:
        """The answers; hosts without one have failed, in words without their names."""
        answers, failed = wait.some(asked, kind, limit_s)
        for channel, text in failed.items():
            self.findings.failed[channel.name] = text[len(f"{channel.name}: ") :]
        return answers

    def _greet(self, wait: Waiting) -> List[Channel]:
        ours, found = identity.own(), self.findings
        for channel in self._channels:
            channel.wire.send("hello", **ours)
        answers = self._ask(wait, self._channels, "hello", self._plan.timeout_s)
        for channel, hello in answers.items():
            channel.hello = hello
            other = identity.difference(ours, hello)
            if other:
                found.failed[channel.name] = shown(other)
            else:
                found.hellos[channel.name] = hello
        return [channel for channel in self._channels if channel.name in found.hellos]

    def _look(self, wait: Waiting, asked: Sequence[Channel]) -> List[Channel]:
        found = self.findings
        for channel in asked:
            channel.wire.send(
                "look",
                ranks=found.ranks[channel.name],
                names=[name for name in map(bare, found.ranks) if not is_address(name)],
                cwd=found.cwd,
                variables=found.variables,
            )
        begun = time.time()
        for channel, facts in self._ask(wait, asked, "facts", self._plan.timeout_s).items():
            found.facts[channel.name] = facts
            # The clock was read between the question and now.
            found.apart[channel.name] = (facts["clock"] - time.time(), facts["clock"] - begun)
        return [channel for channel in asked if channel.name in found.facts]

    def _try(self, wait: Waiting, asked: Sequence[Channel]) -> None:
        found, token = self.findings, secrets.token_hex(16)
        networks = [network.of_hello(c.name, found.hellos[c.name]) for c in asked]
        try:
            chosen = network.choose(networks, self._plan.network)
        except LaunchError as error:
            found.no_network = str(error)
            return
        found.addresses = {channel.name: address for channel, address in zip(asked, chosen)}
        for channel in asked:
            channel.wire.send("open", address=found.addresses[channel.name], token=token)
        opened, failed = wait.some(asked, "opened", self._plan.timeout_s)
        found.cannot_listen = {channel.name: text for channel, text in failed.items()}
        asked = [channel for channel in asked if channel in opened]
        where = [(found.addresses[c.name], int(opened[c]["port"])) for c in asked]
        tried = {c: reach.targets(len(asked), index) for index, c in enumerate(asked)}
        for channel, targets in tried.items():
            channel.wire.send("try", targets=[where[at] for at in targets])
        limit_s = self._plan.timeout_s + passage.LONGEST_S
        for channel, said in self._ask(wait, asked, "tried", limit_s).items():
            for at, outcome in zip(tried[channel], said["outcomes"]):
                found.pairs[channel.name, asked[at].name] = {**outcome, "where": where[at]}

    def close(self) -> None:
        """The agents end."""
        end_all(self._channels)
        self._channels = []
        self._selector.close()


def bare(name: str) -> str:
    """The name of a host without the user that ssh is told."""
    return name.rpartition("@")[2]


def is_address(name: str) -> bool:
    """Whether a host is named by its address."""
    try:
        ipaddress.ip_address(name.partition("%")[0])
    except ValueError:
        return False
    return True
