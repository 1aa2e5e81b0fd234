"""The preparations of a job before its ranks start."""

from __future__ import annotations

import contextlib
import itertools
import os
import socket
import subprocess
from dataclasses import dataclass
from typing import (
    Any,
    Callable,
    Dict,
    Iterator,
    Mapping,
    Optional,
    Protocol,
    Sequence,
    Tuple,
    TypeVar,
)

from covey import _native
from covey.errors import InvalidArgument, Unsupported
from covey.launch import book
from covey.launch.environment import Descriptors, in_common, rank_environment
from covey.launch.hosts import Place
from covey.launch.preload import Preloaded, adopting
from covey.launch.process import Child, RankProcess, start_process
from covey.launch.spec import JobSpec, LaunchError


T = TypeVar("T")


class Start(Protocol):
    """Starts a rank with its environment. `own`: a descriptor that only this rank inherits, and the
    name of a variable that says its number."""

    def __call__(self, env: Dict[str, str], own: Optional[Tuple[str, int]] = None) -> Child: ...


def make_memory(size: int) -> int:
    """The descriptor of the shared memory of a job of `size` ranks. Raises LaunchError."""
    try:
        return _native.job_create(size)
    except (InvalidArgument, Unsupported) as error:  # of a COVEY_* variable: it says which
        raise LaunchError(str(error)) from error
    except Exception as error:  # whatever its type, it says why in one sentence
        raise LaunchError(f"cannot make the job's shared memory: {error}") from error


@contextlib.contextmanager
def starting(
    spec: JobSpec,
    envs: Sequence[Dict[str, str]],
    fds: Sequence[int],
    wait: Callable[[Preloaded], None],
) -> Iterator[Start]:
    """Gives what starts a rank with its environment, one of `envs`.

    `fds`: the ranks have them too; `wait`: until there is something to read there.

    Raises:
        LaunchError: there is no such program, or no such module to preload.
    """
    if not spec.preload:
        pipes: Dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "bufsize": 0}

        def start(env: Dict[str, str], own: Optional[Tuple[str, int]] = None) -> Child:
            named = {} if own is None else {own[0]: str(own[1])}
            passed = fds if own is None else (*fds, own[1])
            return start_process(spec.command, {**env, **named}, pass_fds=passed, **pipes)

        yield start
        return
    with contextlib.closing(Preloaded(spec.command, spec.preload, in_common(envs), fds)) as forks:
        wait(forks)
        forks.check()
        with adopting():
            yield forks.start


class Starter:
    """Starts the ranks of a host, and may start more of them later. Close it."""

    def __init__(self) -> None:
        """Starts nothing yet."""
        self._stack = contextlib.ExitStack()
        self._start: Optional[Start] = None

    def made(
        self,
        spec: JobSpec,
        envs: Sequence[Dict[str, str]],
        fds: Sequence[int],
        wait: Callable[[Preloaded], None],
    ) -> Start:
        """As of `starting`, whose arguments the first call has."""
        if self._start is None:
            self._start = self._stack.enter_context(starting(spec, envs, fds, wait))
        return self._start

    def retried(self, begin: Callable[[], T]) -> T:
        """begin(), which starts ranks by `made`; after a LaunchError again, with what `made` makes
        anew: the process of --preload may be gone."""
        try:
            return begin()
        except LaunchError:
            self.close()
            return begin()

    def close(self) -> None:
        """The next call of `made` is the first."""
        self._start = None
        self._stack.close()


@dataclass(frozen=True)
class HostPart:
    """The ranks that this launcher starts here, and what they get.

    Attributes:
        memory: the descriptor of their host's memory.
        book: of a job on several hosts; empty: it is on this one.
        listeners: a rank's each, closed when it has started; none without a book.
        store: the address and port of a store that rank 0 may serve; None: there is none that all
            ranks know.
        witnesses: a socket for each rank's requests for witness records; they stay the caller's.
        doors: of an elastic job, a rank's each, its way to coveyrun; closed when it has started.
        starter: of an elastic job, which keeps it; None: none is kept.
    """

    places: Sequence[Place]
    memory: int
    book: str = ""
    listeners: Sequence[socket.socket] = ()
    store: Optional[Tuple[str, int]] = None
    witnesses: Sequence[socket.socket] = ()
    doors: Sequence[socket.socket] = ()
    starter: Optional[Starter] = None

    def start(
        self,
        spec: JobSpec,
        environ: Mapping[str, str],
        names: Tuple[str, int],
        wait: Callable[[Preloaded], None],
    ) -> Iterator[RankProcess]:
        """Starts the ranks, one after the other. `names`: of the job, and the descriptor of the
        summary; `wait`: as of `starting`. Raises LaunchError, and what `wait` raises."""
        job_id, summary = names
        with contextlib.ExitStack() as ours:
            starts = self.starter or ours.enter_context(contextlib.closing(Starter()))
            fds = Descriptors(self.memory, summary)
            if self.book:
                fds = fds._replace(book=book.make(self.book))
                ours.callback(os.close, fds.book)
            envs = [
                rank_environment(environ, spec, place, job_id, fds, self.store)
                for place in self.places
            ]
            passed = [fd for fd in fds if fd >= 0]
            for env, witness in zip(envs, self.witnesses):
                env["COVEY_WITNESS_FD"] = str(witness.fileno())
                passed.append(witness.fileno())
            name, sockets = "COVEY_LISTEN_FD", self.listeners
            if self.doors:
                name, sockets = "COVEY_ELASTIC_FD", self.doors
            start = starts.made(spec, envs, passed, wait)
            for place, env, own in itertools.zip_longest(self.places, envs, sockets):
                yield RankProcess(place.rank, start(env, own and (name, own.fileno())))
                if own is not None:
                    own.close()


class StorePort:
    """A port of this host for a store that rank 0 may serve, as for env:// of torch.distributed.

    It is bound and not listened at, so that the system gives it to no other process as long as the
    job runs; a listener sets SO_REUSEADDR, as torch's stores do.
    """

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.number: Optional[int] = None
        try:
            self._socket.bind(("", 0))
            self.number = self._socket.getsockname()[1]
        except OSError:
            pass  # No network: no store.

    def close(self) -> None:
        """May be called again."""
        self._socket.close()
