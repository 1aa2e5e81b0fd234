"""`covey bench kernels --device cuda`: the kernels of the plug-in, beside the card's own copy.

Needs torch for memory, streams and the copy.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any, Callable, List, Sequence, Tuple

import torch

from covey.bench import cards, cuda
from covey.bench.collectives import size_in_words
from covey.bench.contest import Contest, Contestant, Row

SIZES_BYTES = (64 << 20, 256 << 20)
COPY = "device copy"
GOAL = 0.8
"""The share of the copy's bytes per second that a kernel shall reach."""


@dataclass(frozen=True)
class Workload:
    """A kernel and its bytes, for tensors of float32.

    Attributes:
        name: in words.
        kernel: its name in the plug-in.
        inputs: how many tensors it reads; `add` reads its output besides.
        moved: bytes read and written for each byte of a tensor.
    """

    name: str
    kernel: str
    inputs: int
    moved: float


WORKLOADS = (
    Workload("reduce 2", "covey_reduce_float32", 2, 3.0),
    Workload("reduce 4", "covey_reduce_float32", 4, 5.0),
    Workload("scale", "covey_scale_float32", 1, 2.0),
    Workload("cast to bfloat16", "covey_cast_float32_bfloat16", 1, 1.5),
    Workload("add", "covey_add_float32", 1, 3.0),
)
COPY_MOVED = 2.0


class Kernels:
    """The kernels, loaded into the context that is current and stays so.

    Raises:
        RuntimeError: there is no plug-in, or none in it that the driver takes.
    """

    def __init__(self) -> None:
        path, why_not = cards.find(), cards.without_kernels()
        if why_not is not None:
            raise RuntimeError(why_not)
        self._library = ctypes.CDLL(path)
        self._library.covey_cuda_bench_open.restype = ctypes.c_void_p
        why = ctypes.create_string_buffer(512)
        bench = self._library.covey_cuda_bench_open(why, ctypes.c_size_t(len(why)))
        if bench is None:
            raise RuntimeError(f"the kernels cannot be measured: {why.value.decode()}")
        self._bench = ctypes.c_void_p(bench)

    def launcher(
        self, kernel: str, inputs: Sequence[int], output: int, elems: int
    ) -> Callable[[int], None]:
        """A function of a stream that launches the kernel there, on these addresses."""
        addresses = (ctypes.c_uint64 * len(inputs))(*inputs)
        given = kernel.encode(), addresses, ctypes.c_uint32(len(inputs))
        where = ctypes.c_uint64(output), ctypes.c_uint64(elems)

        def launch(stream: int) -> None:
            result = self._library.covey_cuda_bench_launch(
                self._bench, *given, *where, ctypes.c_void_p(stream)
            )
            if result != 0:
                raise RuntimeError(f"{kernel} of {len(inputs)} inputs: error {result} of CUDA")

        return launch

    def close(self) -> None:
        """REQUIRES: the launched work has been done."""
        self._library.covey_cuda_bench_close(self._bench)


def _contestant(kernels: Kernels, work: Workload, tensors: Sequence[Any]) -> Contestant:
    *inputs, output = (tensor.data_ptr() for tensor in [*tensors[: work.inputs], tensors[-1]])
    launch = kernels.launcher(work.kernel, inputs, output, tensors[-1].numel())
    stream = torch.cuda.current_stream().cuda_stream
    return Contestant(work.name, cuda.repeated(lambda: launch(stream)))


def bench(kernels: Kernels, sizes: Sequence[int], contest: Contest) -> List[Row]:
    """One row per size in bytes of a tensor."""
    rows = []
    for size in sizes:
        tensors = [torch.zeros(size // 4, device=cuda.DEVICE) for _ in range(5)]
        first, last = tensors[0], tensors[-1]
        copy: Tuple[Any, Any] = (last, first)
        contestants = [Contestant(COPY, cuda.repeated(lambda pair=copy: pair[0].copy_(pair[1])))]
        contestants += [_contestant(kernels, work, tensors) for work in WORKLOADS]
        row = contest.measure(size_in_words(size), size, contestants, COPY)
        row.bases = {}  # they move different amounts
        row.moved_bytes = {work.name: int(work.moved * size) for work in WORKLOADS}
        row.moved_bytes[COPY] = int(COPY_MOVED * size)
        row.notes = [note_of(row, work.name) for work in WORKLOADS]
        rows.append(row)
    return rows


def note_of(row: Row, name: str) -> str:
    """How near the kernel comes to the copy."""
    mine, copy = row.gigabytes_per_s(name), row.gigabytes_per_s(COPY)
    assert mine is not None and copy is not None
    return f"{name}: {mine / copy:.0%} of the copy's GB/s; goal: at least {GOAL:.0%}"
