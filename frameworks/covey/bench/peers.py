"""The other runtimes, initialised in the same processes. Needs torch."""

from __future__ import annotations

import ctypes
import datetime
import os
from typing import Any, Callable, Dict, List, Optional, Sequence

import torch
import torch.distributed as dist

import covey
from covey import _native
from covey.bench import mpis
from covey.bench.oneccl import OneCcl

DDP_BUCKET_ELEMS = 25 * 1024 * 1024 // 4
"""As much as DDP sends at once."""


def open_group(backend: str, folder: Optional[str]) -> None:
    """torch.distributed of all ranks, which meet in ``folder``: they share it, and it is empty.
    None: where coveyrun has told them to, by MASTER_ADDR and MASTER_PORT."""
    dist.init_process_group(
        backend,
        init_method="env://" if folder is None else "file://" + os.path.join(folder, "store"),
        rank=covey.rank(),
        world_size=covey.size(),
        timeout=datetime.timedelta(seconds=120),
    )


def close_group() -> None:
    """Ends it, if it is open."""
    if dist.is_initialized():
        dist.destroy_process_group()


class Peers:
    """Within `with`, the runtimes that `names` need are up: torch.distributed over Gloo, MPI,
    oneCCL. After covey.init().

    Attributes:
        mpi: the name of the MPI or oneCCL that takes part, "" for none.
        versions: of what takes part.
    """

    def __init__(self, names: Sequence[str], folder: Optional[str]) -> None:
        """`folder` is shared by the ranks and empty, or None: see open_group."""
        self.names = tuple(names)
        self.mpi = next((name for name in names if name in mpis.NAMES), "")
        self.versions: Dict[str, str] = {}
        self._folder = folder
        self._mpi: Any = None
        self._oneccl: Optional[OneCcl] = None

    def __enter__(self) -> Peers:
        if self.mpi:
            import mpi4py

            # One thread is all that MPI needs, and the faster; oneCCL collapses with it.
            is_oneccl = self.mpi == "oneccl"
            mpi4py.rc.thread_level = "multiple" if is_oneccl else "funneled"
            from mpi4py import MPI

            self._mpi = MPI
            version = MPI.Get_library_version().strip("\0").split("\n")[0]
            self.versions[self.mpi] = " ".join(version.split()).partition(",")[0]
            if is_oneccl:
                self.versions[self.mpi] = "over " + self.versions[self.mpi]
                self._oneccl = OneCcl()
        if self.has("gloo") or self.has("ddp"):
            open_group("gloo", self._folder)
        return self

    def __exit__(self, *exception: object) -> None:
        close_group()
        if self._oneccl is not None:
            self._oneccl.close()

    def has(self, name: str) -> bool:
        """Whether this peer takes part."""
        return name in self.names

    def blocking_sums(self) -> Dict[str, Callable[[torch.Tensor], object]]:
        """Peer -> its blocking sum of a tensor in place."""
        found: Dict[str, Callable[[torch.Tensor], object]] = {}
        if self.has("gloo"):
            found["gloo"] = dist.all_reduce
        if self.mpi:
            found[self.mpi] = self._sum
        return found

    def blocking_sums_in_c(self) -> Dict[str, Callable[[torch.Tensor, int], None]]:
        """Peer -> so many blocking sums of a float32 tensor in place, without Python in between."""
        if not self.mpi:
            return {}
        if self._oneccl is not None:
            return {self.mpi: self._oneccl_sums}
        return {self.mpi: self._mpi_sums()}

    def _mpi_sums(self) -> Callable[[torch.Tensor, int], None]:
        mpi, handle = self._mpi, self._mpi._handleof
        function = ctypes.cast(_library_of_mpi().MPI_Allreduce, ctypes.c_void_p).value
        in_place = int(mpi.IN_PLACE) % (1 << 64)
        handles = [handle(one) for one in (mpi.FLOAT, mpi.SUM, mpi.COMM_WORLD)]

        def run(tensor: torch.Tensor, times: int) -> None:
            data = tensor.data_ptr(), tensor.numel()
            _native.bench_mpi(function, in_place, *data, *handles, times)

        return run

    def _oneccl_sums(self, tensor: torch.Tensor, times: int) -> None:
        assert self._oneccl is not None
        self._oneccl.sum(tensor.data_ptr(), tensor.numel(), times)

    def _sum(self, tensor: torch.Tensor) -> None:
        if self._oneccl is not None:
            self._oneccl_sums(tensor, 1)
        else:
            self._mpi.COMM_WORLD.Allreduce(self._mpi.IN_PLACE, tensor.numpy())

    def sum_all(self, tensors: Sequence[torch.Tensor]) -> None:
        """One blocking sum after another, by the MPI or oneCCL."""
        for tensor in tensors:
            self._sum(tensor)


def _library_of_mpi() -> ctypes.CDLL:
    """The MPI that mpi4py has opened."""
    with open("/proc/self/maps", encoding="utf-8") as maps:
        paths = {line.split()[-1] for line in maps if "/libmpi.so" in line}
    return ctypes.CDLL(min(paths))


def gloo_sum_all(tensors: Sequence[torch.Tensor]) -> None:
    """All tensors in flight together, then waits for all."""
    works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
    for work in works:
        work.wait()


def in_buckets(elements: int) -> List[torch.Tensor]:
    """As many elements in tensors of the size of DDP's buckets."""
    whole, rest = divmod(elements, DDP_BUCKET_ELEMS)
    return [torch.zeros(n) for n in [DDP_BUCKET_ELEMS] * whole + [rest] * (rest > 0)]
