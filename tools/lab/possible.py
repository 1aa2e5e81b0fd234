"""The means of this machine: each is tried in namespaces that end with the trial."""

from __future__ import annotations

import os
import pathlib
from typing import Callable, List, NamedTuple, Optional

from lab import delay, linux, network, sshd, trial
from lab.refusal import SKIPPED, Refused

_KINDS = ("mnt", "net", "uts", "ipc", "pid")
_SETTINGS = (
    ("kernel/apparmor_restrict_unprivileged_userns", "1"),
    ("kernel/unprivileged_userns_clone", "0"),
    ("user/max_user_namespaces", "0"),
)


class Means(NamedTuple):
    """One line of `check`."""

    name: str
    works: bool
    text: str


def _tried(function: Callable[[], None]) -> Optional[str]:
    """Runs a function in a process of its own. None, or why it failed."""
    refusal = trial.refusal_of(function)
    return None if refusal is None else str(refusal)


def _make_namespaces(in_user_namespace: bool) -> None:
    """Within a trial: what follows runs as the init of a PID namespace."""
    if in_user_namespace:
        linux.own_identity(os.getuid(), os.getgid(), 0, 0)
    linux.unshare(_KINDS)
    linux.mount("none", "/", flags=linux.MS_REC | linux.MS_PRIVATE)
    init = os.fork()
    if init != 0:
        os.waitpid(init, 0)
        os._exit(0)
    linux.mount("proc", "/proc", "proc")
    linux.mount("shm", "/dev/shm", "tmpfs")


def user_namespace() -> bool:
    """Whether a cluster needs a user namespace here. Refuses where none can be made."""
    root = os.getuid() == 0
    as_root = _tried(lambda: _make_namespaces(False)) if root else "only root may"
    if as_root is None:
        return False
    reason = _tried(lambda: _make_namespaces(True))
    if reason is None:
        return True
    for setting, value in _SETTINGS:
        file = pathlib.Path("/proc/sys") / setting
        if file.exists() and file.read_text(encoding="ascii").strip() == value and not root:
            reason += f"; sysctl {setting.replace('/', '.')} is {value}"
    raise Refused(f"no namespaces can be made here ({reason}): run as root, or allow unprivileged "
                  "user namespaces", SKIPPED)


def _with_link(in_user_namespace: bool, function: Callable[[], None]) -> Optional[str]:
    """Tries a function where `port1` is a link of a bridge."""

    def trial() -> None:
        _make_namespaces(in_user_namespace)
        network.make_bridge(1500)
        network.run("ip", "link", "add", "port1", "type", "veth", "peer", "name", "port2")
        function()

    return _tried(trial)


def means() -> List[Means]:
    """All that a cluster may use; the first two are necessary."""
    try:
        inside = user_namespace()
    except Refused as error:
        return [Means("namespaces", False, str(error))]
    found = [Means("namespaces", True, "in a user namespace" if inside else "as root")]

    def add(name: str, text: str, reason: Optional[str]) -> None:
        found.append(Means(name, reason is None, text if reason is None else reason))

    add("bridge", "veth and bridge", _with_link(inside, lambda: None))
    add("--rate", "tbf or htb", _with_link(inside, lambda: network.limit("port1", 10**9)))
    add("--loss, cut", "nftables",
        _with_link(inside, lambda: network.filter_packets(1, [["10.77.0.1", "10.77.0.2"]])))
    add("--delay", "packet sockets", _with_link(inside, lambda: delay.packets_of("port1").close()))
    add("ssh", "sshd in every host", _tried(lambda: sshd.require(inside)))
    return found
