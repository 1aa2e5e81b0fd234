"""The preparations of a job before its ranks start."""

from __future__ import annotations

import contextlib
import socket
import subprocess
from typing import Callable, Dict, Iterator, Optional, Sequence

from covey import _native
from covey.errors import InvalidArgument, Unsupported
from covey.launch.environment import in_common
from covey.launch.preload import Preloaded, adopting
from covey.launch.process import Child, start_process
from covey.launch.spec import JobSpec, LaunchError

Start = Callable[[Dict[str, str]], Child]


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
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "bufsize": 0}
        yield lambda env: start_process(spec.command, env, pass_fds=tuple(fds), **pipes)
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
