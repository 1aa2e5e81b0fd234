"""The specification of a cluster: the options of `up`, checked."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import re
from typing import List, Optional

from lab import network
from lab.refusal import Refused

_HOST = re.compile(r"[a-z][a-z0-9-]{0,30}")
_SIZE = re.compile(r"\d+[kmg]?")
_MOST = 250
_RESERVED = ("all", "localhost")


@dataclasses.dataclass(frozen=True)
class Spec:
    """One cluster. Rate in bits per second, delay in seconds, loss in packets of a million."""

    folder: pathlib.Path
    hosts: List[str]
    rate: int
    delay: float
    loss: int
    mtu: int
    shm: str
    ssh: bool
    in_user_namespace: bool
    uid: int = dataclasses.field(default_factory=os.getuid)
    gid: int = dataclasses.field(default_factory=os.getgid)


def host_names(count: Optional[int], names: Optional[str]) -> List[str]:
    """a, b, c and so on, or those of --hosts."""
    if names is None:
        if count is None or not 1 <= count <= 26:
            raise Refused("the number of hosts is 1 to 26, such as: tools/cluster up 3; --hosts "
                          "names more")
        return [chr(ord("a") + number) for number in range(count)]
    hosts = names.split(",")
    for host in hosts:
        if not _HOST.fullmatch(host) or host in _RESERVED:
            raise Refused(f"{host or 'an empty text'} is no name of a host: a lower-case letter, "
                          f"then letters, digits and '-'; not {' or '.join(_RESERVED)}")
    if len(set(hosts)) != len(hosts) or len(hosts) > _MOST:
        raise Refused(f"--hosts {names}: each name once, and at most {_MOST}")
    if count not in (None, len(hosts)):
        raise Refused(f"--hosts names {len(hosts)} hosts, not {count}: leave out the number")
    return hosts


def shm_size(text: str) -> str:
    """A size as tmpfs takes it."""
    if not _SIZE.fullmatch(text.lower()):
        raise Refused(f"{text} is no size such as 4g or 512m")
    return text.lower()


def mtu(text: str) -> int:
    """Bytes of a packet."""
    if not text.isdigit() or not 576 <= int(text) <= 65535:
        raise Refused(f"{text} is no MTU: 576 to 65535 bytes")
    return int(text)


def links(rate: Optional[str], delay: Optional[str], loss: Optional[str]) -> dict:
    """The fields of Spec on the links between hosts."""
    return {
        "rate": network.rate(rate) if rate else 0,
        "delay": network.delay(delay) if delay else 0.0,
        "loss": network.loss(loss) if loss else 0,
    }
