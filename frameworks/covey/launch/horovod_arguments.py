"""The arguments of ``horovod.run`` that ``covey.run`` has not by those names. Internal."""

from __future__ import annotations

import socket
import sys
from typing import Any, Dict, List, NamedTuple, Optional

from covey.arguments import factor_of, path_of, text_of
from covey.errors import InvalidArgument
from covey.launch.hosts import parse
from covey.launch.spec import LaunchError
from covey.launch.worlds import RESTARTS, TIMEOUT_S, Terms

_SCRIPT = "the ranks run on this host; coveyrun --host-discovery-script starts a script on several"
_REFUSED = {
    "slots": _SCRIPT,
    "host_discovery_script": _SCRIPT,
    "hostfile": "the ranks run on this host; coveyrun --hostfile starts a script on several",
}
_WITHOUT_EFFECT = {
    "use_gloo": "no MPI, Gloo or oneCCL is underneath",
    "use_mpi": "no MPI, Gloo or oneCCL is underneath",
    "mpi_args": "no MPI, Gloo or oneCCL is underneath",
    "disable_cache": "no checks of hosts are kept",
    "ssh_port": "the ranks run on this host",
    "ssh_identity_file": "the ranks run on this host",
    "network_interfaces": "the ranks run on this host",
    "cooldown_range": "the ranks run on this host",
}
_ELASTIC = ("min_num_proc", "max_num_proc", "reset_limit")
_TAKEN = ("hosts", "start_timeout", "output_filename", "executable", *_ELASTIC)
_HERE = ("localhost", "127.0.0.1", "::1")


class Taken(NamedTuple):
    """Arguments by Horovod's names, translated.

    Attributes:
        variables: of the ranks.
        folder: for their output; empty: none.
        lines: one for each argument that has no effect.
        elastic: of a job whose ranks may come and go; None: they do not.
    """

    variables: Dict[str, str]
    folder: str
    lines: List[str]
    elastic: Optional[Terms]


def taken(given: Dict[str, Any], num_proc: int) -> Taken:
    """Translates ``given``, arguments by Horovod's names, for a job of ``num_proc`` ranks. An
    argument that is None or False counts as absent.

    Raises:
        InvalidArgument: (a ValueError) an argument of another kind, by its name.
        TypeError: Horovod has no such argument.
        LaunchError: names an argument that cannot be followed, and the way out.
    """
    variables, folder, lines = {}, "", []
    for name, value in given.items():
        if name not in (*_REFUSED, *_WITHOUT_EFFECT, *_TAKEN):
            raise TypeError(f"run() got an unexpected keyword argument {name!r}")
        if value is None or value is False:
            continue
        if name in _REFUSED:
            raise LaunchError(f"{name}: {_REFUSED[name]}")
        if name in _WITHOUT_EFFECT:
            lines.append(f"{name} is ignored: {_WITHOUT_EFFECT[name]}")
        elif name == "hosts":
            _check_hosts(text_of(name, value), num_proc)
        elif name == "start_timeout":
            variables["COVEY_START_TIMEOUT"] = f"{factor_of(name, value):g}s"
        elif name == "output_filename":
            folder = path_of(name, value)
        elif name == "executable" and value != sys.executable:
            raise LaunchError(f"executable: the ranks run this Python, {sys.executable}")
    return Taken(variables, folder, lines, _terms(given, num_proc))


def _terms(given: Dict[str, Any], num_proc: int) -> Optional[Terms]:
    counts = {name: given[name] for name in _ELASTIC if given.get(name) is not None}
    for name, value in counts.items():
        least = 0 if name == "reset_limit" else 1
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise InvalidArgument(f"{name} must be an integer from {least} on, not {value!r}")
    if "min_num_proc" not in counts:
        for name in counts:
            raise LaunchError(f"{name} needs min_num_proc, the number of ranks that must be left")
        return None
    least, most = counts["min_num_proc"], counts.get("max_num_proc", num_proc)
    if not least <= num_proc <= most:
        raise LaunchError(
            f"min_num_proc={least}, num_proc={num_proc}, max_num_proc={most}: they do not grow"
        )
    return Terms(least, num_proc, RESTARTS, counts.get("reset_limit"), TIMEOUT_S)


def _check_hosts(text: str, num_proc: int) -> None:
    hosts = parse(text)
    away = [host.name for host in hosts if host.name not in (*_HERE, socket.gethostname())]
    if away:
        raise LaunchError(
            f"hosts: the ranks of covey.run run on this host, not on {', '.join(away)}; "
            f"coveyrun -np {num_proc} -H {text} python SCRIPT starts a script there"
        )
    slots = sum(host.slots for host in hosts)
    if slots < num_proc:
        has = f"{slots} slot{'s' * (slots != 1)}"
        raise LaunchError(f"num_proc={num_proc}: hosts has only {has} ({text})")
