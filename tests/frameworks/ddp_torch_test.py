"""covey.torch.DistributedDataParallel by allreduce gives the numbers of torch's class.

Each rank trains the same net twice, with torch's class over backend covey and with Covey's. With
two ranks gradients and models are equal bit by bit, with three within rounding.
"""

from __future__ import annotations

import contextlib
import copy
import unittest
import warnings
from typing import Any, Callable, Dict, List

import torch
from nets import batch_of
from process_groups import in_group
from ranks import SharedPool
from torch.distributed.optim import ZeroRedundancyOptimizer

import covey.torch as hvd

pool = SharedPool(__file__)
Torchs = torch.nn.parallel.DistributedDataParallel


def tearDownModule() -> None:
    pool.close()


def sgd(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.02, momentum=0.9)


def numbers_of(net: Any) -> List[torch.Tensor]:
    return [it.detach().clone() for it in (*net.module.parameters(), *net.module.buffers())]


class Normed(torch.nn.Module):
    """Has buffers, a branch that is not always used, and several outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(6, 8)
        self.norm = torch.nn.BatchNorm1d(8)
        self.second = torch.nn.Linear(8, 3)
        self.unused = torch.nn.Linear(8, 3)

    def forward(self, inputs: torch.Tensor, branch: bool = False) -> Dict[str, Any]:
        x = torch.relu(self.norm(self.first(inputs)))
        out = self.second(x) + (self.unused(x) if branch else 0)
        return {"out": [out], "features": (x, "features")}


def normed_loss(net: torch.nn.Module, batch: Any, branch: bool = False) -> torch.Tensor:
    found = net(batch[0], branch=branch)
    return ((found["out"][0] - batch[1]) ** 2).mean() + found["features"][0].mean()


def pair(**options: Any) -> Any:
    """A net wrapped by torch's class, and the same by Covey's."""
    torch.manual_seed(hvd.rank())  # The first rank's is what counts.
    net = Normed()
    ours = hvd.DistributedDataParallel(copy.deepcopy(net), method="allreduce", **options)
    return Torchs(net, find_unused_parameters=True, **options), ours


@in_group
def as_torchs(loop: str) -> None:
    nets = pair()
    assert copy.deepcopy(nets[1]).process_group is nets[1].process_group is not None
    results = [LOOPS[loop](net) for net in nets]
    for number, (theirs, ours) in enumerate(zip(*results)):
        if hvd.size() == 2:
            assert torch.equal(theirs, ours), (loop, number, theirs, ours)
        torch.testing.assert_close(theirs, ours, msg=lambda text: f"{loop} {number}: {text}")


def steps_of(net: Any) -> List[torch.Tensor]:
    """Branches differ, gradients are clipped, the scheduler is made before the first step."""
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
    seen = []
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        for step in range(6):
            optimizer.zero_grad(set_to_none=step % 2 == 0)
            normed_loss(net, batch_of(step, hvd.rank()), step % 3 == hvd.rank()).backward()
            seen.append(torch.nn.utils.clip_grad_norm_(net.module.second.parameters(), 0.1))
            seen += [it.grad.clone() for it in net.module.second.parameters()]
            optimizer.step()
            scheduler.step()
    assert optimizer.param_groups[0]["lr"] == 0.01 / 8
    return [*seen, *numbers_of(net)]


def accumulated(net: Any) -> List[torch.Tensor]:
    """By no_sync, and without it."""
    optimizer = sgd(net.parameters())
    for step in range(4):
        optimizer.zero_grad()
        with net.no_sync() if step < 2 else contextlib.nullcontext():
            for part in range(2):
                normed_loss(net, batch_of(100 * part + step, hvd.rank())).backward()
        normed_loss(net, batch_of(step, hvd.rank()), True).backward()
        optimizer.step()
    return numbers_of(net)


def scaled(net: Any) -> List[torch.Tensor]:
    """With a GradScaler, which finds an overflow of one rank."""
    optimizer = sgd(net.parameters())
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=2)
    for step in range(5):
        optimizer.zero_grad()
        loss = normed_loss(net, batch_of(step, hvd.rank()), True)
        factor = float("inf") if (step, hvd.rank()) == (2, 1) else 1.0
        scaler.scale(loss * factor).backward()
        if step % 2:
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(net.parameters(), 0.5)
        scaler.step(optimizer)
        scaler.update()
    return [*numbers_of(net), torch.tensor(scaler.get_scale())]


def evaluated(net: Any) -> List[torch.Tensor]:
    """Evaluations between; a gradient that is thrown away; two passes before one backward pass."""
    optimizer = sgd(net.parameters())
    for step in range(4):
        loss = normed_loss(net, batch_of(step, hvd.rank()), True)
        loss.backward()
        optimizer.zero_grad()
        both = [normed_loss(net.eval(), batch_of(step, hvd.rank(), n), True) for n in (1, 2)]
        (both[0] + both[1]).backward()
        optimizer.step()
        with torch.no_grad():
            normed_loss(net.eval(), batch_of(step, hvd.rank()))
        net.train()
    return numbers_of(net)


def sharded(net: Any) -> List[torch.Tensor]:
    """Each rank updates a part of the model."""
    optimizer = ZeroRedundancyOptimizer(net.parameters(), torch.optim.SGD, lr=0.02, momentum=0.9)
    for step in range(4):
        optimizer.zero_grad()
        normed_loss(net, batch_of(step, hvd.rank()), True).backward()
        optimizer.step()
    return numbers_of(net)


LOOPS: Dict[str, Callable[[Any], List[torch.Tensor]]] = {
    "steps": steps_of,
    "accumulated": accumulated,
    "scaled": scaled,
    "evaluated": evaluated,
    "sharded": sharded,
}


class DdpTorchTest(unittest.TestCase):
    def test_trains_as_torchs_class(self) -> None:
        for size in (2, 3):
            for loop in LOOPS:
                with self.subTest(size=size, loop=loop):
                    pool(size).call(as_torchs, loop)


if __name__ == "__main__":
    unittest.main()
