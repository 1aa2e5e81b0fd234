"""The properties of a host by which jobs can fail. Gathered on the host, without a verdict.

Internal.
"""

from __future__ import annotations

import contextlib
import glob
import mmap
import os
import resource
import shutil
import socket
import subprocess
import sys
import threading
import time
from importlib import metadata
from typing import Any, Dict, List, Mapping, Optional, Sequence

from covey import operations_file
from covey.doctor import cgroups
from covey.launch import identity
from covey.launch.environment import OF_LAUNCHERS
from covey.launch.spec import LaunchError
from covey.launch.start import make_memory
from covey.plugin_path import plugin_folders

PACKAGES = ("torch", "tensorflow", "keras", "numpy")
PLUGINS = ("tcp", "mpi", "ucx", "grpc")
LIMITS = ("NOFILE", "NPROC", "AS", "FSIZE", "MEMLOCK")
_RESOLVE_S = 5.0
_NVIDIA_S = 10.0


def of_host(look: Mapping[str, Any]) -> Dict[str, Any]:
    """The facts of this host.

    `look`: the message: "ranks" of this host, "names" of all, the working folder "cwd", and
    "variables", the COVEY_* that a job would get.
    """
    own = {name: text for name, text in os.environ.items() if name.startswith("COVEY_")}
    for name in OF_LAUNCHERS:  # No rank gets it.
        own.pop(name, None)
    os.environ.update(look["variables"])  # The memory of a job has settings too.
    return {
        "kernel": os.uname().release,
        "cores": len(os.sched_getaffinity(0)),
        "limits": {name: _limit(name) for name in LIMITS},
        "groups": cgroups.limits(),
        "shm": _free_bytes("/dev/shm"),
        "pidfd": hasattr(os, "pidfd_open") and _has_pidfd(),
        "packages": {"Python": sys.version.split()[0], **_packages()},
        "plugins": {name: plugin(name) for name in PLUGINS},
        "operations": _has_operations(),
        "gpus": _gpus(),
        "rdma": rdma_ports(),
        "host": socket.gethostname(),
        "names": resolved([socket.gethostname(), *look["names"]]),
        "folder": _why_not_entered(look["cwd"]),
        "variables": {n: text for n, text in own.items() if look["variables"].get(n) != text},
        "is_root": os.geteuid() == 0,
        **_memory(look["ranks"]),
        "clock": time.time(),  # The last: the doctor knows when the answer came.
    }


def _limit(name: str) -> Optional[int]:
    """The soft limit; None: there is none."""
    soft = resource.getrlimit(getattr(resource, f"RLIMIT_{name}"))[0]
    return None if soft == resource.RLIM_INFINITY else soft


def _free_bytes(folder: str) -> Optional[int]:
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return None


def _has_pidfd() -> bool:
    try:
        os.close(os.pidfd_open(os.getpid()))
    except OSError:
        return False
    return True


def _packages() -> Dict[str, str]:
    """Versions by the metadata of the packages: importing one takes seconds."""
    found = {}
    for name in PACKAGES:
        for spelling in (name, f"{name}-cpu"):
            with contextlib.suppress(metadata.PackageNotFoundError):
                found.setdefault(name, metadata.version(spelling))
    return found


def _has_operations() -> bool:
    """Whether covey.tensorflow's operations are compiled, if TensorFlow is installed."""
    version = _packages().get("tensorflow")
    return version is None or operations_file.find(version) is not None


def plugin(name: str) -> str:
    """The path of a plug-in, the first in the folders where it is looked for; empty: there is
    none. A plug-in that names another build than libcovey.so has that behind its path."""
    for folder in plugin_folders():
        path = os.path.join(folder, f"libcovey_{name}.so")
        if os.path.exists(path):
            other = _other_build(path)
            return f"{path} ({other})" if other else path
    return ""


def _other_build(path: str) -> str:
    with contextlib.suppress(OSError, ValueError), open(path, "rb") as file:
        with mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as text:
            found = identity.ABI.search(text)
            if found and found.group().decode() != identity.build():
                return f"made for {found.group().decode()}"
    return ""


def _gpus() -> List[str]:
    """As nvidia-smi lists them."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return []
    try:
        said = subprocess.run(
            [program, "--query-gpu=name,driver_version", "--format=csv,noheader"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_NVIDIA_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    return said.stdout.splitlines() if said.returncode == 0 else []


def rdma_ports(folder: str = "/sys/class/infiniband") -> List[str]:
    """The active ports of InfiniBand and RoCE, as "mlx5_0: InfiniBand, 100 Gb/sec (4X EDR)"."""
    found = []
    for port in sorted(glob.glob(os.path.join(folder, "*", "ports", "*"))):
        with contextlib.suppress(OSError):
            state, layer, rate = (_line(port, name) for name in ("state", "link_layer", "rate"))
            if state.endswith("ACTIVE"):
                kind = "RoCE" if layer == "Ethernet" else layer
                found.append(f"{port.split(os.sep)[-3]}: {kind}, {rate}")
    return found


def _line(*path: str) -> str:
    with open(os.path.join(*path), encoding="utf-8", errors="replace") as file:
        return file.readline().strip()


def resolved(names: Sequence[str], limit_s: float = _RESOLVE_S) -> Dict[str, Any]:
    """The addresses of each name, or a text that says why there are none."""
    found: Dict[str, Any] = {}

    def ask(name: str) -> None:
        found[name] = _addresses(name)

    # A resolver may take minutes, and cannot be stopped: no exit waits for a daemon.
    asked = {name: threading.Thread(target=ask, args=(name,), daemon=True) for name in names}
    until = time.monotonic() + limit_s
    for thread in asked.values():
        thread.start()
    for thread in asked.values():
        thread.join(max(0.0, until - time.monotonic()))
    return {name: found.get(name, f"no answer within {limit_s:g} s") for name in asked}


def _addresses(name: str) -> Any:
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        return getattr(error, "strerror", None) or str(error)
    return sorted({str(entry[4][0]).partition("%")[0] for entry in found})


def _why_not_entered(folder: str) -> str:
    """Empty: the working folder can be entered."""
    if not os.path.isdir(folder):
        return "there is no such folder"
    return "" if os.access(folder, os.X_OK) else "it cannot be entered"


def _memory(ranks: int) -> Dict[str, Any]:
    """Makes the memory of a job of so many ranks and lets it go: no page of it is used."""
    try:
        made = make_memory(ranks)
    except LaunchError as error:
        return {"memory": str(error), "address_space": 0}
    try:
        # A rank reserves it twice: core/base/arena.cc.
        return {"memory": "", "address_space": 2 * os.fstat(made).st_size}
    finally:
        os.close(made)
