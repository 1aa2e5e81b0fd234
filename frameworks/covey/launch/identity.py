"""The first message of an agent and of coveyrun: protocol, version, build, host. Internal."""

from __future__ import annotations

import mmap
import os
import re
import socket
from typing import Any, Dict

from covey import _native
from covey.launch import memory, network
from covey.launch.wire import PROTOCOL

ABI = re.compile(rb"Covey [\w.+-]{1,40} \(interfaces [0-9a-f]{12}\)")


def build() -> str:
    """The name by which libcovey.so and its plug-ins know that they fit; empty: it has none."""
    path = os.path.join(os.path.dirname(os.path.abspath(_native.__file__)), "libcovey.so")
    try:
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as text:
            found = ABI.search(text)
            return found.group().decode() if found else ""
    except (OSError, ValueError):
        return ""


def own() -> Dict[str, Any]:
    """This process: protocol, version and build."""
    return {"protocol": PROTOCOL, "version": _native.version, "build": build()}


def of_host() -> Dict[str, Any]:
    """The same, with what the other side has to know of this host."""
    by_ssh, peer = network.of_ssh(os.environ)
    return {
        **own(),
        "host": socket.gethostname(),
        "machine": memory.host_id(),
        "cores": len(os.sched_getaffinity(0)),
        "addresses": [[a.interface, a.address, a.bits] for a in network.own_addresses()],
        "by_ssh": by_ssh,
        "peer": peer,
    }


def difference(ours: Dict[str, Any], theirs: Dict[str, Any]) -> str:
    """The first difference, in words; empty: there is none."""
    for name in ("version", "protocol", "build"):
        here, there = ours.get(name), theirs.get(name)
        if here != there:
            return f"Covey's {name} is {there} there and {here} here: install the same wheel"
    return ""
