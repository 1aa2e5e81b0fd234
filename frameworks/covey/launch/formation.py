"""How the nodes of a job, launchers or ranks that something else has started, become its hosts. The
nodes share texts (core/transport/control.h), each gets all of them, and all conclude the same.

    state      all have shared                   this node then                          becomes
    viewed     (all nodes are there)             makes its host's memory, if first       met
    met        terms, networks, places of memory one host: opens the memory              formed
                                                 several: opens it, and listens          listening
    listening  ports, or why there are none      tries those of other hosts, if first    trying
    trying     connections that failed           makes the book (launch/book.py)         formed

"First" is the node of a host with the lowest number. The key of the book is made of the job's
secret and of a text that the server has drawn: it does not travel. Internal.
"""

from __future__ import annotations

import ipaddress
import json
import os
import socket
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

from covey import _native
from covey.errors import CoveyError, InvalidArgument, shown
from covey.launch import book, memory, network, reach
from covey.launch.hosts import Place, places_of
from covey.launch.spec import LaunchError

_MOST_ADDRESSES = 64  # A host's; those of containers and loopback are left out first.
_MOST_CHARACTERS = 1000  # In a text that a node has written for people.
_MOST_PORT = 65535


@dataclass(frozen=True)
class Terms:
    """Settings of the job, which are the same on all nodes.

    Attributes:
        security: of connections between hosts, as in the book.
        keep_going: a rank that fails does not end the others.
    """

    security: str = "tls"
    keep_going: bool = False

    def differ(self, other: Terms) -> str:
        """The first difference, as an option of the launcher; empty: there is none."""
        if self.security != other.security:
            return f"--network-security {self.security} and {other.security}"
        return "" if self.keep_going == other.keep_going else "--keep-going on one of them"


@dataclass(frozen=True)
class Own:
    """The offer of a node to the others.

    Attributes:
        networks: of its host.
        store_port: for a store of PyTorch that rank 0 may serve; None: it has none.
    """

    terms: Terms
    networks: network.HostNetworks
    store_port: Optional[int] = None

    def text(self, place: str) -> str:
        """For the other nodes. `place`: of the host's memory; empty: another node makes it."""
        usable = sorted(self.networks.addresses, key=lambda a: (a.is_loopback, a.is_bridge))
        said = {
            "security": self.terms.security,
            "keep_going": self.terms.keep_going,
            "machine": self.networks.machine,
            "addresses": [[a.interface, a.address, a.bits] for a in usable[:_MOST_ADDRESSES]],
            "by_ssh": self.networks.by_ssh,
            "peer": self.networks.peer,
            "store": self.store_port,
            "memory": place,
        }
        return json.dumps(said)


@dataclass(frozen=True)
class Part:
    """This node's part of a job. Close it when its ranks have ended.

    Attributes:
        node: its number.
        nodes: all nodes: node, slots, first_rank, process, host and host_id of each.
        places: of its ranks.
        shm_fd: the memory of its host's ranks.
        book: where the ranks are, and their key; empty: all are on one host.
        listeners: of its ranks; none without a book.
        store: the address and port of a store that rank 0 may serve; None: there is none.
    """

    node: int
    nodes: Sequence[Mapping[str, Any]]
    places: Sequence[Place]
    shm_fd: int
    book: str = ""
    listeners: Sequence[socket.socket] = field(default_factory=list)
    store: Optional[Tuple[str, int]] = None

    def close(self) -> None:
        """Once."""
        os.close(self.shm_fd)
        for listener in self.listeners:
            listener.close()


def own_networks(host: str, address: str, wanted: str) -> network.HostNetworks:
    """The networks of this host, and how it reaches the rendezvous at HOST:PORT (empty: it is not
    known yet). `wanted`: as for network.choose, the only one then. Raises LaunchError."""
    name = address.rpartition(":")[0].strip("[]")
    route = next(iter(network.routes(name)), None) if name else None
    used, peer = ("", "") if route is None else (route.own, route.theirs)
    try:
        addresses = network.own_addresses()
    except OSError as error:
        raise LaunchError(f"cannot list the networks of this host: {error.strerror}") from error
    found = network.HostNetworks(host, network.machine_id(), addresses, used, peer)
    if not wanted:
        return found
    (chosen,) = network.choose([found], wanted)
    addresses = [one for one in addresses if one.address == chosen]
    return network.HostNetworks(host, found.machine, addresses, chosen, peer)


class Formation:
    """One node's way to its part. Close it, unless `part` is taken."""

    def __init__(self, view: Mapping[str, Any], own: Own, secret: bytes) -> None:
        """`view`: the event of the rendezvous."""
        self._own, self._drawn, self._secret = own, str(view["text"]), secret
        self._node, self._nodes = int(view["node"]), view["nodes"]
        numbers: Dict[str, int] = {}
        self._host_of = [numbers.setdefault(n["host_id"], len(numbers)) for n in self._nodes]
        self._first_of = [self._host_of.index(number) for number in range(len(numbers))]
        self._next: Callable[[Sequence[Dict[str, Any]]], str] = self._meet
        self._shm_fd = -1
        self._listeners: List[socket.socket] = []
        self._addresses: List[str] = []  # by node
        self._ports: List[List[int]] = []  # by node, its ranks' and then the one to be tried
        self._store_port: Optional[int] = None
        self.waiting_for = ""
        self.part: Optional[Part] = None

    @property
    def _is_first(self) -> bool:
        return self._first_of[self._host_of[self._node]] == self._node

    def _slots(self, node: int) -> int:
        return int(self._nodes[node]["slots"])

    def _host_name(self, node: int) -> str:
        return _for_people(self._nodes[node]["host"])

    def _has_several(self) -> bool:
        return len(self._first_of) > 1

    def begin(self) -> str:
        """The first text to share. Raises CoveyError."""
        self.waiting_for = "not every node has said where its host is"
        place = ""
        if self._is_first:
            here = self._host_of[self._node]
            ranks = sum(self._slots(n) for n, host in enumerate(self._host_of) if host == here)
            self._shm_fd = _native.job_create(ranks)
            place = memory.place_of(self._shm_fd)
        return self._own.text(place)

    def take(self, texts: Sequence[str]) -> str:
        """The next text to share; empty: `part` is there. Tries connections for seconds.

        Raises:
            LaunchError: there is no way between the hosts, or nodes were told different things.
            InvalidArgument: (a ValueError) a text is none that a node of this version shares.
        """
        try:
            if len(texts) != len(self._nodes):
                raise ValueError("another number of texts than of nodes")
            said = [json.loads(text) for text in texts]
            return self._next(said)
        except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError) as why:
            if isinstance(why, CoveyError):
                raise
            raise InvalidArgument(
                f"a node has shared what is no text of this version of Covey ({_for_people(why)})"
            ) from why

    # ---- What follows from the texts of all nodes --------------------------------------------

    def _meet(self, said: Sequence[Dict[str, Any]]) -> str:
        self._check_terms(said)
        self._store_port = _number_or_none(said[0]["store"])
        networks = [_networks(self._nodes[n], one) for n, one in enumerate(said)]
        if not self._has_several():
            self._open_memory(said)
            return self._form()
        self._addresses = network.choose(networks)
        self._next, self.waiting_for = self._try, "not every node listens"
        try:
            self._open_memory(said)
            count = self._slots(self._node) + 1
            self._listeners = reach.listen(self._addresses[self._node], count)
        except (CoveyError, OSError) as error:
            return json.dumps({"error": str(error)})
        return json.dumps({"ports": [it.getsockname()[1] for it in self._listeners]})

    def _try(self, said: Sequence[Dict[str, Any]]) -> str:
        self._refuse(said)
        for node, one in enumerate(said):
            self._ports.append([_number(port, 1, _MOST_PORT) for port in one["ports"]])
            if len(self._ports[node]) != self._slots(node) + 1:
                raise ValueError("another number of ports than of ranks")
        self._next, self.waiting_for = self._conclude, "not every node has tried its connections"
        targets = self._targets(self._node)
        why = reach.failures([(self._addresses[n], self._ports[n][-1]) for n in targets])
        return json.dumps({"failures": [[index, text] for index, text in why.items()]})

    def _conclude(self, said: Sequence[Dict[str, Any]]) -> str:
        lines = []
        for node, one in enumerate(said):
            targets = self._targets(node)
            if len(one["failures"]) > len(targets):
                raise ValueError("more failures than tries")
            for index, why in one["failures"]:
                to = targets[_number(index, 0, len(targets) - 1)]
                names = (self._host_name(node), self._host_name(to))
                where = (self._addresses[to], self._ports[to][-1])
                seen, step = reach.in_words(*names, where, _for_people(why))
                lines.append(f"{seen}: {step}")
        if lines:
            raise LaunchError("; ".join(lines))
        self._listeners.pop().close()  # It has been tried.
        return self._form()

    def _check_terms(self, said: Sequence[Dict[str, Any]]) -> None:
        terms = [Terms(str(one["security"]), one["keep_going"] is True) for one in said]
        for node, theirs in enumerate(terms):
            difference = theirs.differ(terms[0])
            if difference:
                raise LaunchError(
                    f"nodes {node} and 0 were told different things "
                    f"({_for_people(difference)}): give all the same options"
                )

    def _open_memory(self, said: Sequence[Dict[str, Any]]) -> None:
        if not self._is_first:
            maker = self._first_of[self._host_of[self._node]]
            self._shm_fd = memory.open_told(str(said[maker]["memory"]))

    def _refuse(self, said: Sequence[Dict[str, Any]]) -> None:
        errors = [(node, one["error"]) for node, one in enumerate(said) if "error" in one]
        for node, why in errors[:1]:
            host = self._host_name(node)
            raise LaunchError(f"node {node} on {host} cannot take part: {_for_people(why)}")

    def _targets(self, node: int) -> List[int]:
        """The nodes whose port this one tries: the first of other hosts, if it is one itself."""
        host = self._host_of[node]
        if self._first_of[host] != node:
            return []
        return [self._first_of[other] for other in reach.targets(len(self._first_of), host)]

    def _form(self) -> str:
        hosts = [h for n, h in enumerate(self._host_of) for _ in range(self._slots(n))]
        places = places_of(hosts)
        text = ""
        if self._has_several():
            key = book.derived_key(self._secret, self._drawn)
            wheres = [
                (self._addresses[node], port)
                for node, ports in enumerate(self._ports)
                for port in ports[:-1]
            ]
            entries = [
                book.Entry(place.lowest, *where) for place, where in zip(places, wheres)
            ]
            text = book.text_of(key, self._own.terms.security, entries)
        first = int(self._nodes[self._node]["first_rank"])
        port, at = self._store_port, (self._addresses or ["127.0.0.1"])[0]
        self.part = Part(
            node=self._node,
            nodes=self._nodes,
            places=places[first : first + self._slots(self._node)],
            shm_fd=self._shm_fd,
            book=text,
            listeners=self._listeners,
            store=None if port is None else (at, port),
        )
        return ""

    def close(self) -> None:
        """Closes all that was opened."""
        for listener in self._listeners:
            listener.close()
        if self._shm_fd >= 0:
            os.close(self._shm_fd)
            self._shm_fd = -1


# ---- The texts of other nodes ------------------------------------------------------------------


def _number(value: Any, least: int, most: int) -> int:
    if type(value) is not int or not least <= value <= most:
        raise ValueError("a number is out of its range")
    return int(value)


def _number_or_none(value: Any) -> Optional[int]:
    return None if value is None else _number(value, 1, _MOST_PORT)


def _for_people(text: Any) -> str:
    return shown(str(text))[:_MOST_CHARACTERS]


def _networks(node: Mapping[str, Any], said: Mapping[str, Any]) -> network.HostNetworks:
    addresses = []
    for interface, address, bits in said["addresses"][:_MOST_ADDRESSES]:
        found = ipaddress.ip_interface(f"{address}/{_number(bits, 0, 128)}")
        if "%" in str(address):  # of one link only
            raise ValueError("no address of an interface")
        one = network.Address(_for_people(interface), str(found.ip), found.network.prefixlen)
        addresses.append(one)
    name, machine = _for_people(node["host"]), str(said["machine"])
    return network.HostNetworks(name, machine, addresses, str(said["by_ssh"]), str(said["peer"]))
