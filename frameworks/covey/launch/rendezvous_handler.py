"""How launchers, or ranks that something else has started, become one job: over the control plane
of the plug-in grpc (core/transport/control.h).

waiting -> (view: all are there, the ranks of each) -> texts that all share (formation.py) ->
formed. Nothing here waits but for tries of connections: `advance` takes what has come.
"""

from __future__ import annotations

import json
import os
import re
import socket
from typing import Any, Dict, List, Optional

from covey import _native
from covey.errors import Aborted, CoveyError, shown
from covey.launch import address_file, memory, network, secret
from covey.launch.formation import Formation, Own, Part, Terms, own_networks
from covey.launch.spec import LaunchError, Rendezvous

_FILE = "file:"
_CLOSED = "; if a job was there, it had all its nodes before this one came"
# As the control plane calls what is bound to every network, however it was written: no address
# that a node can be told to connect to.
_EVERYWHERE = ("0.0.0.0", "[::]")
# How often a file with the address is looked for: the system does not tell of it.
LOOK_S = 0.05


def knob_seconds(name: str) -> float:
    """A knob that is a time, in seconds; its default when the variable is wrong."""
    (knob,) = (knob for knob in json.loads(_native.knobs()) if knob["name"] == name)
    number, unit = re.fullmatch(r"([\d.]+)(\D*)", knob["value"]).groups()
    return float(number) * {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}[unit or "s"]


def start_timeout_s() -> float:
    """How long ranks and launchers wait for each other."""
    return knob_seconds("start_timeout")


# The words of the system's resolver and sockets, inside gRPC's own.
_WHY_SILENT = (
    (r"Connection refused", "nobody serves at {}"),
    (r"DNS|[Nn]ame or service|Domain name", "the host of {} is not known here"),
    (r"[Uu]nreachable|No route", "{} cannot be reached from here"),
)


def in_plain_words(text: str) -> str:
    """``text`` of an event, without gRPC's words for a missing answer.

    Example:
        >>> in_plain_words("no answer from h:1 (last error: UNKNOWN: ipv4:h:1: Connection refused)")
        'nobody serves at h:1'
    """
    found = re.fullmatch(r"no answer from (\S+) \((.*)\)", text, re.S)
    if found is None:
        return text
    address, why = found.groups()
    words = (words for pattern, words in _WHY_SILENT if re.search(pattern, why))
    return next(words, "no answer from {}").format(address)


class RendezvousHandler:
    """One node of a rendezvous. Close it; without `leave` the others take that for its death."""

    def __init__(
        self, rendezvous: Rendezvous, slots: int, store_port: Optional[int] = None
    ) -> None:
        """Begins to serve, or to look for the server. `store_port`: free, for a store of rank 0.
        Raises CoveyError."""
        self.waiting_for = f"no answer from {rendezvous.address} yet"
        self.has_answer = rendezvous.serve  # a server has its own answer
        self._rendezvous = rendezvous
        self._slots = slots
        self._secret = secret.read(rendezvous.secret_file)
        self._control: Optional[_native.Control] = None
        self._address = ""  # that was found in the file
        self._formation: Optional[Formation] = None
        self._store_port = store_port
        self._taken: List[Dict[str, Any]] = []  # events that came with the last that was looked at
        self._file = ""
        self._made: Optional[os.stat_result] = None
        if rendezvous.address.startswith(_FILE):
            self._file = rendezvous.address[len(_FILE) :]
        wanted = rendezvous.network
        own = own_networks(socket.gethostname(), "", wanted)  # A wrong one is told at once.
        if rendezvous.serve:
            self._open(_any_port(own) if self._file else rendezvous.address)
            if self._file:
                self._made = address_file.write(self._file, self.address)
        elif not self._file:
            self._open(rendezvous.address)

    @property
    def address(self) -> str:
        """HOST:PORT in use; empty while it is looked for."""
        return "" if self._control is None else self._control.address()

    @property
    def is_forming(self) -> bool:
        """Whether all nodes are there, and agree on their places: that takes a moment."""
        return self._formation is not None

    def fileno(self) -> int:
        """Readable when there is something to take. Only once formed does it stay the same."""
        return -1 if self._control is None else self._control.fileno()

    def advance(self) -> Optional[Part]:
        """Takes what has come. This node's part once the job is formed, until then None.

        Raises:
            CoveyError: there will be no job: why, and what to do.
        """
        if self._file and self._formation is None and not self._rendezvous.serve:
            self._look_into_file()
        self._taken = self.news()
        while self._taken:
            event = self._taken.pop(0)
            if event["kind"] == "waiting":
                words = in_plain_words(event["text"])
                self.has_answer = self._rendezvous.serve or words == event["text"]
                self.waiting_for = shown(words)
            elif event["kind"] == "view":
                formation = self._formation = Formation(event, self._own(), self._secret)
                self._share(formation, formation.begin())
            elif event["kind"] == "shared" and self._formation is not None:
                self._share(self._formation, self._formation.take(event["texts"]))
                if self._formation.part is not None:
                    part, self._formation = self._formation.part, None
                    return part
            elif event["kind"] == "refused":
                raise LaunchError(shown(event["text"]))
            else:
                raise Aborted(shown(event["text"]) or "the job ended before it began")
        return None

    def news(self) -> List[Dict[str, Any]]:
        """The events that have come: see core/api/covey_control.h."""
        events, self._taken = self._taken, []
        while self._control is not None:
            text = self._control.next()
            if text is None:
                break
            events.append(json.loads(text))
        return events

    def has_ended(self) -> bool:
        """Whether all nodes have left. Raises Aborted when one has died before."""
        kinds = {event["kind"]: event["text"] for event in self.news()}
        if "lost" in kinds:
            raise Aborted(shown(kinds["lost"]))
        return "ended" in kinds

    def report(self, kind: str, text: str = "") -> bool:
        """Tells the others. False: no node is left to tell."""
        try:
            assert self._control is not None
            self._control.report(kind, text)
            return True
        except Aborted:
            return False

    def close(self) -> None:
        """Leaves."""
        if self._formation is not None:
            self._formation.close()
            self._formation = None
        if self._control is not None:
            self._control.close()
            self._control = None
        address_file.remove(self._file, self._made)

    def _open(self, address: str) -> None:
        wanted = self._rendezvous
        self._control = _native.control_open(
            address,
            self._secret,
            wanted.serve,
            wanted.nodes,
            wanted.node,
            self._slots,
            socket.gethostname(),
            memory.host_id(),
        )

    def _look_into_file(self) -> None:
        """Follows the file: what an earlier job left there is written over by this one's."""
        address = address_file.read(self._file)
        if address == self._address or not address:
            return
        if self._control is not None:
            self._control.close()
        self._address = address
        self._open(address)

    def _own(self) -> Own:
        """What this node offers. Raises LaunchError."""
        wanted = self._rendezvous
        return Own(
            Terms(wanted.security, wanted.keep_going),
            own_networks(socket.gethostname(), self.address, wanted.network),
            self._store_port,
        )

    def _share(self, formation: Formation, text: str) -> None:
        """For all nodes; an empty text: this one has its part."""
        assert self._control is not None
        self._control.report("share" if text else "ready", text)
        self.waiting_for = formation.waiting_for


def _any_port(own: network.HostNetworks) -> str:
    """Where a server listens whose address goes through a file: other hosts may read it."""
    host = own.by_ssh or network.outward()
    return f"[{host}]:0" if ":" in host else f"{host}:0"


def everywhere(address: str) -> str:
    """That the HOST of ``address`` (HOST:PORT in use) stands for every network, in words; empty
    when it does not."""
    host = address.rpartition(":")[0]
    if host not in _EVERYWHERE:
        return ""
    return (
        f"{host} stands for every network of this machine: name one address of it, unless the "
        "others come by several"
    )


def too_late(handler: RendezvousHandler, timeout_s: float) -> CoveyError:
    """The error when the job has not formed in time."""
    closed = "" if handler.has_answer else _CLOSED
    return LaunchError(
        f"the job did not form within {timeout_s:g} s (--start-timeout, COVEY_START_TIMEOUT): "
        f"{handler.waiting_for}{closed}"
    )
