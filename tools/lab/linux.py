"""System calls that are not in Python 3.9, and how a process enters namespaces."""

from __future__ import annotations

import ctypes
import fcntl
import os
import select
import signal
import socket
import struct
from typing import Dict, Iterable, Optional

NEW = {
    "mnt": 0x00020000,
    "uts": 0x04000000,
    "ipc": 0x08000000,
    "user": 0x10000000,
    "pid": 0x20000000,
    "net": 0x40000000,
}
MS_NOSUID, MS_NODEV, MS_NOEXEC = 2, 4, 8
MS_BIND, MS_MOVE, MS_REC, MS_PRIVATE = 4096, 8192, 16384, 1 << 18
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_NAME, _PR_SET_TIMERSLACK = 1, 4, 15, 29

_libc = ctypes.CDLL(None, use_errno=True)


def _call(name: str, *arguments: object) -> None:
    if getattr(_libc, name)(*arguments) == -1:
        code = ctypes.get_errno()
        raise OSError(code, f"{name}: {os.strerror(code)}")


def unshare(kinds: Iterable[str]) -> None:
    """Moves this process to new namespaces; of `pid` only its children."""
    _call("unshare", sum(NEW[kind] for kind in kinds))


def setns(descriptor: int, kind: str) -> None:
    """Moves this process to an open namespace; of `pid` only its children."""
    _call("setns", descriptor, NEW[kind])


def mount(source: str, target: str, kind: str = "", flags: int = 0, data: str = "") -> None:
    """mount(2)."""
    try:
        _call("mount", source.encode(), target.encode(), kind.encode(), ctypes.c_ulong(flags),
              data.encode())
    except OSError as error:
        raise OSError(error.errno, f"mount on {target}: {os.strerror(error.errno)}") from None


def set_hostname(name: str) -> None:
    """sethostname(2)."""
    _call("sethostname", name.encode(), len(name))


def die_with_parent() -> None:
    """SIGKILL for this process at the end of its parent. New credentials undo it."""
    _call("prctl", _PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def set_name(name: str) -> None:
    """The name that ps and pgrep show."""
    _call("prctl", _PR_SET_NAME, name.encode(), 0, 0, 0)


def sleep_exactly() -> None:
    """Time-outs of this process end at most a microsecond late."""
    _call("prctl", _PR_SET_TIMERSLACK, 1000, 0, 0, 0)


def own_identity(uid: int, gid: int, new_uid: int, new_gid: int) -> None:
    """Moves this process to a new user namespace, in which `uid` is called `new_uid`."""
    unshare(["user"])
    _call("prctl", _PR_SET_DUMPABLE, 1, 0, 0, 0)  # Else root owns /proc/self.
    for file, text in (("setgroups", "deny"), ("uid_map", f"{new_uid} {uid} 1"),
                       ("gid_map", f"{new_gid} {gid} 1")):
        with open(f"/proc/self/{file}", "w", encoding="ascii") as out:
            out.write(text)


def loopback_up() -> None:
    """`ip link set lo up` of this network namespace."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        request = struct.pack("16sH14x", b"lo", 0x41)  # IFF_UP | IFF_RUNNING
        fcntl.ioctl(control, 0x8914, request)  # SIOCSIFFLAGS


def start_time(pid: int) -> Optional[str]:
    """When a process began, in the kernel's ticks; None without a live process."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else fields[19]


def kill_and_wait(pid: int, started: str, limit_s: float) -> bool:
    """SIGKILL for the process that began at `started`. False if it is still there after the limit.

    The init of a PID namespace ends after every process in it.
    """
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        if start_time(pid) != started:
            return True
        signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        return bool(select.select([descriptor], [], [], limit_s)[0])
    except ProcessLookupError:
        return True
    finally:
        os.close(descriptor)


class Namespaces:
    """The open namespaces of a process."""

    def __init__(self, pid: int, kinds: Iterable[str]) -> None:
        self._open: Dict[str, int] = {
            kind: os.open(f"/proc/{pid}/ns/{kind}", os.O_RDONLY | os.O_CLOEXEC) for kind in kinds
        }

    def enter(self) -> None:
        """In the order of opening. A process that has entered cannot go back."""
        for kind, descriptor in self._open.items():
            setns(descriptor, kind)

    def close(self) -> None:
        for descriptor in self._open.values():
            os.close(descriptor)
