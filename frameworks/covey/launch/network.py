"""The networks of a host, and the one that a job uses: the addresses at which its ranks listen.

Choosing is pure; `own_addresses` asks the system. Internal.
"""

from __future__ import annotations

import contextlib
import ctypes
import ipaddress
import os
import re
import socket
from dataclasses import dataclass
from typing import Any, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

from covey.launch.spec import LaunchError

# Interfaces of containers and virtual machines: their networks end at the host.
_BRIDGES = re.compile(r"(docker|br-|virbr|lxc|lxd|cni|flannel|cali|cilium|veth|podman|kube-).*")
_IFF_UP = 1
_ANYWHERE = "192.0.2.1"  # RFC 5737: of no host

IpNetwork = Union[ipaddress.IPv4Network, ipaddress.IPv6Network]


@dataclass(frozen=True)
class Address:
    """An address of a host: that of an interface, with its network as `address/bits`."""

    interface: str
    address: str
    bits: int

    @property
    def network(self) -> IpNetwork:
        """The addresses that it reaches directly."""
        return ipaddress.ip_network(f"{self.address}/{self.bits}", strict=False)

    @property
    def is_loopback(self) -> bool:
        """Whether it ends at the host."""
        return ipaddress.ip_address(self.address).is_loopback

    @property
    def is_bridge(self) -> bool:
        """Whether its network is one of containers or virtual machines of the host."""
        return _BRIDGES.fullmatch(self.interface) is not None

    def __str__(self) -> str:
        return f"{self.interface} {self.address}/{self.bits}"


@dataclass(frozen=True)
class HostNetworks:
    """The addresses that a host has told.

    Attributes:
        host: its name.
        machine: equal for hosts that are one machine.
        addresses: those of its interfaces.
        by_ssh: the one that ssh's connection came to, or by which it reaches the rendezvous; empty:
            there is no such connection.
        peer: the address of the other end of this connection; empty likewise.
    """

    host: str
    machine: str
    addresses: Sequence[Address]
    by_ssh: str = ""
    peer: str = ""


def of_hello(host: str, hello: Mapping[str, Any]) -> HostNetworks:
    """The networks of `host`, by the first message of its agent."""
    addresses = [Address(*one) for one in hello["addresses"]]
    return HostNetworks(host, hello["machine"], addresses, hello["by_ssh"], hello["peer"])


def choose(hosts: Sequence[HostNetworks], wanted: str = "") -> List[str]:
    """The address of each host at which its ranks listen. `wanted`: an interface or a network as
    10.0.0.0/8, or several behind commas, the first that a host has counts.

    Raises:
        LaunchError: a host has none; or they have no network in common. Names their networks.
    """
    if wanted:
        return _within(hosts, wanted)
    for usable in _kinds(hosts):
        chosen = _in_common(hosts, usable)
        if chosen is not None:
            return chosen
    routed = _of_ssh(hosts)
    if routed is not None:
        return routed
    raise LaunchError(
        f"the hosts have no network in common ({_shown(hosts)}): choose addresses that reach each "
        "other by --network IFACE or --network 10.0.0.0/8"
    )


def _within(hosts: Sequence[HostNetworks], wanted: str) -> List[str]:
    tests = [_test_of(part.strip()) for part in wanted.split(",")]
    chosen = []
    for host in hosts:
        matches = [one.address for test in tests for one in host.addresses if _matches(one, test)]
        if not matches:
            raise LaunchError(f"--network {wanted}: none of {_shown([host])}")
        chosen.append(matches[0])
    return chosen


def _test_of(text: str) -> Union[str, IpNetwork]:
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        if "/" in text or not text:
            raise LaunchError(f"--network {text}: no interface and no network") from None
        return text


def _matches(one: Address, test: Union[str, IpNetwork]) -> bool:
    if isinstance(test, str):
        return one.interface == test
    return ipaddress.ip_address(one.address) in test


def _kinds(hosts: Sequence[HostNetworks]) -> Iterator[List[List[Address]]]:
    """Per host what may be used, the better kinds first."""
    yield [[a for a in h.addresses if not a.is_loopback and not a.is_bridge] for h in hosts]
    yield [[a for a in h.addresses if not a.is_loopback] for h in hosts]
    if len({host.machine for host in hosts}) == 1:
        yield [[a for a in h.addresses if a.is_loopback] for h in hosts]


def _in_common(
    hosts: Sequence[HostNetworks], usable: Sequence[Sequence[Address]]
) -> Optional[List[str]]:
    """Addresses in one network, of several the one that most ssh connections came to."""
    by_network: Dict[IpNetwork, List[Optional[str]]] = {}
    for index, addresses in enumerate(usable):
        for one in addresses:
            if one.bits < ipaddress.ip_address(one.address).max_prefixlen or one.is_loopback:
                of_hosts = by_network.setdefault(one.network, [None] * len(hosts))
                of_hosts[index] = of_hosts[index] or one.address
    most, best = -1, None
    for found in by_network.values():
        whole = [address for address in found if address is not None]
        owners = {(host.machine, address) for host, address in zip(hosts, whole)}
        if len(whole) == len(hosts) and len({owner[1] for owner in owners}) == len(owners):
            votes = sum(host.by_ssh == address for host, address in zip(hosts, whole))
            if votes > most:
                most, best = votes, whole
    return best


def _of_ssh(hosts: Sequence[HostNetworks]) -> Optional[List[str]]:
    """The addresses that ssh used, where networks are joined by routers."""
    peers = [host.peer for host in hosts if host.peer]
    chosen = []
    for host in hosts:
        own = [a.address for a in host.addresses if not a.is_loopback and not a.is_bridge]
        used = [address for address in [host.by_ssh, *peers] if address in own]
        if not used:
            return None
        chosen.append(used[0])
    return chosen


def _shown(hosts: Sequence[HostNetworks]) -> str:
    parts = []
    for host in hosts:
        usable = [a for a in host.addresses if not a.is_loopback] or host.addresses
        parts.append(f"{host.host}: {', '.join(map(str, usable)) or 'none'}")
    return "; ".join(parts)


# ---- What the system says ----------------------------------------------------------------------


class _Sockaddr(ctypes.Structure):
    _fields_ = [("family", ctypes.c_ushort), ("data", ctypes.c_ubyte * 26)]


class _Ifaddrs(ctypes.Structure):
    pass


_Ifaddrs._fields_ = [
    ("next", ctypes.POINTER(_Ifaddrs)),
    ("name", ctypes.c_char_p),
    ("flags", ctypes.c_uint),
    ("address", ctypes.POINTER(_Sockaddr)),
    ("mask", ctypes.POINTER(_Sockaddr)),
]
# By family: where its bytes begin behind the family, and how many.
_BYTES_AT = {socket.AF_INET: (2, 4), socket.AF_INET6: (6, 16)}


def own_addresses() -> List[Address]:
    """The addresses of this host's interfaces that are up, without those of one link only
    (169.254.0.0/16, fe80::/10), IPv4 first. Raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    first = ctypes.POINTER(_Ifaddrs)()
    if libc.getifaddrs(ctypes.byref(first)) != 0:
        raise OSError(ctypes.get_errno(), "getifaddrs")
    found = []
    try:
        entry = first
        while entry:
            one = entry.contents
            if one.address and one.mask and one.flags & _IFF_UP:
                found += _address_of(one)
            entry = one.next
    finally:
        libc.freeifaddrs(first)
    return sorted(found, key=lambda one: ":" in one.address)


def _address_of(entry: Any) -> List[Address]:
    family = entry.address.contents.family
    if family not in _BYTES_AT:
        return []
    begin, length = _BYTES_AT[family]
    raw, mask = (
        bytes(part.contents.data[begin : begin + length]) for part in (entry.address, entry.mask)
    )
    address = ipaddress.ip_address(raw)
    if address.is_link_local:
        return []
    bits = sum(bin(byte).count("1") for byte in mask)
    return [Address(entry.name.decode("utf-8", "replace"), str(address), bits)]


class Route(NamedTuple):
    """The way of packets to a host: from the own address to theirs."""

    family: socket.AddressFamily
    own: str
    theirs: str


def routes(to: str) -> List[Route]:
    """The ways to the host of that name or address; empty: there is none. Sends nothing."""
    found = []
    with contextlib.suppress(OSError, ValueError):  # It has no such name.
        for family, kind, _, _, address in socket.getaddrinfo(to, 9, type=socket.SOCK_DGRAM):
            with contextlib.suppress(OSError), socket.socket(family, kind) as probe:
                probe.connect(address)  # No packet is sent: the system chooses a route.
                own = probe.getsockname()[0].partition("%")[0]
                found.append(Route(family, own, str(address[0]).partition("%")[0]))
    return found


def outward(to: str = "") -> str:
    """The own address from which packets go to the host `to`, else by the default route, else that
    of an interface: names of the own host often stand for a loopback address, which is the answer
    only if all else fails. Raises OSError."""
    ways = [*(routes(to) if to else []), *routes(_ANYWHERE)]
    beyond = [way.own for way in ways if not ipaddress.ip_address(way.own).is_loopback]
    own = sorted(own_addresses(), key=lambda one: (one.is_loopback, one.is_bridge))
    return [*beyond, *(one.address for one in own), "127.0.0.1"][0]


def machine_id() -> str:
    """Equal for processes that have the same interfaces: one kernel, one name space of networks."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return f"{file.read().strip()} {os.stat('/proc/self/ns/net').st_ino}"


def of_ssh(environ: Mapping[str, str]) -> Tuple[str, str]:
    """The addresses of ssh's connection: this host's, and the other end's; empty without ssh."""
    words = environ.get("SSH_CONNECTION", "").split(" ")
    return (words[2], words[0]) if len(words) == 4 else ("", "")
