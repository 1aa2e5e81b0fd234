"""Starts ranks for the tests of the Python package, without the launcher.

A Pool is a job whose ranks are processes that wait for calls: `pool.call(function, ...)` runs a
function of the test's own module on every rank and returns the results by rank. A call that fails
or takes too long is an AssertionError with the tracebacks and the stderr of the ranks, and ends the
pool. Ranks of a test of torch, or of TensorFlow, are forked from a process that has imported it
(starter.py).

Run as a program this file is such a rank: `ranks.py MODULE CONNECTION`.
"""

from __future__ import annotations

import atexit
import importlib.util
import os
import pathlib
import pickle
import random
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import unittest
from multiprocessing.connection import Connection, Pipe, wait
from typing import Any, Callable, Dict, List, Optional, Tuple, Union

import starter
from job_hosts import ENGINE, HOSTS, PLUGINS, Hosts
from starter import Forked, Starter

SEED = int(os.environ.get("TEST_SEED") or random.SystemRandom().randrange(1 << 31))
"""Of all random numbers of a test run; set TEST_SEED to repeat one."""


RANKS_MAY_DIE = HOSTS == 1 or ENGINE != "mpi"
"""Whether the others go on, or are told, when a rank is killed."""
ranks_may_die = unittest.skipUnless(RANKS_MAY_DIE, "MPI ends a job whose rank is killed")


def on_one_host(why: str) -> Callable[[Any], Any]:
    """Skips a test, or a class of them, where the ranks are on several hosts."""
    return unittest.skipIf(HOSTS > 1, f"on one host: {why}")


def with_majority(*cases: Tuple[Any, ...]) -> List[Tuple[Any, ...]]:
    """The cases in which the other ranks go on. A case begins with the size of its job, and the
    rank that stops. Between hosts a majority goes on, or that half of the ranks with rank 0."""
    return [case for case in cases if HOSTS == 1 or case[:2] != (2, 0)]


def also(*values: Any) -> Tuple[Any, ...]:
    """Values of a case that repeat others: `tools/test --slow` takes them too."""
    return values if os.environ.get("TEST_SLOW") == "1" else ()


def refusal_of(call: Callable[[], Any]) -> str:
    """Class and message of the CoveyError that `call` raises; "nothing" without one. On a rank."""
    from covey.errors import CoveyError

    try:
        call()
    except CoveyError as error:
        return f"{type(error).__name__}: {error}"
    return "nothing"


class Pool:
    """A job of `size` ranks that run functions of the module in `file`."""

    def __init__(
        self,
        size: int,
        file: str,
        env: Optional[Dict[str, str]] = None,
        init: bool = True,
    ) -> None:
        from covey import _native  # Not needed by a rank before it is asked to import covey.

        self.size = size
        self.processes: List[Union[subprocess.Popen, Forked]] = []
        self._connections: List[Connection] = []
        self._errors = []
        hosts = Hosts(size, _native.job_create)
        try:
            for rank in range(size):
                self._start(rank, hosts, file, env or {}, init)
        finally:
            hosts.close()

    def _start(
        self, rank: int, hosts: "Hosts", file: str, env: Dict[str, str], init: bool
    ) -> None:
        mine, theirs = Pipe()
        errors = tempfile.TemporaryFile(mode="w+b")
        whole = {
            **_common_env(),
            **hosts.variables(rank),
            "TEST_INIT": str(int(init)),
            "TEST_RANK": str(rank),  # Also before covey.init().
            **env,
        }
        if PLUGINS:
            whole["COVEY_PLUGIN_PATH"] = f"{env.get('COVEY_PLUGIN_PATH', '')}:{PLUGINS}"
        path = str(pathlib.Path(file).absolute())
        named = hosts.descriptors(rank)
        framework = _imported_by_ranks(env)
        if framework:
            self.processes.append(
                _starter_of(rank, framework).start(
                    path, whole, theirs.fileno(), errors.fileno(), named
                )
            )
        else:
            numbers = {name: str(descriptor) for name, descriptor in named.items()}
            self.processes.append(
                subprocess.Popen(
                    [sys.executable, __file__, path, str(theirs.fileno())],
                    env={**whole, **numbers},
                    pass_fds=(theirs.fileno(), *named.values()),
                    stdin=subprocess.DEVNULL,
                    stderr=errors,
                )
            )
        theirs.close()
        self._connections.append(mine)
        self._errors.append(errors)

    def send(self, function: Callable[..., Any], *args: Any) -> None:
        """Begins a call on every rank; collect() ends it."""
        for connection in self._connections:
            try:
                connection.send_bytes(pickle.dumps((function.__name__, args)))
            except OSError:
                pass  # That rank is gone; collect() says so.

    def collect(self, timeout: float = 180, may_end: bool = False) -> List[Any]:
        """The results by rank. A rank that ended without one has None if `may_end`."""
        results: Dict[int, Any] = {}
        failures: List[str] = []
        deadline = time.monotonic() + timeout
        open_ranks = dict(enumerate(self._connections))
        while open_ranks:
            ready = wait(list(open_ranks.values()), max(deadline - time.monotonic(), 0))
            if not ready:
                failures.append(f"ranks {sorted(open_ranks)} did not answer in {timeout} s")
                self._ask_where(open_ranks)
                break
            for rank in [r for r, connection in open_ranks.items() if connection in ready]:
                connection = open_ranks.pop(rank)
                try:
                    passed, value = pickle.loads(connection.recv_bytes())
                except (EOFError, OSError):
                    code = self.processes[rank].wait()
                    passed, value = may_end, None if may_end else f"ended with code {code}"
                if passed:
                    results[rank] = value
                else:
                    failures.append(f"rank {rank}: {value}")
        if failures:
            texts = [f"stderr of rank {r}:\n{self.stderr(r)}" for r in range(self.size)]
            self.close()
            raise AssertionError("\n".join([f"seed {SEED}", *failures, *texts]))
        return [results[rank] for rank in range(self.size)]

    def call(self, function: Callable[..., Any], *args: Any, timeout: float = 180) -> List[Any]:
        """Runs `function` on every rank and returns the results by rank."""
        self.send(function, *args)
        return self.collect(timeout)

    def stderr(self, rank: int) -> str:
        """What the rank has written to stderr so far."""
        file = self._errors[rank]
        return os.pread(file.fileno(), 1 << 20, 0).decode("utf-8", "replace")

    def says(self, rank: int) -> str:
        """Where it is, or what it has failed with, and its stderr; for messages."""
        if self._connections[rank].poll():
            return f"rank {rank}: {pickle.loads(self._connections[rank].recv_bytes())}"
        self._ask_where({rank: self._connections[rank]})
        return f"stderr of rank {rank}:\n{self.stderr(rank)}"

    def _ask_where(self, open_ranks: Dict[int, Connection]) -> None:
        for rank in open_ranks:
            self.processes[rank].send_signal(signal.SIGUSR1)
        time.sleep(0.5)

    @property
    def is_alive(self) -> bool:
        """Whether every rank still runs."""
        return all(process.poll() is None for process in self.processes)

    def close(self) -> None:
        """Ends every rank, at once if need be."""
        for connection in self._connections:
            connection.close()  # A rank that waits for a call sees this and ends.
        deadline = time.monotonic() + 5
        for process in self.processes:
            try:
                process.wait(max(deadline - time.monotonic(), 0.1))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for errors in self._errors:
            errors.close()

    def __enter__(self) -> "Pool":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class SharedPool:
    """One pool per size for all tests of a module; a pool that a failed test ended is made anew."""

    def __init__(self, file: str, env: Optional[Dict[str, str]] = None) -> None:
        self._file = file
        self.env = dict(env or {})
        self._pools: Dict[int, Pool] = {}

    def __call__(self, size: int) -> Pool:
        pool = self._pools.get(size)
        if pool is None or not pool.is_alive:
            self.close()  # One job at a time: the machine may have few cores.
            pool = self._pools[size] = Pool(size, self._file, self.env)
        return pool

    def close(self) -> None:
        """To be called from tearDownModule."""
        for pool in self._pools.values():
            pool.close()
        self._pools.clear()


_starters: Dict[str, List[Starter]] = {}
_differ = os.environ.get("TEST_SLOW") == "1"


def differ() -> None:
    """From now on not all ranks have the same addresses and the same order of sets, which a method
    must not depend on: there are two processes that start them."""
    global _differ
    _differ = True


def _starter_of(rank: int, framework: str) -> Starter:
    if not _starters:
        atexit.register(_close_starters)
    mine = _starters.setdefault(framework, [])
    if not mine:
        made = starter.ready.get(framework)
        mine.append(made or Starter.launched(framework, _common_env()))
        if _differ:
            mine.append(Starter.launched(framework, _common_env()))
    return mine[rank % len(mine)]


def _close_starters() -> None:
    for some in _starters.values():
        for one in some:
            one.close()


def _common_env() -> Dict[str, str]:
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith("COVEY_")},
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        "OMP_NUM_THREADS": "1",
        "TEST_SEED": str(SEED),
    }


def _imported_by_ranks(env: Dict[str, str]) -> str:
    """The framework that the ranks of this test import first; "" if they may need none. A rank that
    is told more than Covey's variables is not forked: a library may read them when it is loaded. It
    is if these say that Keras runs on torch, as that of starter.py does."""
    more = {name: value for name, value in env.items() if not name.startswith("COVEY_")}
    if more:
        return "keras" if more == starter.ON_TORCH else ""
    if "tensorflows" in sys.modules:
        return "tensorflow"
    return "torch" if "torch" in sys.modules else ""


def serve(file: str, connection: Connection) -> None:
    """What a rank does: the calls that come."""
    sys.path.insert(0, str(pathlib.Path(file).parent))
    spec = importlib.util.spec_from_file_location(pathlib.Path(file).stem, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[module.__name__] = module
    spec.loader.exec_module(module)
    if os.environ.get("TEST_INIT") == "1":
        import covey

        covey.init()
    while True:
        try:
            name, args = pickle.loads(connection.recv_bytes())
        except EOFError:
            return
        try:
            answer = (True, getattr(module, name)(*args))
        except SystemExit:
            raise
        except BaseException:  # pylint: disable=broad-except  # The test wants to see all of them.
            answer = (False, traceback.format_exc())
        connection.send_bytes(pickle.dumps(answer))


if __name__ == "__main__":
    serve(sys.argv[1], Connection(int(sys.argv[2])))
