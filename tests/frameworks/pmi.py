"""Starts ranks of MPICH without mpirun: as much of PMI-1 as MPI_Init and MPI_Finalize need.

PMI-1 is lines of `name=value` over a socket that the rank has from PMI_FD: it numbers the ranks,
says which of them share a host, and keeps the addresses that they tell each other. mpirun ends
the whole job when a rank is killed; this server does not.
"""

from __future__ import annotations

import selectors
import socket
import threading
import uuid
from typing import BinaryIO, Dict, List

_FIXED_ANSWERS = {
    "init": "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0",
    "get_maxes": "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024 rc=0",
    "get_appnum": "cmd=appnum appnum=0 rc=0",
    "finalize": "cmd=finalize_ack rc=0",
}
"""By command: answers that are the same for all ranks, at all times."""


class Server:
    """Answers the ranks of one job until they have ended. ``hosts``: by rank, the number of its
    host, ascending."""

    def __init__(self, hosts: List[int]) -> None:
        self._size = len(hosts)
        self._name = uuid.uuid4().hex  # Of the job: by this MPICH names the memory of its hosts.
        sizes = [hosts.count(host) for host in range(hosts[-1] + 1)]
        nodes = ",".join(f"({host},1,{size})" for host, size in enumerate(sizes))
        self._told = {"PMI_process_mapping": f"(vector,{nodes})"}
        self._in_barrier: List[socket.socket] = []
        pairs = [socket.socketpair() for _ in hosts]
        self._of_ranks = [theirs for _, theirs in pairs]
        self._ours = [ours for ours, _ in pairs]
        threading.Thread(target=self._serve, daemon=True).start()

    def variables(self, rank: int) -> Dict[str, str]:
        """The environment variables of a rank, but for PMI_FD."""
        return {"PMI_RANK": str(rank), "PMI_SIZE": str(self._size)}

    def descriptor(self, rank: int) -> int:
        """The rank's end of its connection: the number in its PMI_FD."""
        return self._of_ranks[rank].fileno()

    def close(self) -> None:
        """Once all ranks are started: each has its descriptor."""
        for theirs in self._of_ranks:
            theirs.close()

    def _serve(self) -> None:
        with selectors.DefaultSelector() as selector:
            for ours in self._ours:
                selector.register(ours, selectors.EVENT_READ, ours.makefile("rb"))
            while selector.get_map():
                for key, _ in selector.select():
                    # A rank waits for each answer: there is one line.
                    line = _line_of(key.data)
                    if line:
                        self._answer(key.fileobj, line)
                        continue
                    selector.unregister(key.fileobj)
                    key.data.close()
                    key.fileobj.close()

    def _answer(self, rank: socket.socket, line: str) -> None:
        words = dict(word.split("=", 1) for word in line.split())
        command = words["cmd"]
        if command != "barrier_in":
            return _tell(rank, self._text(command, words))
        self._in_barrier.append(rank)
        if len(self._in_barrier) == self._size:
            for each in self._in_barrier:
                _tell(each, "cmd=barrier_out rc=0")
            self._in_barrier.clear()

    def _text(self, command: str, words: Dict[str, str]) -> str:
        if command == "put":
            self._told[words["key"]] = words["value"]
            return "cmd=put_result rc=0"
        if command == "get":
            value = self._told.get(words["key"])
            return "cmd=get_result " + ("rc=-1" if value is None else f"rc=0 value={value}")
        if command == "get_my_kvsname":
            return f"cmd=my_kvsname kvsname={self._name} rc=0"
        if command == "get_universe_size":
            return f"cmd=universe_size size={self._size} rc=0"
        return _FIXED_ANSWERS.get(command, f"cmd={command} rc=-1")


def _line_of(rank: BinaryIO) -> str:
    """The next; empty once the rank has ended."""
    try:
        return rank.readline().decode()
    except OSError:
        return ""


def _tell(rank: socket.socket, text: str) -> None:
    try:
        rank.sendall(text.encode() + b"\n")
    except OSError:
        pass  # It has ended.
