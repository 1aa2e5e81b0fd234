"""What the ranks of `latency.py` do: sums to which they come one after the other."""

from __future__ import annotations

import time
from typing import Any, Callable, Dict, List, Sequence

import numpy
import torch

import covey
import covey.torch as hvd
from covey.numpy import Trainer

MPI, ALL, SOLO, HALF, MAJORITY = "MPI_Allreduce", "allreduce", "solo", "half", "majority"
METHODS = {
    SOLO: "eager:admit=solo,grace=0s",
    HALF: "eager:admit=0.5,grace=0s",
    MAJORITY: "eager:admit=majority,grace=0s",
}


class PartialSum:
    """A sum that does not wait for all, as `eager` does it: the gradients of a training whose
    update does nothing but count."""

    def __init__(self, name: str, method: str, tensor: torch.Tensor) -> None:
        self.counted = 0.0  # Of the first element, in all versions: all ranks have the same.
        self._gradients = [tensor.numpy()]
        model = [numpy.zeros_like(self._gradients[0])]
        self._trainer = Trainer(model, self._count, method=method, op=hvd.Sum)

    def _count(self, _: Any, gradients: Sequence[Any]) -> None:
        self.counted += float(gradients[0].flat[0])

    def __call__(self) -> None:
        self._trainer.step(self._gradients)

    def close(self) -> None:
        self._trainer.finish()
        covey.barrier()
        self._trainer.close()


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
