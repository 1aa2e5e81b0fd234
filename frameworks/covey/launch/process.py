"""One rank as a process: how it starts, how it is signalled, how its end is seen.

Invariants:
1. A rank leads its own session, so a Ctrl-C typed at the terminal reaches the launcher only.
2. A rank is killed by the kernel when the launcher's thread that started it ends (PDEATHSIG).
3. Whatever a rank leaves behind in its process group is killed before the rank is reaped; until
   then its process id cannot be given to another process.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import warnings
from typing import Any, Callable, Dict, List, Optional, Protocol, Sequence

from covey.launch.endings import GIVE_UP_S
from covey.launch.spec import LaunchError

_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None, use_errno=True)


def _die_with_parent(parent_pid: int) -> Callable[[], None]:
    """A function for the child between fork and exec."""
    prctl, arguments = _LIBC.prctl, [ctypes.c_ulong(int(signal.SIGKILL))]
    arguments += [ctypes.c_ulong(0)] * 3

    def arrange() -> None:
        prctl(_PR_SET_PDEATHSIG, *arguments)
        if os.getppid() != parent_pid:  # it died before the line above
            os.kill(os.getpid(), signal.SIGKILL)

    return arrange


def signals_caught(pid: int) -> int:
    """Bit n-1 is set when process `pid` has a handler for signal n; 0 when it is gone."""
    try:
        with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as status:
            for line in status:
                if line.startswith("SigCgt:"):
                    return int(line.split()[1], 16)
    except OSError:
        pass
    return 0


def oom_kills() -> int:
    """Processes the kernel has killed for lack of memory since boot; 0 when it does not say."""
    try:
        with open("/proc/vmstat", encoding="ascii") as vmstat:
            for line in vmstat:
                if line.startswith("oom_kill "):
                    return int(line.split()[1])
    except (OSError, ValueError):
        pass
    return 0


def group_members(group: int) -> List[int]:
    """Process ids in process group `group`, by a walk over /proc."""
    members = []
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as stat:
                fields = stat.read().rpartition(b")")[2].split()
        except OSError:
            continue
        if int(fields[2]) == group and fields[0] != b"Z":
            members.append(int(name))
    return members


class Child(Protocol):
    """A child of this process that has its output in pipes: as a subprocess.Popen is one."""

    pid: int
    returncode: Any
    stdout: Any
    stderr: Any

    def wait(self, timeout: Optional[float] = None) -> int:
        """As Popen's."""


def start_process(command: Sequence[str], env: Dict[str, str], **options: Any) -> subprocess.Popen:
    """A process in a session of its own, without input, that ends with this one. `options`: as
    Popen's. Raises LaunchError when the system refuses."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # preexec_fn beside threads
        try:
            return subprocess.Popen(
                list(command),
                env=env,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                preexec_fn=_die_with_parent(os.getpid()),
                **options,
            )
        except OSError as error:
            raise LaunchError(f"cannot start {command[0]}: {error.strerror}") from error


class RankProcess:
    """A started rank. `returncode` is None while it runs; negative: ended by that signal."""

    def __init__(self, rank: int, child: Child) -> None:
        """`child`: its process, which leads its own session."""
        self.rank = rank
        self.host = self.lost = ""  # as of a rank that another launcher tells of
        self._child = child
        self._oom_kills = oom_kills()
        self.pid = child.pid
        self.stdout_fd = child.stdout.fileno()
        self.stderr_fd = child.stderr.fileno()
        for fd in (self.stdout_fd, self.stderr_fd):
            os.set_blocking(fd, False)
        self.exit_fd = self._open_exit_fd()

    def _open_exit_fd(self) -> Optional[int]:
        """A descriptor that becomes readable when the process ends; None on an old system."""
        try:
            return os.pidfd_open(self.pid)
        except (AttributeError, OSError):
            return None

    @property
    def returncode(self) -> Optional[int]:
        """The exit code that the last `poll` saw."""
        return self._child.returncode

    @property
    def is_watched(self) -> bool:
        """Whether something is to be read when it ends."""
        return self.exit_fd is not None

    @property
    def out_of_memory(self) -> bool:
        """Whether it was killed, and the kernel has killed a process for memory since its start."""
        killed = self._child.returncode == -signal.SIGKILL
        return killed and oom_kills() > self._oom_kills

    def poll(self) -> Optional[int]:
        """Looks whether the rank has ended; on its end kills the rest of its group, reaps it."""
        if self._child.returncode is not None:
            return self._child.returncode
        flags = os.WEXITED | os.WNOHANG | os.WNOWAIT
        if os.waitid(os.P_PID, self.pid, flags) is None:
            return None
        self.signal_group(signal.SIGKILL)
        return self._child.wait()

    def signal_group(self, number: int) -> None:
        """Sends a signal to the rank and everything it started in its group."""
        if self._child.returncode is not None:
            return
        try:
            os.killpg(self.pid, number)
        except (ProcessLookupError, PermissionError):
            pass  # ended a moment ago: poll will see it

    def kill(self) -> None:
        """Ends the rank and its group for good. Nothing happens when it has ended."""
        if self._child.returncode is not None:
            return
        self.signal_group(signal.SIGKILL)
        try:
            self._child.wait(timeout=GIVE_UP_S)
        except subprocess.TimeoutExpired:
            pass  # it sits in the kernel; the signal stays pending

    def ask_where(self) -> bool:
        """SIGUSR1 to the rank if it has a handler (default: death); else to those of its group
        that have one (the rank may be a shell around Python). False: no process to ask."""
        if self._child.returncode is not None:
            return False
        bit = 1 << (signal.SIGUSR1 - 1)
        listeners = [self.pid] if signals_caught(self.pid) & bit else []
        if not listeners:
            listeners = [p for p in group_members(self.pid) if signals_caught(p) & bit]
        for pid in listeners:
            try:
                os.kill(pid, signal.SIGUSR1)
            except ProcessLookupError:
                pass
        return bool(listeners)

    def close(self) -> None:
        """Closes the descriptors. The rank must have ended."""
        self._child.stdout.close()
        self._child.stderr.close()
        if self.exit_fd is not None:
            os.close(self.exit_fd)
            self.exit_fd = None
