"""The preparations of a job before its ranks start."""

from __future__ import annotations

import socket
from typing import Optional

from covey import _native
from covey.errors import InvalidArgument, Unsupported
from covey.launch.spec import LaunchError


def make_memory(size: int) -> int:
    """The descriptor of the shared memory of a job of `size` ranks. Raises LaunchError."""
    try:
        return _native.job_create(size)
    except (InvalidArgument, Unsupported) as error:  # of a COVEY_* variable: it says which
        raise LaunchError(str(error)) from error
    except Exception as error:  # whatever its type, it says why in one sentence
        raise LaunchError(f"cannot make the job's shared memory: {error}") from error


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
