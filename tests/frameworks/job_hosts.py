"""Where the ranks of a job are: on one host, or on several, by `tools/test --hosts N`."""

from __future__ import annotations

import os
import socket
from typing import Callable, Dict, List, Optional

import pmi

HOSTS = int(os.environ.get("TEST_HOSTS") or 1)
"""The number of hosts of a job: `tools/test --hosts N`."""

ENGINE = os.environ.get("TEST_ENGINE") or "tcp"
"""How hosts reach each other: `tools/test --engine ucx`, or mpi."""

PLUGINS = os.environ.get("TEST_PLUGINS", "")
"""The folder of that engine's plug-in, if it is not in the wheel."""


class Hosts:
    """Where the ranks of a job are: on one host, or on several that share no memory and reach
    each other by TCP, UCX or MPI."""

    def __init__(self, size: int, job_create: Callable[[int], int]) -> None:
        count = min(size, HOSTS)
        self._host = [rank * count // size for rank in range(size)]
        self._sizes = [self._host.count(host) for host in range(count)]
        self._memories: List[int] = []
        self._listeners: List[socket.socket] = []
        self._book, self._store = -1, ("", 0)
        self._mpi: Optional[pmi.Server] = None
        if count > 1:
            with socket.create_server(("127.0.0.1", 0)) as store:
                self._store = store.getsockname()
        if count > 1 and ENGINE == "mpi":
            self._mpi = pmi.Server(self._host)
            return
        self._memories = [job_create(local) for local in self._sizes]
        if count > 1:
            self._listen(size)

    def _listen(self, size: int) -> None:
        from covey.launch import book

        entries = []
        for host in self._host:
            listener = socket.create_server(("127.0.0.1", 0), backlog=size)
            listener.setblocking(True)
            self._listeners.append(listener)
            address, port = listener.getsockname()
            entries.append(book.Entry(self._host.index(host), address, port))
        self._book = book.make(book.text_of(book.draw_key(), "tls", entries))

    def variables(self, rank: int) -> Dict[str, str]:
        """The environment variables by which a rank finds its place, but for its descriptors."""
        host, size = self._host[rank], str(len(self._host))
        of_torch = {
            "RANK": str(rank),
            "WORLD_SIZE": size,
            "MASTER_ADDR": self._store[0],
            "MASTER_PORT": str(self._store[1]),
        }
        if self._mpi:
            return {**of_torch, **self._mpi.variables(rank)}
        of_ucx = {
            "COVEY_TRANSPORT": "ucx",
            "COVEY_TRUST_NETWORK": "yes",  # There is no RDMA.
        }
        return {
            **(of_torch if self._listeners else {}),
            **(of_ucx if self._listeners and ENGINE == "ucx" else {}),
            "COVEY_RANK": str(rank),
            "COVEY_SIZE": size,
            "COVEY_LOCAL_RANK": str(rank - self._host.index(host)),
            "COVEY_LOCAL_SIZE": str(self._sizes[host]),
        }

    def descriptors(self, rank: int) -> Dict[str, int]:
        """A rank's descriptors, by the variables in which it has their numbers."""
        if self._mpi:
            return {"PMI_FD": self._mpi.descriptor(rank)}
        memory = {"COVEY_SHM_FD": self._memories[self._host[rank]]}
        if not self._listeners:
            return memory
        listener = self._listeners[rank].fileno()
        return {**memory, "COVEY_BOOK_FD": self._book, "COVEY_LISTEN_FD": listener}

    def close(self) -> None:
        """Closes this process's descriptors; each rank has its own."""
        for descriptor in (*self._memories, *([self._book] if self._listeners else [])):
            os.close(descriptor)
        for listener in self._listeners:
            listener.close()
        if self._mpi:
            self._mpi.close()
