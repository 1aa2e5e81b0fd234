"""`covey bench allreduce --device cuda` and `covey bench step --device cuda`. Needs torch.

The GPU works behind the host's back, so a sample ends when the device has done all of it, and
begins when the device has nothing to do; the operations within a sample follow each other on the
stream, as in training.
"""

from __future__ import annotations

from typing import Any, Callable, List, Optional, Sequence, Tuple

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import covey
import covey.torch as hvd
from covey.bench.cards import detour
from covey.bench.collectives import size_in_words
from covey.bench.contest import Contest, Contestant, Row, exposed_share
from covey.bench.peers import close_group, open_group
from covey.bench.step import IDLE, ddp_steps, optimizer_steps

ALLREDUCE_BYTES = (4 << 10, 64 << 10, 1 << 20, 16 << 20, 64 << 20, 256 << 20)
DEVICE = "cuda"
BACKWARD_S = 0.05
GRADIENTS = (25, 1_000_000)
"""So many gradients of so many float32 elements: 100 MB."""
GOALS = {"nccl": 0.10, "ipc": 0.10, "staged": 0.20}
"""Path -> the share of the backward's time that communication may add."""
_MATRIX = 2048
_FIRST_STEPS = 5
"""They open the device, and agree on a path."""
_CALLS = "device_synchronous_calls"


class Peer:
    """Within `with`, torch.distributed over a backend. After covey.init() and
    torch.cuda.set_device().

    Attributes:
        backend: "nccl"; "gloo", which copies through the host; None: no peer takes part.
    """

    def __init__(self, backend: Optional[str], folder: str) -> None:
        """`folder` is shared by the ranks and empty."""
        self.backend = backend
        self._folder = folder

    def __enter__(self) -> Peer:
        if self.backend is not None:
            open_group(self.backend, self._folder)
        return self

    def __exit__(self, *exception: object) -> None:
        close_group()


def repeated(operation: Callable[[], object]) -> Callable[[int], None]:
    """Does it so many times and waits until the device has done it."""

    def run(count: int) -> None:
        for _ in range(count):
            operation()
        torch.cuda.synchronize()

    return run


def allreduce(sizes: Sequence[int], path: str, peer: Peer, contest: Contest) -> List[Row]:
    """One row per size in bytes: sums of float32 in place, beside torch's backend."""
    rows = []
    name = f"covey {path}"
    for size in sizes:
        # Zeros: sums in place stay what they are however often they are taken.
        mine, theirs = (torch.zeros(size // 4, device=DEVICE) for _ in range(2))

        def own(tensor: torch.Tensor = mine, key: str = f"bench.{size}") -> None:
            hvd.allreduce_(tensor, op=hvd.Sum, name=key)

        def other(tensor: torch.Tensor = theirs) -> None:
            dist.all_reduce(tensor)

        contestants = [Contestant(name, repeated(own))]
        if peer.backend is not None:
            contestants.append(Contestant(f"torch {peer.backend}", repeated(other)))
        before = covey.stats()
        base = contestants[-1].name
        row = contest.measure(size_in_words(size), size, contestants, base)
        row.moved_bytes = {one.name: size for one in contestants}
        _say_detour(row, path, before)
        rows.append(row)
    return rows


def _say_detour(row: Row, path: str, before: Any) -> None:
    why = detour(path, before, covey.stats())
    if why is not None:
        row.notes.append(why)


class _Work(torch.autograd.Function):
    """A layer whose backward keeps the device busy and then returns a gradient that exists."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor, layer: Any) -> torch.Tensor:
        del weight
        ctx.layer = layer
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Tuple[Any, ...]:
        compute, gradient, turns = ctx.layer
        for _ in range(turns):
            compute()
        return grads[0], gradient, None


class Busy(nn.Module):
    """Layers, each with a gradient of `elems` float32 elements; together their backward calls
    `compute` `turns` times, evenly spread. Forward costs nothing."""

    def __init__(
        self, shape: Tuple[int, int], compute: Callable[[], object], turns: int
    ) -> None:
        super().__init__()
        layers, elems = shape
        self.work = compute, turns
        self.weights = nn.ParameterList(
            nn.Parameter(torch.zeros(elems, device=DEVICE)) for _ in range(layers)
        )
        self._layers = [
            (compute, torch.ones(elems, device=DEVICE), share) for share in shares(turns, layers)
        ]
        self._start = torch.zeros((), device=DEVICE, requires_grad=True)

    def forward(self) -> torch.Tensor:
        x = self._start
        for weight, layer in zip(self.weights, self._layers):
            x = _Work.apply(x, weight, layer)
        return x


def shares(total: int, parts: int) -> List[int]:
    """`total` in whole parts that differ by one at most.

    Example:
        >>> shares(7, 3)
        [2, 2, 3]
    """
    return [total * (i + 1) // parts - total * i // parts for i in range(parts)]


def _seconds_on_device(compute: Callable[[], object], times: int) -> float:
    """Of one call, between two events on the stream."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    for _ in range(times):  # clocks rise, libraries load
        compute()
    begin.record()
    for _ in range(times):
        compute()
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end)) / 1e3 / times


def _products() -> Callable[[], object]:
    left, right, product = (torch.zeros(_MATRIX, _MATRIX, device=DEVICE) for _ in range(3))
    return lambda: torch.mm(left, right, out=product)


def _contestants(name: str, model: Busy, backend: Optional[str]) -> List[Contestant]:
    found = optimizer_steps(name, model, repeated)
    if backend is not None:
        other = DistributedDataParallel(Busy(GRADIENTS, *model.work))
        found += ddp_steps(f"ddp {backend}", other, repeated)
    return found


def step(path: str, peer: Peer, contest: Contest, small: bool) -> List[Row]:
    """One row: a backward of about BACKWARD_S with 100 MB of gradients, averaged meanwhile, and
    what of that is not hidden behind the computation."""
    compute = _products()
    once_s = _seconds_on_device(compute, 3 if small else 50)
    turns = max(1, round((BACKWARD_S / 10 if small else BACKWARD_S) / once_s))
    turns = int(covey.broadcast_object(turns, root_rank=0))
    name = f"covey {path}"
    layers, elems = GRADIENTS
    contestants = _contestants(name, Busy(GRADIENTS, compute, turns), peer.backend)
    label = f"{layers} gradients, {layers * elems:,} float32, averaged in a backward"
    contestants[0].run(_FIRST_STEPS)
    before = covey.stats()
    row = contest.measure(label, 4 * layers * elems, contestants, name)
    row.bases = {}
    _say_detour(row, path, before)
    calls = covey.stats().get(_CALLS, 0) - before.get(_CALLS, 0)
    row.notes.append(f"calls in all these steps that may wait for the device: {calls}; goal: 0")
    for one in [one for one in row.seconds if one + IDLE in row.seconds]:
        share, alone_s = exposed_share(row, one, one + IDLE), row.median(one + IDLE)
        goal = f"; goal: at most {GOALS[path]:.0%}" if one == name else ""
        row.notes.append(
            f"{one}: communication adds {share:.1%} to a backward of {alone_s * 1e3:.1f} ms{goal}"
        )
    return [row]
