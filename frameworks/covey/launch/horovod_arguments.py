"""The arguments of ``horovod.run`` that ``covey.run`` has not by those names. Internal."""

from __future__ import annotations

import socket
import sys
from typing import Any, Dict, List, Tuple

from covey.arguments import factor_of, path_of, text_of
from covey.launch.hosts import parse
from covey.launch.spec import LaunchError

_FIXED = "coveyrun --min-np N starts a script whose ranks may come and go"
_REFUSED = {
    "min_num_proc": _FIXED,
    "max_num_proc": _FIXED,
    "slots": _FIXED,
    "reset_limit": _FIXED,
    "cooldown_range": _FIXED,
    "host_discovery_script": _FIXED,
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
}
_TAKEN = ("hosts", "start_timeout", "output_filename", "executable")
_HERE = ("localhost", "127.0.0.1", "::1")


def taken(given: Dict[str, Any], num_proc: int) -> Tuple[Dict[str, str], str, List[str]]:
    """Translates ``given``, arguments by Horovod's names, for a job of ``num_proc`` ranks. An
    argument that is None or False counts as absent.

    Returns:
        Variables of the ranks, the folder for their output ("": none), and a line for each argument
        that has no effect.

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
        elif value != sys.executable:
            raise LaunchError(f"executable: the ranks run this Python, {sys.executable}")
    return variables, folder, lines


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
        raise LaunchError(f"num_proc={num_proc}: hosts has only {slots} slots ({text})")
