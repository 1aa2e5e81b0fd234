"""`covey bench latency` and `covey bench allreduce`: one blocking sum of float32 at a time.

Each is called through torch (MPI through mpi4py), and once more in a loop in C.
"""

from __future__ import annotations

import functools
from typing import Callable, List, Sequence

import torch

import covey
import covey.torch as hvd
from covey import _native
from covey.bench.contest import IN_C, Contest, Contestant, Row
from covey.bench.peers import Peers

LATENCY_BYTES = tuple(8 << shift for shift in range(0, 10))  # 8 B to 4 KiB
ALLREDUCE_BYTES = (8, 256, 4 << 10, 32 << 10, 256 << 10, 2 << 20, 16 << 20, 64 << 20)


def size_in_words(size_bytes: int) -> str:
    """`8 B`, `256 KiB`, `64 MiB`, `25 MB`."""
    if size_bytes > 0 and size_bytes % 10**6 == 0:
        return f"{size_bytes // 10**6} MB"
    for unit, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if size_bytes >= unit:
            return f"{size_bytes / unit:.4g} {name}"
    return f"{size_bytes} B"


def _repeated(operation: Callable[[torch.Tensor], object], tensor: torch.Tensor) -> Callable:
    def run(count: int) -> None:
        for _ in range(count):
            operation(tensor)

    return run


def _through_c(name: str, tensor: torch.Tensor) -> Callable[[int], None]:
    """The C API alone, by handle: submit, wait, release."""

    def run(count: int) -> None:
        _native.bench_allreduce(name, tensor.data_ptr(), tensor.numel(), count)

    return run


def _contestants(count_elems: int, peers: Peers) -> List[Contestant]:
    name = f"bench.{count_elems}"

    def sum_tensor(tensor: torch.Tensor) -> None:
        hvd.allreduce_(tensor, op=hvd.Sum, name=name)

    def sum_arena(tensor: torch.Tensor) -> None:
        hvd.allreduce_(tensor, op=hvd.Sum, name=name + ".arena")

    # Zeros: sums in place stay what they are however often they are taken.
    arena = covey.arena_empty((count_elems,), torch.float32)
    found = [
        Contestant("covey", _repeated(sum_tensor, torch.zeros(count_elems))),
        Contestant("covey arena", _repeated(sum_arena, arena)),
        Contestant("covey" + IN_C, _through_c(name + ".c", torch.zeros(count_elems))),
        Contestant("covey arena" + IN_C, _through_c(name + ".c.arena", arena)),
    ]
    for peer, operation in peers.blocking_sums().items():
        found.append(Contestant(peer, _repeated(operation, torch.zeros(count_elems))))
    for peer, operation_in_c in peers.blocking_sums_in_c().items():
        run = functools.partial(operation_in_c, torch.zeros(count_elems))
        found.append(Contestant(peer + IN_C, run))
    return found


def bench(sizes_bytes: Sequence[int], peers: Peers, contest: Contest) -> List[Row]:
    """One row per size."""
    rows = []
    for size in sizes_bytes:
        contestants = _contestants(size // 4, peers)
        row = contest.measure(size_in_words(size), size, contestants, "covey")
        for name in [name for name in row.bases if name.endswith(IN_C)]:
            row.bases[name] = "covey" + IN_C
        del row.bases["covey" + IN_C]
        rows.append(row)
    return rows
