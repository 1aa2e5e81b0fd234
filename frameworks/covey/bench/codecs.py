"""`covey bench codecs`: codecs on one core, beside a copy of the same memory.

GB/s are those of the float32 elements: before encoding, or after decoding.
"""

from __future__ import annotations

from typing import Callable, List, Sequence

import torch

from covey import _native
from covey.bench.collectives import size_in_words
from covey.bench.contest import Contest, Contestant, Row

SIZES_BYTES = (1 << 20, 64 << 20)
NAMES = ("bf16", "bf16@random=1", "fp16", "int8", "qsgd", "lattice@8", "topk")
COPY = "copy"
GOAL = 1 / 3
"""The share of the copy's bytes per second that a codec shall reach from 64 MiB on."""
_STEP = 1e-3  # Of the lattice: the reference lies within its reach.


def _repeated(call: Callable[[], object]) -> Callable[[int], None]:
    def run(count: int) -> None:
        for _ in range(count):
            call()

    return run


def _contestants(name: str, elements: torch.Tensor, decoded: torch.Tensor) -> List[Contestant]:
    count = elements.numel()
    codes = torch.zeros(_native.codec_bytes(name, count), dtype=torch.uint8)
    source, target, to = elements.data_ptr(), decoded.data_ptr(), codes.data_ptr()

    def encode() -> None:
        _native.codec_encode(name, source, count, 1, _STEP, to)

    def decode(kept: torch.Tensor = codes) -> None:
        _native.codec_decode(name, kept.data_ptr(), count, target)

    encode()
    return [
        Contestant(f"{name}, encode", _repeated(encode)),
        Contestant(f"{name}, decode", _repeated(decode)),
    ]


def bench(sizes: Sequence[int], contest: Contest) -> List[Row]:
    """One row per size in bytes of the elements."""
    rows = []
    torch.set_num_threads(1)
    for size in sizes:
        elements = torch.randn(size // 4, generator=torch.Generator().manual_seed(1)) * 0.02
        decoded = elements.clone()
        contestants = [Contestant(COPY, _repeated(lambda: decoded.copy_(elements)))]
        for name in NAMES:
            contestants += _contestants(name, elements, decoded)
        row = contest.measure(size_in_words(size), size, contestants, COPY)
        row.moved_bytes = {one.name: size for one in contestants}
        row.notes = [
            f"{one.name}: {_share(row, one.name):.0%} of the copy's bytes/s; goal from 64 MiB on: "
            f"{GOAL:.0%}"
            for one in contestants[1:]
        ]
        rows.append(row)
    return rows


def _share(row: Row, name: str) -> float:
    return row.median(COPY) / row.median(name)
