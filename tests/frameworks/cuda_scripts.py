"""Parts of scripts with tensors on CUDA, real or late, or on the CPU: what cuda_script_test.py and
card_test.py share."""

from __future__ import annotations

from typing import Any, Callable, Dict, List

import torch
from mirror_training import there_is
from ranks import SEED

import covey.torch as hvd

OPTIMIZERS: Dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "momentum": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, foreach=False),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01, amsgrad=True, foreach=False),
}


def resumed(device: str, name: str) -> List[Any]:
    """Rank 0 has a checkpoint, the others get it; then all train on."""
    with there_is(device):
        torch.manual_seed(SEED + hvd.rank())
        net = torch.nn.Linear(5, 3).to(device)
        optimizer = OPTIMIZERS[name](net.parameters())
        inputs = torch.randn(4, 5).to(device)
        if hvd.rank() == 0:
            net(inputs).square().mean().backward()
            optimizer.step()
        hvd.broadcast_parameters(net.state_dict(), root_rank=0)
        hvd.broadcast_optimizer_state(optimizer, root_rank=0)
        wrapped: Any = hvd.DistributedOptimizer(
            optimizer, named_parameters=net.named_parameters()
        )
        for _ in range(3):
            wrapped.zero_grad()
            net(inputs).square().mean().backward()
            wrapped.step()
        places = {str(it.device.type) for it in kept_of(wrapped) if it.dim() > 0}
        numbers = [it.detach().cpu().tolist() for it in (*net.parameters(), *kept_of(wrapped))]
        return [places == {device}, numbers]


def around(device: str) -> List[Any]:
    """Operations of a script beside its optimizer, with what autograd makes of them."""
    rank, size = hvd.rank(), hvd.size()
    with there_is(device):
        base = torch.arange(6.0).reshape(2, 3).to(device) + rank
        found = [hvd.allreduce(base.mean(), name="loss"), hvd.allreduce(base.t(), name="t")]
        found += hvd.grouped_allreduce([base, base.double()], op=hvd.Max, name="g")
        found += [hvd.allreduce(base, name="half", compression=hvd.Compression.fp16)]
        found += [hvd.allgather(base[: rank + 1], name="rows"), hvd.broadcast(base, 1)]
        found += [hvd.reducescatter(base, op=hvd.Sum), *hvd.alltoall(base, splits=[0] * size)]
        found += [hvd.alltoall(torch.cat([base[:1]] * size))]
        column = base[:, 1]
        hvd.allreduce_(column, op=hvd.Sum)
        found += [base, hvd.allreduce(base[:0], name="empty")]
        weight = torch.ones(2, 3).to(device).requires_grad_()
        for reduced in (
            hvd.allreduce(weight * base, op=hvd.Sum),
            hvd.allgather(weight * base),
            hvd.broadcast(weight * base, 0),
            hvd.reducescatter(weight * base, op=hvd.Sum),
        ):
            reduced.square().sum().backward()
        sent = hvd.broadcast_object({"base": base.cpu(), "rank": rank}, root_rank=2)
        ranks = hvd.allgather_object((rank, float(base.sum())))
        places = {it.device.type for it in found[:4]} | {weight.grad.device.type}
        numbers = [it.detach().cpu().tolist() for it in (*found, weight.grad)]
        return [places == {device}, numbers, sent["base"].tolist(), sent["rank"], ranks]


def kept_of(optimizer: Any) -> List[torch.Tensor]:
    kept = [optimizer.state[it] for it in optimizer.param_groups[0]["params"]]
    return [it for one in kept for _, it in sorted(one.items()) if isinstance(it, torch.Tensor)]
