"""What the ranks of `latency.py` do: sums to which they come one after the other."""

from __future__ import annotations

import ctypes
import time
from typing import Any, Callable, Dict, List, Sequence

import torch

import covey
import covey.torch as hvd
from covey import _native
from covey.method import parsed
from covey.reduce_op import core_code
from covey.torch.tensors import CODES

MPI, ALL, SOLO, HALF, MAJORITY = "MPI_Allreduce", "allreduce", "solo", "half", "majority"
METHODS = {
    SOLO: "eager:admit=solo,grace=0s",
    HALF: "eager:admit=0.5,grace=0s",
    MAJORITY: "eager:admit=majority,grace=0s",
}


class PartialSum:
    """A sum that does not wait for all, as `eager` does it. The trainer's part is not of interest
    here, so this calls what lies below the optimizer."""

    def __init__(self, name: str, method: str, tensor: torch.Tensor) -> None:
        self.tensor = tensor
        self.result = torch.zeros_like(tensor)
        self.counted = 0.0  # Of the first element, in all versions: all ranks have the same.
        self._read = 0
        types, counts = (CODES[tensor.dtype],), (tensor.numel(),)
        self._rounds = _native.rounds_open(
            0, f"latency.{name}", parsed(method), 0, core_code(hvd.Sum), 0, types, counts
        )

    def __call__(self) -> None:
        (address,) = _native.rounds_spans(self._rounds, 1)
        size = self.tensor.numel() * self.tensor.element_size()
        ctypes.memmove(address, self.tensor.data_ptr(), size)
        step = _native.rounds_publish(self._rounds, ())
        _native.rounds_wait(self._rounds, step)
        self._read_to(step)

    def _read_to(self, version: int) -> None:
        while self._read < version:
            self._read += 1
            to = (self.result.data_ptr(),)
            _native.rounds_read(self._rounds, self._read, to, hvd.size(), 0)
            self.counted += float(self.result[0])

    def close(self) -> None:
        _native.rounds_finish(self._rounds)
        self._read_to(_native.rounds_executed(self._rounds))
        covey.barrier()
        _native.rounds_close(self._rounds)


def measure(operation: Callable[[], Any], times: int, skew_s: float) -> List[float]:
    """Seconds in each of so many calls, to which this rank comes by its number later."""
    lengths = []
    for _ in range(times):
        covey.barrier()
        time.sleep(covey.rank() * skew_s)
        began = time.perf_counter()
        operation()
        lengths.append(round(time.perf_counter() - began, 7))
    return lengths


def job(sizes: Sequence[int], times: int, skew_s: float, has_mpi: bool) -> List[Dict[str, Any]]:
    """By size and name: all ranks' seconds. The same on every rank."""
    if has_mpi:
        import mpi4py

        mpi4py.rc.thread_level = "funneled"
        from mpi4py import MPI as mpi
    covey.init()
    found = []
    for size in sizes:
        tensor = torch.ones(size // 4)
        array = tensor.clone().numpy()
        partial = {name: PartialSum(f"{name}.{size}", METHODS[name], tensor) for name in METHODS}

        def sum_all(mine: torch.Tensor = torch.zeros(size // 4), name: str = f"all.{size}") -> None:
            hvd.allreduce_(mine, op=hvd.Sum, name=name)

        def sum_mpi(array: Any = array, to: Any = array.copy()) -> None:
            mpi.COMM_WORLD.Allreduce(array, to)

        operations: Dict[str, Callable[[], Any]] = {ALL: sum_all, **partial}
        if has_mpi:
            operations[MPI] = sum_mpi
        for operation in operations.values():
            measure(operation, 3, 0.0)  # What is made once.
        for name, operation in operations.items():
            mine = measure(operation, times, skew_s)
            found.append({"size": size, "name": name, "seconds": covey.allgather_object(mine)})
        for name, operation in partial.items():
            operation.close()
            assert operation.counted == covey.size() * (times + 3), (name, operation.counted)
    covey.shutdown()
    return found
