"""Ranks that are forks of a process which has imported what they need: `coveyrun --preload`.

torch takes seconds of a core to import, in each rank. Here one process of the ranks' Python imports
it, and each rank begins as a fork of that (`preloaded.py`), with what it has imported, in memory
that is shared until it is written to. Such a rank is a child of the launcher as any other.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import socket
import subprocess
import time
from typing import IO, Any, Dict, Iterator, Mapping, Optional, Sequence, Tuple

from covey.errors import InvalidArgument
from covey.launch.check import python_of
from covey.launch.process import start_process
from covey.launch.spec import LaunchError

_PR_SET_CHILD_SUBREAPER, _PR_GET_CHILD_SUBREAPER = 36, 37
_LIBC = ctypes.CDLL(None, use_errno=True)
_PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "preloaded.py")
_POLL_S = 0.01


def modules_of(text: str) -> Sequence[str]:
    """Of MODULE[,MODULE...]. Raises InvalidArgument."""
    names = text.split(",")
    if not all(part.isidentifier() for name in names for part in name.split(".")):
        raise InvalidArgument(f"{text} is not MODULE[,MODULE...]")
    return names


def configured(env: Mapping[str, str], command: Sequence[str]) -> Sequence[str]:
    """By the variable, which is for commands that it can be used with. Raises LaunchError."""
    text = env.get("COVEY_PRELOAD")
    if not text or not command or python_of(command) is None:
        return ()
    try:
        return modules_of(text)
    except InvalidArgument as error:
        raise LaunchError(f"COVEY_PRELOAD: {error}") from error


class Forked:
    """A rank that was forked: as much of a subprocess.Popen as a launcher needs."""

    def __init__(self, pid: int, stdout: IO[bytes], stderr: IO[bytes]) -> None:
        self.pid, self.stdout, self.stderr = pid, stdout, stderr
        self.returncode: Optional[int] = None

    def wait(self, timeout: Optional[float] = None) -> int:
        """Its exit code; negative: ended by that signal. Raises TimeoutExpired after so long."""
        if self.returncode is None:
            deadline = None if timeout is None else time.monotonic() + timeout
            while deadline is not None and not self._has_ended():
                if time.monotonic() > deadline:
                    raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0)
                time.sleep(_POLL_S)  # The system has no such wait with a limit.
            self.returncode = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self.returncode

    def _has_ended(self) -> bool:
        flags = os.WEXITED | os.WNOHANG | os.WNOWAIT
        return os.waitid(os.P_PID, self.pid, flags) is not None


class Preloaded:
    """The process that has imported the modules. Close it when no more ranks are to start."""

    def __init__(
        self,
        command: Sequence[str],
        modules: Sequence[str],
        env: Mapping[str, str],
        pass_fds: Sequence[int],
    ) -> None:
        """Starts it. `env`: what all ranks have in common; `pass_fds`: theirs.

        Raises:
            LaunchError: the command is not a Python's; the system refuses.
        """
        what = python_of(command)
        if what is None:
            raise LaunchError("--preload: the command is not python SCRIPT or python -m MODULE")
        self._modules = ",".join(modules)
        self._limit = env.get("COVEY_START_TIMEOUT", "")
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        number = theirs.fileno()
        with theirs:
            try:
                self._process = start_process(
                    [command[0], *what.options, _PROGRAM, str(number), self._modules]
                    + ([what.kind] if what.kind else [])
                    + [what.target, *what.arguments],
                    dict(env),
                    stdout=2,  # What a module says when it is imported is not a rank's.
                    pass_fds=(number, *pass_fds),
                )
            except LaunchError:
                self._control.close()
                raise

    def fileno(self) -> int:
        """Readable when it has imported them, or cannot."""
        return self._control.fileno()

    def check(self) -> None:
        """It is ready. Raises LaunchError: it says why there can be no forks of it."""
        why = self._answer()
        if why:
            raise LaunchError(f"--preload {self._modules}: {why}")

    def _answer(self) -> Any:
        answer = self._control.recv(1 << 16)
        if answer:
            return json.loads(answer)
        code = self._process.wait()
        if code == -signal.SIGALRM and self._limit:
            why = f"the import took longer than {self._limit} (--start-timeout)"
            raise LaunchError(f"--preload {self._modules}: {why}")
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        raise LaunchError(f"--preload {self._modules}: the import ended the process with {how}")

    def start(self, env: Dict[str, str], own: Optional[Tuple[str, int]] = None) -> Forked:
        """A rank with that environment. `own`: it alone inherits that descriptor, by another
        number, which a variable of that name says. Raises LaunchError."""
        with contextlib.ExitStack() as ours:
            file = ours.enter_context(os.fdopen(os.memfd_create("environment"), "wb"))
            file.write(json.dumps(env).encode())
            file.flush()
            (out, out_end), (err, err_end) = os.pipe(), os.pipe()
            ours.callback(os.close, out_end)
            ours.callback(os.close, err_end)
            streams = os.fdopen(out, "rb", buffering=0), os.fdopen(err, "rb", buffering=0)
            name, passed = ("", []) if own is None else (own[0], [own[1]])
            fds = [file.fileno(), out_end, err_end, *passed]
            try:
                socket.send_fds(self._control, [f"rank {name}".encode()], fds)
            except OSError as error:
                raise LaunchError(f"--preload: its process is gone ({error.strerror})") from error
            pid = self._answer()
        if not isinstance(pid, int):
            raise LaunchError(f"--preload: {pid}")
        return Forked(pid, *streams)

    def close(self) -> None:
        """It ends; the ranks go on."""
        self._control.close()
        self._process.kill()
        self._process.wait()


@contextlib.contextmanager
def adopting() -> Iterator[None]:
    """Within it a process whose parent ends is a child of this one, if it descends from it."""
    before = ctypes.c_int(0)
    _LIBC.prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(before), 0, 0, 0)
    _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        yield
    finally:
        _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, before.value, 0, 0, 0)
