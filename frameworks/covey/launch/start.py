"""The preparations of a job before its ranks start."""

from __future__ import annotations

import contextlib
import socket
import subprocess
from typing import Any, Callable, Dict, Iterator, Optional, Protocol, Sequence

from covey import _native
from covey.errors import InvalidArgument, Unsupported
from covey.launch.environment import in_common
from covey.launch.preload import Preloaded, adopting
from covey.launch.process import Child, start_process
from covey.launch.spec import JobSpec, LaunchError


class Start(Protocol):
    """Starts a rank with its environment. `listen_fd`: a descriptor that only this rank inherits,
    by the variable COVEY_LISTEN_FD; -1: none."""

    def __call__(self, env: Dict[str, str], listen_fd: int = -1) -> Child: ...


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

        def start(env: Dict[str, str], listen_fd: int = -1) -> Child:
            own = () if listen_fd < 0 else (listen_fd,)
            named = {} if listen_fd < 0 else {"COVEY_LISTEN_FD": str(listen_fd)}
            return start_process(spec.command, {**env, **named}, pass_fds=(*fds, *own), **pipes)

        yield start
        return
    with contextlib.closing(Preloaded(spec.command, spec.preload, in_common(envs), fds)) as forks:
        wait(forks)
        forks.check()
        with adopting():
            yield forks.start


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
