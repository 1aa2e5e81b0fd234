"""The calibrator: how long a word written by one process takes to be seen by another that spins.

Nothing that two processes do together is faster than this. It differs by the cores they run on and
by the mode that the machine is in, so it stands beside every figure.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from typing import Any, Optional

from covey import _native

ROUNDS = 500
_BYTES = 4096


class Flag:
    """Words that ranks 0 and 1 share, in a file of the job's folder.

    Within `with`; every rank of the job makes one. Without a folder that they share there is none.
    """

    def __init__(self, folder: Optional[str], rank: int, size: int) -> None:
        self._side: Optional[int] = rank if folder is not None and rank < 2 <= size else None
        self._memory: Any = None
        self._word: Any = None
        self._path = os.path.join(folder or "", "flag")

    def __enter__(self) -> Flag:
        if self._side is not None:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.ftruncate(descriptor, _BYTES)
                self._memory = mmap.mmap(descriptor, _BYTES)
            finally:
                os.close(descriptor)
            self._word = ctypes.c_char.from_buffer(self._memory)
        return self

    def __exit__(self, *exception: object) -> None:
        self._word = None
        if self._memory is not None:
            self._memory.close()

    def one_way_s(self) -> float:
        """Seconds for one word one way; 0 on ranks that do not take part. Ranks 0 and 1 call it at
        the same time. Raises TimeoutError when the other does not."""
        if self._side is None:
            return 0.0
        return _native.bench_flag(ctypes.addressof(self._word), self._side, ROUNDS)
