"""The checks of a job, by the answers of its hosts. Pure. Internal."""

from __future__ import annotations

import ipaddress
from typing import Any, Dict, Iterator, List, Tuple

from covey.doctor import host_checks
from covey.doctor.check import FAILED, NOTE, OK, WARNING, Check, by_value, in_bytes, in_short
from covey.doctor.passage import DATA_BYTES, PATIENCE_S, is_hole
from covey.doctor.visit import Findings, bare
from covey.errors import shown
from covey.launch import network, reach

_MOST_LINES = 20  # of one kind
_SILENT = "ssh failed and says nothing"
_SECURITY = {
    "tls": Check(
        "security", OK, "tls: connections of ranks are authenticated by a key of the job, and "
        "encrypted",
    ),
    "auth": Check(
        "security", WARNING, "auth: ranks prove that they are of the job, and then send in the "
        "clear: a host that can change packets on the way reads and alters tensors, and objects, "
        "which are unpickled",
        "leave --network-security away where the network is not yours alone",
    ),
}  # fmt: skip


def of(found: Findings) -> List[Check]:
    """All checks, first those of single hosts."""
    checks = [*_hosts(found), *host_checks.of_hosts(found), *_names(found), *_clocks(found)]
    if len(found.ranks) > 1:
        checks += [*_network(found), *_ports(found), *_packets(found), *_speed(found)]
        checks += [_SECURITY[found.plan.security], *_losses(found)]
    return checks


def _hosts(found: Findings) -> Iterator[Check]:
    total, there = len(found.ranks), [name for name in found.ranks if name not in found.failed]
    if there:
        yield Check("hosts", OK, f"{len(there)} of {total} answer: {in_short(there)}")
    for host, why in found.failed.items():
        seen, _, step = why.partition("; ")
        if why.endswith(_SILENT):
            step = f"`ssh -v {host} true`: an end after SSH2_MSG_KEXINIT means that packets of "
            step += "full size are lost on the way (MTU)"
        yield Check("hosts", FAILED, f"{host}: {seen}", step)
    machines: Dict[str, List[str]] = {}
    for host, hello in found.hellos.items():
        machines.setdefault(hello["machine"], []).append(host)
    for names in machines.values():
        if len(names) > 1:
            seen = f"{' and '.join(names)} are one machine: its ranks would not share memory"
            yield Check("hosts", NOTE, seen, "name it once, with all its slots")


def _names(found: Findings) -> Iterator[Check]:
    loops, missing, strange, asked = {}, [], [], 0
    own = {host: _addresses(found, host) for host in found.facts}
    for host, facts in found.facts.items():
        for name, said in facts["names"].items():
            asked += 1
            of = [h for h in own if name in (bare(h), found.facts[h]["host"])]
            if isinstance(said, str):
                missing.append(f"{host} does not resolve {shown(name)} ({shown(said)})")
            elif name == "localhost":
                continue
            elif host in of and all(ipaddress.ip_address(one).is_loopback for one in said):
                loops[host] = f"{name} is {', '.join(said)}"
            elif len(of) == 1 and not {*said} & own[of[0]]:
                strange.append(f"on {host} {name} is {', '.join(said)}, no address of {of[0]}")
    several = len(found.ranks) > 1
    for text in strange:
        yield Check("names", WARNING, text, "correct DNS or /etc/hosts there, unless it is NAT")
    if missing and several:
        seen = f"{len(missing)} of {asked} names: {in_short(missing[:3])}"
        yield Check("names", NOTE, f"{seen}; coveyrun -H tells ranks addresses, env:// needs names")
    if loops and several:
        seen = f"own names that are loopback: {by_value(loops)}; coveyrun -H does not use them, "
        yield Check("names", NOTE, f"{seen}gloo and a MASTER_ADDR of such a name do")
    if not (strange or missing or loops):
        yield Check("names", OK, f"{asked} of {asked} are resolved")


def _addresses(found: Findings, host: str) -> Any:
    networks = network.of_hello(host, found.hellos[host])
    return {one.address for one in networks.addresses}


def _clocks(found: Findings) -> Iterator[Check]:
    far = {}
    for host, (least, most) in found.apart.items():
        # Somewhere in between: the answer has travelled.
        apart = least if least > 0 else -most if most < 0 else 0.0
        if apart >= 1:
            far[host] = f"at least {apart:.0f} s {'ahead' if least > 0 else 'behind'}"
    if far:
        texts = ", ".join(f"{host} {text}" for host, text in far.items())
        seen = f"{texts} of this host; Covey needs no equal clocks, readers of logs do"
        yield Check("clocks", NOTE, seen)
    elif len(found.apart) > 1:
        yield Check("clocks", OK, "equal within what the answers took")


def _network(found: Findings) -> Iterator[Check]:
    if found.no_network:
        yield Check("network", FAILED, found.no_network)
        return
    for host, why in found.cannot_listen.items():
        yield Check("network", FAILED, why)
    if found.addresses:
        where = [f"{h} {text} ({_interface(found, h)})" for h, text in found.addresses.items()]
        yield Check("network", OK, in_short(where))
    odd = [
        f"{a} reaches {b} from {one['source']}, not from {found.addresses[a]}"
        for (a, b), one in found.pairs.items()
        if not one["why"] and one["source"] != found.addresses[a]
    ]
    if odd:
        step = "look at the routes: packets take another interface than the chosen one"
        yield Check("network", WARNING, in_short(odd), step)


def _interface(found: Findings, host: str) -> str:
    """The interface of the address where ranks would listen."""
    networks = network.of_hello(host, found.hellos[host])
    wanted = found.addresses[host]
    return next(one.interface for one in networks.addresses if one.address == wanted)


def _ports(found: Findings) -> Iterator[Check]:
    closed = {pair: one for pair, one in found.pairs.items() if one["why"]}
    total = len(found.pairs)
    if total:
        state = OK if total > len(closed) else FAILED
        yield Check("ports", state, f"{total - len(closed)} of {total} ways between hosts are open")
    for (host, other), one in list(closed.items())[:_MOST_LINES]:
        yield Check("ports", FAILED, *reach.in_words(host, other, one["where"], one["why"]))
    if len(closed) > _MOST_LINES:
        yield Check("ports", FAILED, f"so are {len(closed) - _MOST_LINES} other ways: see --json")


def _packets(found: Findings) -> Iterator[Check]:
    tried = {pair: one for pair, one in found.pairs.items() if not one["why"]}
    holes = {pair: one for pair, one in tried.items() if is_hole(one)}
    if len(tried) > len(holes):
        sizes = sorted({one["packet"] for pair, one in tried.items() if pair not in holes})
        seen = f"{len(tried) - len(holes)} of {len(tried)} ways take packets of "
        yield Check("packets", OK, f"{seen}{' and '.join(map(str, sizes))} bytes")
    for (host, other), one in holes.items():
        seen = f"{host} to {other}: packets of {one['packet']} bytes are lost on the way, "
        fits = one["fits"]
        seen += f"those of {fits} arrive" if fits else "smaller ones too"
        where = f"{_interface(found, host)} on {host} and {_interface(found, other)} on {other}"
        step = f"set the MTU of {where} to {fits}" if fits else f"look at the MTU of {where}"
        step += ", or let ICMP's 'fragmentation needed' pass"
        yield Check("packets", FAILED, seen, step)


def _speed(found: Findings) -> Iterator[Check]:
    slow = [
        f"{a} to {b} took {in_bytes(one['passed'])} in {PATIENCE_S:g} s"
        for (a, b), one in found.pairs.items()
        if not one["why"] and 0 < one["passed"] < DATA_BYTES
    ]
    if slow:
        yield Check("speed", WARNING, in_short(slow), "look for a slow or lossy link")
    whole = [(pair, one) for pair, one in found.pairs.items() if one.get("bytes_per_s")]
    if whole:
        trips = _range([(pair, one["round_trip_s"] * 1e3) for pair, one in whole], "ms")
        rates = _range([(pair, one["bytes_per_s"] / 1e6) for pair, one in whole], "MB/s")
        size = in_bytes(DATA_BYTES)
        yield Check("speed", OK, f"round trips {trips}; {size} on all ways at once, each {rates}")


def _losses(found: Findings) -> Iterator[Check]:
    """The hosts that a job with --keep-going may lose. Its log of versions goes on with more than
    half of the ranks, or with half and the witness, which is coveyrun (core/replicated)."""
    total, methods = sum(found.ranks.values()), "eager, diloco, wagma and local"
    for host, ranks in found.ranks.items():
        if 2 * ranks > total:
            seen = (
                f"{methods} go on without any host but {host}, which has {ranks} of {total} ranks"
            )
            yield Check("losses", NOTE, seen, "divide the ranks evenly, if any host may fail")
            return
    seen = f"{methods} go on when a host is lost"
    if any(2 * ranks == total for ranks in found.ranks.values()):
        seen += ": of two halves of the ranks that one which reaches coveyrun"
    if found.here in found.ranks:
        step = "start coveyrun on another machine, such as a login node"
        yield Check("losses", NOTE, f"{seen}; coveyrun runs on {found.here}, without which no "
                    "rank goes on", step)  # fmt: skip
    else:
        yield Check("losses", OK, seen)


def _range(values: List[Tuple[Tuple[str, str], float]], unit: str) -> str:
    least, most = (chosen(values, key=lambda one: one[1]) for chosen in (min, max))
    if least[0] == most[0]:
        return f"{least[1]:.3g} {unit}"
    ends = [f"{value:.3g} {unit} ({a} to {b})" for (a, b), value in (least, most)]
    return f"from {ends[0]} to {ends[1]}"
