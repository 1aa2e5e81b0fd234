"""Links between hosts: a bridge in a namespace of its own, a cable per host, rate, loss and cuts.

Port N of the bridge is `portN`. With a delay the cable of host N ends at `cableN`, and lab/delay.py
carries its packets to `portN`. Functions run in the hub's network namespace unless they say so.
"""

from __future__ import annotations

import pathlib
import re
import shutil
import subprocess
from typing import List

from lab.refusal import SKIPPED, Refused

PACKAGES = {"ip": "iproute2", "tc": "iproute2", "nft": "nftables"}
_RATE = re.compile(r"(\d+(?:\.\d+)?)([kmg]?)bit")
_DELAY = re.compile(r"(\d+(?:\.\d+)?)(us|ms|s)")
_LOSS = re.compile(r"(\d+(?:\.\d+)?)%")
_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "us": 1e-6, "ms": 1e-3, "s": 1.0}
_LEAST_BURST, _BURST_S = 16 * 1024, 0.002
_LOSS_PARTS = 10**6


def address(index: int) -> str:
    """The address of host `index`; the first is 1."""
    return f"10.77.0.{index}"


def rate(text: str) -> int:
    """Bits per second of a text such as 1gbit."""
    found = _RATE.fullmatch(text.lower())
    if not found or float(found[1]) * _UNITS[found[2]] < 1000:
        raise Refused(f"{text} is no rate such as 1gbit or 50mbit")
    return int(float(found[1]) * _UNITS[found[2]])


def delay(text: str) -> float:
    """Seconds of a text such as 5ms."""
    found = _DELAY.fullmatch(text)
    if not found or not 0 < float(found[1]) * _UNITS[found[2]] <= 10:
        raise Refused(f"{text} is no delay such as 5ms or 200us, up to 10s")
    return float(found[1]) * _UNITS[found[2]]


def loss(text: str) -> int:
    """Lost packets of a million, of a text such as 0.1%."""
    found = _LOSS.fullmatch(text)
    if not found or not 0 < float(found[1]) <= 100:
        raise Refused(f"{text} is no loss such as 0.1%")
    return max(1, round(float(found[1]) / 100 * _LOSS_PARTS))


def tool(name: str) -> str:
    """The path of a program of this machine's packages."""
    found = shutil.which(name, path="/usr/sbin:/sbin:/usr/bin:/bin")
    if found is None:
        raise Refused(f"the program {name} is missing: apt-get install {PACKAGES[name]}", SKIPPED)
    return found


def run(name: str, *arguments: str, lines: str = "") -> None:
    """Runs ip, tc or nft, with lines of commands as its input."""
    command = [tool(name), *arguments]
    ran = subprocess.run(command, input=lines, text=True, capture_output=True, check=False)
    if ran.returncode != 0:
        said = (ran.stderr or ran.stdout).strip().splitlines()
        raise Refused(f"{name} {' '.join(arguments)}: {said[0] if said else ran.returncode}")


def make_bridge(mtu: int) -> None:
    """The switch of the cluster."""
    for kind in ("all", "default"):
        pathlib.Path(f"/proc/sys/net/ipv6/conf/{kind}/disable_ipv6").write_text("1")
    run("ip", "-batch", "-", lines=f"link set lo up\nlink add br0 type bridge\n"
                                   f"link set br0 mtu {mtu} up\n")


def connect(index: int, pid: int, mtu: int, delayed: bool) -> None:
    """The cable of a host: eth0 in the network namespace of `pid`."""
    cable = f"cable{index}" if delayed else f"port{index}"
    lines = [f"link add {cable} mtu {mtu} type veth peer name eth0 mtu {mtu} netns {pid}"]
    if delayed:
        lines.append(f"link add port{index} mtu {mtu} type veth peer name relay{index} mtu {mtu}")
        lines += [f"link set relay{index} up", f"link set {cable} up"]
    lines.append(f"link set port{index} master br0 up")
    run("ip", "-batch", "-", lines="\n".join(lines) + "\n")


def configure(index: int) -> None:
    """Within a host: its address, and cubic for its connections.

    Only the machine's own namespace may choose an algorithm that tcp_allowed_congestion_control
    does not list; a route may.
    """
    lines = [f"addr add {address(index)}/24 dev eth0", "link set eth0 up"]
    run("ip", "-batch", "-", lines="\n".join(lines) + "\n")
    setting = pathlib.Path("/proc/sys/net/ipv4/tcp_congestion_control")
    try:
        setting.write_text("cubic")
    except OSError:
        run("ip", "route", "replace", "10.77.0.0/24", "dev", "eth0", "proto", "kernel", "scope",
            "link", "src", address(index), "congctl", "cubic")


def limit(device: str, bits: int) -> None:
    """Limits the packets that leave `device`: by tbf, or by htb in a kernel without tbf."""
    burst = str(max(_LEAST_BURST, int(bits / 8 * _BURST_S)))
    try:
        run("tc", "qdisc", "replace", "dev", device, "root", "tbf", "rate", f"{bits}bit", "burst",
            burst, "latency", "50ms")
    except Refused as error:
        if error.status == SKIPPED:
            raise
        run("tc", "qdisc", "replace", "dev", device, "root", "handle", "1:", "htb", "default", "1")
        run("tc", "class", "replace", "dev", device, "parent", "1:", "classid", "1:1", "htb",
            "rate", f"{bits}bit", "burst", burst)


def unlimit(device: str) -> None:
    """No rate any more."""
    run("tc", "qdisc", "del", "dev", device, "root")


def single_packets(device: str) -> None:
    """TCP leaves by packets of the MTU: a lost one is not 40 at once."""
    run("ip", "link", "set", "dev", device, "gso_max_segs", "1")


def filter_packets(lost: int, cuts: List[List[str]]) -> None:
    """The bridge drops `lost` of a million packets, and those from one address to another."""
    rules = [f"ip saddr {source} ip daddr {target} drop" for source, target in cuts]
    if lost:
        some = f"numgen random mod {_LOSS_PARTS} < {lost} " if lost < _LOSS_PARTS else ""
        rules.append(some + "drop")
    body = "\n".join(rules)
    run("nft", "-f", "-", lines="table bridge covey\ndelete table bridge covey\n"
        "table bridge covey {\nchain forward {\ntype filter hook forward priority 0;\n"
        f"{body}\n}}\n}}\n")


def set_port(index: int, up: bool) -> None:
    """The link between a host and the bridge."""
    run("ip", "link", "set", "dev", f"port{index}", "up" if up else "down")
