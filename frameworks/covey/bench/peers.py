"""The other runtimes, initialised in the same processes. Needs torch."""

from __future__ import annotations

import datetime
import os
from typing import Any, Callable, Dict, List, Sequence

import torch
import torch.distributed as dist

import covey
from covey.bench import mpis

DDP_BUCKET_ELEMS = 25 * 1024 * 1024 // 4
"""As much as DDP sends at once."""


class Peers:
    """Within `with`, the runtimes that `names` need are up: torch.distributed over Gloo, MPI.

    Attributes:
        mpi: the name of the MPI that takes part, "" for none.
        versions: of what takes part.
    """

    def __init__(self, names: Sequence[str], folder: str) -> None:
        """`folder` is shared by the ranks and empty."""
        self.names = tuple(names)
        self.mpi = next((name for name in names if name in mpis.NAMES), "")
        self.versions: Dict[str, str] = {}
        self._folder = folder
        self._mpi: Any = None

    def __enter__(self) -> Peers:
        if self.mpi:
            import mpi4py

            mpi4py.rc.thread_level = "funneled"  # the faster, and one thread is all it needs
            from mpi4py import MPI

            self._mpi = MPI
            version = MPI.Get_library_version().strip("\0").split("\n")[0]
            self.versions[self.mpi] = " ".join(version.split()).partition(",")[0]
        if self.has("gloo") or self.has("ddp"):
            dist.init_process_group(
                "gloo",
                init_method="file://" + os.path.join(self._folder, "store"),
                rank=covey.rank(),
                world_size=covey.size(),
                timeout=datetime.timedelta(seconds=120),
            )
        return self

    def __exit__(self, *exception: object) -> None:
        if dist.is_initialized():
            dist.destroy_process_group()

    def has(self, name: str) -> bool:
        """Whether this peer takes part."""
        return name in self.names

    def blocking_sums(self) -> Dict[str, Callable[[torch.Tensor], object]]:
        """Peer -> its blocking sum of a tensor in place."""
        found: Dict[str, Callable[[torch.Tensor], object]] = {}
        if self.has("gloo"):
            found["gloo"] = dist.all_reduce
        if self.mpi:
            found[self.mpi] = self._mpi_sum
        return found

    def _mpi_sum(self, tensor: torch.Tensor) -> None:
        self._mpi.COMM_WORLD.Allreduce(self._mpi.IN_PLACE, tensor.numpy())

    def mpi_sum_all(self, tensors: Sequence[torch.Tensor]) -> None:
        """One blocking sum after another."""
        world, in_place = self._mpi.COMM_WORLD, self._mpi.IN_PLACE
        for tensor in tensors:
            world.Allreduce(in_place, tensor.numpy())


def gloo_sum_all(tensors: Sequence[torch.Tensor]) -> None:
    """All tensors in flight together, then waits for all."""
    works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
    for work in works:
        work.wait()


def in_buckets(elements: int) -> List[torch.Tensor]:
    """As many elements in tensors of the size of DDP's buckets."""
    whole, rest = divmod(elements, DDP_BUCKET_ELEMS)
    return [torch.zeros(n) for n in [DDP_BUCKET_ELEMS] * whole + [rest] * (rest > 0)]
