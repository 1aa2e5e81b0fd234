"""oneCCL through a small C++ library over it (frameworks/bench/oneccl_peer.cc).

It moves bytes by Intel MPI, which the process has initialised for several threads, without threads
of its own: of the settings tried the only one in which it is fast.
"""

from __future__ import annotations

import ctypes
import os
from typing import Any, Optional

import covey
from covey.plugin_path import plugin_folders

FILE_NAME = "libcovey_oneccl_peer.so"
ENVIRONMENT = {"CCL_WORKER_OFFLOAD": "0", "CCL_ATL_TRANSPORT": "mpi", "CCL_LOG_LEVEL": "error"}


def find() -> Optional[str]:
    """Where the library is."""
    for folder in plugin_folders():
        path = os.path.join(folder, FILE_NAME)
        if os.path.exists(path):
            return path
    return None


class OneCcl:
    """All ranks of the job, as oneCCL knows them. Every rank makes one, after covey.init().

    Raises:
        RuntimeError: it is absent or does not start; stderr says why.
    """

    def __init__(self) -> None:
        path = find()
        if path is None:
            raise RuntimeError(f"there is no {FILE_NAME}: covey build oneccl")
        self._library = ctypes.CDLL(path)
        make = self._library.covey_peer_new
        make.restype = ctypes.c_void_p
        make.argtypes = [ctypes.c_int32, ctypes.c_char_p]
        sum_ = self._library.covey_peer_sum
        sum_.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint64, ctypes.c_int64]
        self._library.covey_peer_open.argtypes = [ctypes.c_void_p, ctypes.c_int32, ctypes.c_int32]
        self._library.covey_peer_delete.argtypes = [ctypes.c_void_p]
        address = ctypes.create_string_buffer(self._library.covey_peer_address_bytes())
        rank = covey.rank()
        self._peer: Any = make(rank, address) if rank == 0 else None
        address.raw = covey.broadcast_object(address.raw, root_rank=0)
        if rank != 0:
            self._peer = make(rank, address)
        if self._peer is None:
            raise RuntimeError("oneCCL does not start")
        if self._library.covey_peer_open(self._peer, rank, covey.size()) != 0:
            raise RuntimeError("oneCCL does not connect the ranks")

    def sum(self, address: int, count: int, times: int) -> None:
        """`times` blocking sums of `count` float32 in place."""
        if self._library.covey_peer_sum(self._peer, address, count, times) != 0:
            raise RuntimeError("oneCCL failed")

    def close(self) -> None:
        """Lets go of it."""
        self._library.covey_peer_delete(self._peer)
