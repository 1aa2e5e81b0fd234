"""Starts ranks that need not import torch, TensorFlow or Keras: forks of a process that has.

torch and what its first optimizer imports take more than a second of a core, TensorFlow takes
three, and one test starts dozens of ranks. A Starter imports one of them once; a rank is a fork of
it made before anything else has been done, and loads Covey and the test itself. Such a rank is a
child of the test, as one that the test had started. A Starter is a process of its own, with
addresses and hashes that differ; where the test itself imports torch, also a fork of the test, made
by runner.py before it loads it.

A fork ends without Python's last step, which frees every object of the framework and so copies its
pages: three quarters of the processor's time of a rank. TEST_SLOW=1 keeps that step.

Run as a program this file is such a process: `starter.py SOCKET FRAMEWORK`.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import importlib
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from multiprocessing.connection import Connection
from typing import Callable, Dict, List, NoReturn, Optional, Union

_PR_SET_CHILD_SUBREAPER = 36

ON_TORCH = {"KERAS_BACKEND": "torch", "CUDA_VISIBLE_DEVICES": ""}
"""The environment of a rank whose Keras runs on torch."""
ENVIRONMENT = {
    "torch": {"OMP_NUM_THREADS": "1"},
    "tensorflow": {
        "OMP_NUM_THREADS": "1",
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "TF_NUM_INTEROP_THREADS": "2",
    },
    "keras": {"OMP_NUM_THREADS": "1", **ON_TORCH},
}
"""Settings of every process with a framework: few threads, few words. "keras": on torch."""


class Forked:
    """A rank that was forked: as much of a subprocess.Popen as tests use."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: Optional[int] = None

    def poll(self) -> Optional[int]:
        if self.returncode is None:
            self._wait(os.WNOHANG)
        return self.returncode

    def wait(self, timeout: Optional[float] = None) -> int:
        """How it has ended, as Popen has it. Raises subprocess.TimeoutExpired after so long."""
        if timeout is None and self.returncode is None:
            self._wait(0)
        deadline = time.monotonic() + (timeout or 0)
        while self.poll() is None:
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0)
            time.sleep(0.001)  # A poll: only a wait without limit can be told.
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:  # Else the number may be another process by now.
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _wait(self, options: int) -> None:
        pid, status = os.waitpid(self.pid, options)
        if pid == self.pid:
            self.returncode = os.waitstatus_to_exitcode(status)


class Starter:
    """Makes processes that call ``ranks.serve``."""

    def __init__(self, process: Union[subprocess.Popen, Forked], control: socket.socket) -> None:
        self._process = process
        self._control = control

    @classmethod
    def forked(cls, framework: str) -> "Starter":
        """A fork of this process, which has done nothing yet: it imports torch or tensorflow now.
        In the fork, and in the ranks that it starts, this call ends the process."""
        adopt_orphans()
        load(framework)
        mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        child = os.fork()
        if child == 0:
            mine.close()
            _serve(theirs)
            os._exit(0)
        theirs.close()
        return cls(Forked(child), mine)

    @classmethod
    def launched(cls, framework: str, env: Dict[str, str]) -> "Starter":
        """A process of its own, which imports torch, tensorflow or keras. ``env``: what the ranks
        have in common."""
        adopt_orphans()
        mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            process = subprocess.Popen(
                [sys.executable, __file__, str(theirs.fileno()), framework],
                env=env,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
            )
        return cls(process, mine)

    def start(
        self, file: str, env: Dict[str, str], connection: int, errors: int, named: Dict[str, int]
    ) -> Forked:
        """A rank of the test in ``file``, with that stderr. ``named``: descriptors by the variables
        in which it has their numbers."""
        message = pickle.dumps((file, env, list(named)))
        socket.send_fds(self._control, [message], [connection, errors, *named.values()])
        answer = self._control.recv(64)
        if not answer:
            raise AssertionError(f"what starts ranks ended with code {self._process.wait()}")
        return Forked(int(answer))

    def close(self) -> None:
        """It ends; what it has started goes on."""
        self._control.close()
        self._process.wait()


def adopt_orphans() -> None:
    """From now on a process whose parent ends is a child of this one, if it descends from it."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


ready: Dict[str, Starter] = {}
"""The processes that runner.py has made for forks of ranks, by framework."""


# ---- The process --------------------------------------------------------------------------------


def load(framework: str) -> None:
    """Imports it, as ranks have it."""
    os.environ.update(ENVIRONMENT[framework])
    module = importlib.import_module(framework)
    if framework == "torch":
        module.optim.SGD([module.zeros(1)], lr=1.0)  # Imports as much again.
    if framework == "keras":  # On torch it wants TensorFlow only to seed that, too.
        module.src.utils.module_utils.tensorflow._available = False
    threads = os.listdir("/proc/self/task")
    assert len(threads) == 1, f"{len(threads)} threads, of which a fork has but one"


def _fork() -> int:
    """0 in a process whose parent has ended; else the number of that process."""
    reading, writing = os.pipe()
    between = os.fork()
    if between == 0:
        child = os.fork()
        if child != 0:
            os.write(writing, str(child).encode())
            os._exit(0)
    os.close(writing)
    try:
        if between == 0:
            return 0
        child = int(os.read(reading, 64))
        os.waitpid(between, 0)  # Before anybody waits for what it leaves behind.
        return child
    finally:
        os.close(reading)


def _serve(control: socket.socket) -> None:
    """Until the test has no more to start; in a rank, until that ends."""
    gc.collect()
    gc.freeze()  # Else each rank that ends looks at all of it, and copies it for that.
    while True:
        message, passed, _, _ = socket.recv_fds(control, 1 << 20, 5)
        if not message:
            return
        child = _fork()
        if child == 0:
            control.close()
            end(code_of(lambda: _become_a_rank(*pickle.loads(message), *passed)))
        for descriptor in passed:
            os.close(descriptor)
        control.send(str(child).encode())


def code_of(work: Callable[[], None]) -> int:
    """The code with which Python ends a program that does ``work``, and says why."""
    try:
        work()
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        print(end.code, file=sys.stderr)
        return 1
    except BaseException:  # pylint: disable=broad-except
        traceback.print_exc()
        return 1
    return 0


def end(code: int) -> NoReturn:
    """Ends the process as Python does, but for the memory of its objects."""
    # exit() calls MPI_Finalize, which removes MPI's files.
    if os.environ.get("TEST_SLOW") == "1" or "PMI_FD" in os.environ:
        sys.exit(code)
    threading._shutdown()  # type: ignore[attr-defined]  # Waits for threads.
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _become_a_rank(
    file: str, env: Dict[str, str], names: List[str], connection: int, errors: int, *named: int
) -> None:
    os.dup2(errors, 2)
    os.close(errors)
    os.environ.clear()
    os.environ.update(env)
    for name, descriptor in zip(names, named):
        os.set_inheritable(descriptor, True)
        os.environ[name] = str(descriptor)
    sys.argv[1:] = [file, str(connection)]
    import ranks

    ranks.serve(file, Connection(connection))


if __name__ == "__main__":
    load(sys.argv[2])
    _serve(socket.socket(fileno=int(sys.argv[1])))
