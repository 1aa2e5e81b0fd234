"""The hosts of a job: as -H and a hostfile name them, and the place that each rank gets there.

Ranks fill the hosts in their order: those of a host follow each other. Internal.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from dataclasses import dataclass
from typing import List, Sequence

from covey.launch import network
from covey.launch.spec import Host, LaunchError

_HOST = re.compile(
    r"(?P<user>[^\s@:,\[\]]+@)?(?:\[(?P<six>[0-9A-Fa-f:.]+(?:%\w+)?)\]|(?P<name>[^\s@:,\[\]]+))"
    r"(?::(?P<slots>\S*))?"
)
_SLOTS = re.compile(r"slots\s*=\s*(\S+)")
_OTHER_KEYS = re.compile(r"max[-_]slots\s*=\s*\d+")
_HERE = ("localhost", "127.0.0.1", "::1")
MOST_RANKS = 1024  # Of a host: LIMITS of core/api.


@dataclass(frozen=True)
class Place:
    """The place of a rank among all, on its host, and among the ranks with its local rank.

    Attributes:
        rank: of a worker of an elastic job that is in no world yet, its number.
        host: index of its host.
        lowest: the lowest rank of its host.
    """

    rank: int
    size: int
    local_rank: int
    local_size: int
    cross_rank: int
    cross_size: int
    host: int
    lowest: int


def parse(text: str) -> List[Host]:
    """The hosts of `HOST[:SLOTS],...`, one slot by default. Raises LaunchError.

    Example:
        >>> parse("a:4,[fd00::2]:2")
        [Host(name='a', slots=4), Host(name='fd00::2', slots=2)]
    """
    return merged([_host(part.strip()) for part in text.split(",")])


def read_file(path: str) -> List[Host]:
    """The hosts of a file: lines `HOST`, `HOST:SLOTS` or `HOST slots=N`, and comments behind #.

    Raises:
        LaunchError: it cannot be read, or a line of it; names the line.
    """
    try:
        with open(path, encoding="utf-8") as file:
            lines = file.read().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text"
        raise LaunchError(f"--hostfile {path}: {why}") from error
    try:
        hosts = parse_lines(lines)
    except LaunchError as error:
        raise LaunchError(f"--hostfile {path}: {error}") from error
    if not hosts:
        raise LaunchError(f"--hostfile {path}: it names no host")
    return hosts


def parse_lines(lines: Sequence[str], slots: int = 1) -> List[Host]:
    """The hosts of such lines. `slots`: of one without a number.

    Raises:
        LaunchError: a line is not as it should be; names it.
    """
    hosts = []
    for number, line in enumerate(lines, 1):
        line = line.partition("#")[0].strip()
        if line:
            try:
                hosts.append(_of_line(line, slots))
            except LaunchError as error:
                raise LaunchError(f"line {number}: {error}") from error
    return merged(hosts)


def _of_line(line: str, slots: int) -> Host:
    name, _, rest = line.partition(" ")
    host, rest = _host(name, slots), _OTHER_KEYS.sub("", rest).strip()
    if not rest:
        return host
    found = _SLOTS.fullmatch(rest)
    if found is None or host == _host(name, slots + 1):  # It has a number.
        raise LaunchError(f"{line} is not HOST, HOST:SLOTS or HOST slots=N")
    return Host(host.name, _number(host.name, found.group(1)))


def _host(text: str, slots: int = 1) -> Host:
    if text.count(":") > 1 and "[" not in text:
        raise LaunchError(f"{text}: an IPv6 address stands in brackets, as [{text}]:2")
    found = _HOST.fullmatch(text)
    if found is None:
        raise LaunchError(f"{text or 'an empty text'} is not HOST[:SLOTS]")
    name = (found["user"] or "") + (found["six"] or found["name"])
    if name.startswith("-"):
        raise LaunchError(f"{name} is no name of a host")
    return Host(name, slots if found["slots"] is None else _number(name, found["slots"]))


def _number(name: str, text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,9}", text) or int(text) < 1:
        raise LaunchError(f"{name}: {text or 'nothing'} is not a number of slots (1, 2, 3, ...)")
    if int(text) > MOST_RANKS:
        raise LaunchError(f"{name}: a host has at most {MOST_RANKS} ranks, not {text}")
    return int(text)


def merged(hosts: Sequence[Host]) -> List[Host]:
    """A host that is named twice in a row has the slots of both, as mpirun counts.

    Raises:
        LaunchError: another host stands between: its ranks would not follow each other.
    """
    result: List[Host] = []
    for host in hosts:
        if result and result[-1].name == host.name:
            slots = result[-1].slots + host.slots
            result[-1] = Host(host.name, slots)
        elif any(other.name == host.name for other in result):
            raise LaunchError(
                f"{host.name} is named twice, with another host between: name it once, with all "
                "its slots"
            )
        else:
            result.append(host)
    return result


def is_here(name: str) -> bool:
    """Whether a host is this machine by its name or address; ssh is not needed for it."""
    own = socket.gethostname()
    if name in (*_HERE, own, own.partition(".")[0]):
        return True
    try:
        address = str(ipaddress.ip_address(name))
        return any(one.address == address for one in network.own_addresses())
    except (ValueError, OSError):
        return False


def all_here(hosts: Sequence[Host]) -> bool:
    """Whether the job is on this machine alone."""
    return all(is_here(host.name) for host in hosts)


def shared_out(hosts: Sequence[Host], size: int) -> List[Host]:
    """The hosts that `size` ranks fill, each with its number of ranks as slots.

    Raises:
        LaunchError: there are fewer slots.
    """
    slots = sum(host.slots for host in hosts)
    if slots < size:
        names = ",".join(f"{host.name}:{host.slots}" for host in hosts)
        raise LaunchError(f"-np {size}: -H has only {slots} slot{'s' * (slots != 1)} ({names})")
    result, left = [], size
    for host in hosts:
        if left > 0:
            result.append(Host(host.name, min(left, host.slots)))
        left -= host.slots
    return result


def enough(hosts: Sequence[Host], size: int) -> List[Host]:
    """The first hosts that have slots for so many ranks together; all, if they have not."""
    found: List[Host] = []
    for host in hosts:
        if sum(it.slots for it in found) < size:
            found.append(host)
    return found


def places(counts: Sequence[int]) -> List[Place]:
    """The place of every rank, by rank; `counts`: how many ranks each host has.

    Example:
        >>> [(place.local_rank, place.cross_rank, place.cross_size) for place in places([2, 1])]
        [(0, 0, 2), (1, 0, 1), (0, 1, 2)]
    """
    return places_of([host for host, count in enumerate(counts) for _ in range(count)])


def places_of(hosts: Sequence[int]) -> List[Place]:
    """The same by the host of every rank: those of a host need not follow each other. Hosts are
    numbered in the order of their lowest ranks."""
    ranks_of: List[List[int]] = [[] for _ in range(max(hosts) + 1)]
    for rank, host in enumerate(hosts):
        ranks_of[host].append(rank)
    hosts_with = [0] * max(map(len, ranks_of))  # by local rank
    for ranks in ranks_of:
        for local in range(len(ranks)):
            hosts_with[local] += 1
    passed, found = [0] * len(hosts_with), {}
    for host, ranks in enumerate(ranks_of):
        for local, rank in enumerate(ranks):
            found[rank] = Place(
                rank=rank,
                size=len(hosts),
                local_rank=local,
                local_size=len(ranks),
                cross_rank=passed[local],
                cross_size=hosts_with[local],
                host=host,
                lowest=ranks[0],
            )
            passed[local] += 1
    return [found[rank] for rank in range(len(hosts))]
