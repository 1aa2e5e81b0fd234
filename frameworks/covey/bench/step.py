"""`covey bench step` and `covey bench fusion`: the messages of one training step, and nothing else.

The 161 float32 gradients of a ResNet-50, 25,557,032 elements, or 1,000 gradients of 256 bytes,
averaged over the ranks: by the plain functions on ordinary tensors and on tensors in the arena, and
as an optimizer does it, where an autograd node that computes nothing hands out ready gradients. Of
the latter the same step without communication is subtracted, each contestant's own.
"""

from __future__ import annotations

from typing import Any, Callable, List, Sequence, Tuple

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import covey
import covey.torch as hvd
from covey.bench.contest import Contest, Contestant, Row, net_of
from covey.bench.peers import Peers, gloo_sum_all, in_buckets

NET = ", net"
IDLE = ", idle"
OPTIMIZER = "covey optimizer"

Repeat = Callable[[Callable[[], object]], Callable[[int], None]]
"""Makes of an operation what does it so many times."""


class _HandOut(torch.autograd.Function):
    """A node whose backward returns gradients that exist already."""

    @staticmethod
    def forward(ctx: Any, gradients: Sequence[torch.Tensor], *parameters: torch.Tensor) -> Any:
        ctx.gradients = gradients
        return torch.zeros(())

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Tuple[Any, ...]:
        return (None, *ctx.gradients)


class NoCompute(nn.Module):
    """Parameters of the given shapes; forward and backward cost nothing but autograd itself."""

    def __init__(self, shapes: Sequence[Tuple[int, ...]]) -> None:
        super().__init__()
        self.weights = nn.ParameterList(nn.Parameter(torch.zeros(shape)) for shape in shapes)
        self.gradients = [torch.ones(shape) for shape in shapes]

    def forward(self) -> torch.Tensor:
        return _HandOut.apply(self.gradients, *self.weights)


def _repeated(operation: Callable[[], object]) -> Callable[[int], None]:
    def run(count: int) -> None:
        for _ in range(count):
            operation()

    return run


def ordinary_allreduce(shapes: Sequence[Tuple[int, ...]]) -> Callable[[int], None]:
    """Averages tensors of these shapes in place, begun one by one."""
    tensors = [torch.zeros(shape) for shape in shapes]
    names = [f"bench.step.{i}" for i in range(len(shapes))]  # a model's parameters have theirs

    def one_by_one() -> None:
        handles = [
            hvd.allreduce_async_(tensor, op=hvd.Average, name=name)
            for tensor, name in zip(tensors, names)
        ]
        for handle in handles:
            hvd.synchronize(handle)

    return _repeated(one_by_one)


def _plain(shapes: Sequence[Tuple[int, ...]]) -> List[Contestant]:
    ordinary = [torch.zeros(shape) for shape in shapes]
    arena = [covey.arena_empty(shape, torch.float32) for shape in shapes]

    def grouped() -> None:
        hvd.grouped_allreduce_(ordinary, op=hvd.Average, name="bench.step.grouped")

    def grouped_arena() -> None:
        hvd.grouped_allreduce_(arena, op=hvd.Average, name="bench.step.arena")

    return [
        Contestant("covey one by one", ordinary_allreduce(shapes)),
        Contestant("covey grouped", _repeated(grouped)),
        Contestant("covey grouped, arena", _repeated(grouped_arena)),
    ]


def _peers(shapes: Sequence[Tuple[int, ...]], peers: Peers) -> List[Contestant]:
    """Sums only: theirs are not divided by the number of ranks. Buckets as DDP would send them,
    but without its copies into and out of them."""
    tensors = [torch.zeros(shape) for shape in shapes]
    buckets = in_buckets(sum(tensor.numel() for tensor in tensors))
    found = []
    if peers.has("gloo"):
        found += [
            Contestant("gloo one by one", _repeated(lambda: gloo_sum_all(tensors))),
            Contestant("gloo buckets", _repeated(lambda: gloo_sum_all(buckets))),
        ]
    if peers.mpi:
        found += [
            Contestant(peers.mpi + " one by one", _repeated(lambda: peers.sum_all(tensors))),
            Contestant(peers.mpi + " buckets", _repeated(lambda: peers.sum_all(buckets))),
        ]
    return found


def optimizer_steps(name: str, model: nn.Module, repeated: Repeat) -> List[Contestant]:
    """A step of Covey's optimizer, and ``name + IDLE``: the same without communication."""
    optimizer: Any = torch.optim.SGD(model.parameters(), lr=0.0)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())

    def step() -> None:
        optimizer.zero_grad()
        model().backward()
        optimizer.synchronize()

    def idle() -> None:
        optimizer.zero_grad()
        with optimizer.no_sync():
            model().backward()

    return [Contestant(name, repeated(step)), Contestant(name + IDLE, repeated(idle))]


def ddp_steps(name: str, model: DistributedDataParallel, repeated: Repeat) -> List[Contestant]:
    """The same of DDP."""

    def step() -> None:
        model.zero_grad()
        model().backward()

    def idle() -> None:
        model.zero_grad()
        with model.no_sync():
            model().backward()

    return [Contestant(name, repeated(step)), Contestant(name + IDLE, repeated(idle))]


def _ddp(shapes: Sequence[Tuple[int, ...]], views: bool) -> List[Contestant]:
    model = DistributedDataParallel(NoCompute(shapes), gradient_as_bucket_view=views)
    return ddp_steps("ddp, bucket views" if views else "ddp", model, _repeated)


def bench(shapes: Sequence[Tuple[int, ...]], peers: Peers, contest: Contest) -> List[Row]:
    """One row; beside each optimizer's time stands the one net of its idle step."""
    contestants = _plain(shapes) + _peers(shapes, peers)
    contestants += optimizer_steps(OPTIMIZER, NoCompute(shapes), _repeated)
    if peers.has("ddp"):
        contestants += _ddp(shapes, views=False) + _ddp(shapes, views=True)
    elements = sum(torch.Size(shape).numel() for shape in shapes)
    label = f"{len(shapes):,} gradients, {elements:,} float32, averaged"
    row = contest.measure(label, 4 * elements, contestants, "covey one by one")
    for name in [name for name in row.seconds if name + IDLE in row.seconds]:
        row.seconds[name + NET] = net_of(row, name, name + IDLE)
        row.bases.update({name: OPTIMIZER, name + NET: OPTIMIZER + NET})
        del row.bases[name + IDLE]
    for own in (OPTIMIZER, OPTIMIZER + NET):
        del row.bases[own]
    return [row]
