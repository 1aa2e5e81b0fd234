"""One rank as a process: how it starts, how it is signalled, how its end is seen.

Invariants:
1. A rank leads its own session, so a Ctrl-C typed at the terminal reaches the launcher only.
2. A rank is killed by the kernel when the launcher's thread that started it ends (PDEATHSIG).
3. Whatever a rank leaves behind in its process group has a short time to end by itself, as Python's
   resource tracker does, which unlinks shared memory then; after that it is killed. Only then the
   rank is reaped: until then its process id cannot be given to another process.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import time
import warnings
from typing import Any, Callable, Collection, Dict, List, Optional, Protocol, Sequence, Tuple

from covey.launch import endings
from covey.launch.spec import LaunchError

_PR_SET_PDEATHSIG = 1
DEAF, STOPPED = "deaf", "stopped"
"""Why a rank does not say where it is: no process of it has a handler; it is stopped."""
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


def _state_and_group(pid: int) -> Tuple[str, int]:
    """A process's state, one character as in /proc, and its process group; "X": it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:
            fields = stat.read().rpartition(b")")[2].split()
    except OSError:
        return "X", 0
    return fields[0].decode(), int(fields[2])


def group_members(groups: Collection[int]) -> Dict[int, List[int]]:
    """The living processes of these process groups, by a walk over /proc; no empty ones."""
    members: Dict[int, List[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            state, group = _state_and_group(int(name))
            if group in groups and state not in "ZX":
                members.setdefault(group, []).append(int(name))
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
    """A started rank. `returncode` is None while it runs; negative: ended by that signal.

    Attributes:
        left_rest: it ended with exit code 0, and what it left did not end by itself.
    """

    def __init__(self, rank: int, child: Child) -> None:
        """`child`: its process, which leads its own session."""
        self.rank = rank
        self.host = self.lost = ""  # as of a rank that another launcher tells of
        self._child = child
        self._code: Optional[int] = None
        self.left_rest = self._is_reaped = False
        self._was_killed = False
        self._rest: Optional[endings.Ending] = None  # Of what it has left, since its end.
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
        return self._code

    @property
    def has_rest(self) -> bool:
        """Whether it has ended, and something of its group may be there: `end_rest`."""
        return self._code is not None and not self._is_reaped

    @property
    def is_watched(self) -> bool:
        """Whether something is to be read when it ends."""
        return self.exit_fd is not None

    @property
    def out_of_memory(self) -> bool:
        """Whether it was killed, and the kernel has killed a process for memory since its start."""
        killed = self._code == -signal.SIGKILL
        return killed and oom_kills() > self._oom_kills

    def poll(self) -> Optional[int]:
        """Looks whether the rank has ended. The rest of its group is for `end_rest`."""
        if self._code is not None:
            return self._code
        flags = os.WEXITED | os.WNOHANG | os.WNOWAIT
        end = os.waitid(os.P_PID, self.pid, flags)
        if end is None:
            return None
        self._code = end.si_status if end.si_code == os.CLD_EXITED else -end.si_status
        steps = endings.AFTER_KILL if self._was_killed else endings.AFTER_EXIT
        self._rest = endings.Ending(steps, None, time.monotonic())
        return self._code

    def signal_group(self, number: int) -> None:
        """Sends a signal to the rank and everything it started in its group. By SIGKILL the rank
        alone is killed, and the others are asked by SIGTERM: `end_rest` kills them."""
        if self._code is not None:
            return
        if number == signal.SIGKILL:
            self._was_killed = True
            with contextlib.suppress(PermissionError):
                os.kill(self.pid, number)
            number = signal.SIGTERM
        self._to_group(number)

    def _to_group(self, number: int) -> None:
        try:
            os.killpg(self.pid, number)
        except (ProcessLookupError, PermissionError):
            pass  # ended a moment ago: poll will see it

    def end_rest(self, now: float, members: Sequence[int]) -> None:
        """After its end: ends the rest of its group when it is time, and reaps the rank when none
        of it is left. `members`: the rest that lives."""
        assert self._rest is not None
        number = self._rest.due(now) if members else None
        if number == signal.SIGTERM:
            self.left_rest = self._code == 0
            self._to_group(number)
            number = self._rest.due(now)
        if number == signal.SIGKILL or not members:
            self.abandon()  # With one that was started a moment ago.
            self._child.wait()
            self._is_reaped = True

    def abandon(self) -> None:
        """Kills its whole group, whatever that is about to do."""
        if not self._is_reaped:
            self._to_group(signal.SIGKILL)

    def kill(self) -> None:
        """Kills the rank; nothing waits for its end. Nothing happens when it has ended."""
        self.signal_group(signal.SIGKILL)

    def _group(self) -> List[int]:
        return group_members([self.pid]).get(self.pid, [])

    def ask_where(self) -> str:
        """SIGUSR1 to the rank if it has a handler (default: death); else to those of its group
        that have one (the rank may be a shell around Python). Returns "", or DEAF or STOPPED."""
        if self._code is not None:
            return DEAF
        bit = 1 << (signal.SIGUSR1 - 1)
        listeners = [self.pid] if signals_caught(self.pid) & bit else []
        if not listeners:
            listeners = [p for p in self._group() if signals_caught(p) & bit]
        for pid in listeners:
            try:
                os.kill(pid, signal.SIGUSR1)
            except ProcessLookupError:
                pass
        if all(_state_and_group(pid)[0] in "Tt" for pid in listeners or [self.pid]):
            return STOPPED
        return "" if listeners else DEAF

    def close(self) -> None:
        """Closes the descriptors. The rank must have ended."""
        self._child.stdout.close()
        self._child.stderr.close()
        if self.exit_fd is not None:
            os.close(self.exit_fd)
            self.exit_fd = None

