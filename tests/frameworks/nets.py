"""A small model and its data for the tests of the optimizer. Data follow from seed and rank."""

from __future__ import annotations

import random
from typing import Any, Callable, Optional

import torch
from ranks import SEED

import covey.torch as hvd

BATCH = 4  # Per rank and backward pass.


class Net(torch.nn.Module):
    """Tied weights, a frozen layer, and parameters of several sizes and kinds."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = torch.nn.Linear(6, 40)
        self.hidden = torch.nn.Linear(40, 40)
        self.frozen = torch.nn.Linear(40, 40).requires_grad_(False)
        self.conv = torch.nn.Conv1d(1, 2, 3, padding=1)
        self.scale = torch.nn.Parameter(torch.tensor(1.5))
        self.out = torch.nn.Linear(40, 3)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        x = torch.tanh(self.embed(inputs))
        x = torch.tanh(self.hidden(x)) + torch.tanh(self.hidden(self.frozen(x)))  # Tied.
        x = x + self.conv(x.unsqueeze(1)).mean(1)
        return self.out(x) * self.scale


def make_net(kind: Callable[[], torch.nn.Module] = Net) -> torch.nn.Module:
    torch.manual_seed(SEED)
    return kind()


def batch_of(step: int, rank: int, passes: int = 1) -> Any:
    """Inputs and targets of one rank for all backward passes of a step."""
    seed = random.Random(f"{SEED} {step} {rank}").getrandbits(31)
    source = torch.Generator().manual_seed(seed)
    count = BATCH * passes
    return (
        torch.randint(-3, 4, (count, 6), generator=source).float(),
        torch.randint(-3, 4, (count, 3), generator=source).float(),
    )


def loss_of(net: torch.nn.Module, batch: Any, scale: float = 1.0) -> torch.Tensor:
    return ((net(batch[0]) - batch[1]) ** 2).mean() * scale


def whole_batch(step: int, passes: int = 1) -> Any:
    parts = [batch_of(step, rank, passes) for rank in range(hvd.size())]
    return torch.cat([part[0] for part in parts]), torch.cat([part[1] for part in parts])


def assert_close(net: torch.nn.Module, reference: torch.nn.Module, what: Any, tol: float) -> None:
    for (name, actual), wanted in zip(net.named_parameters(), reference.parameters()):
        torch.testing.assert_close(
            actual, wanted, rtol=tol, atol=tol, msg=lambda text: f"{what} {name}: {text}"
        )
    hvd.check_replicas(net)


def one_step(net: torch.nn.Module, optimizer: Any, step: int = 0) -> None:
    optimizer.zero_grad()
    loss_of(net, batch_of(step, hvd.rank())).backward()
    optimizer.step()


def overflowing_steps(
    net: torch.nn.Module, optimizer: Any, steps: int, clip: Optional[float] = None
) -> None:
    """Steps with a GradScaler, in the second of which the gradients of rank 0 overflow."""
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    for step in range(steps):
        optimizer.zero_grad()
        factor = float("inf") if (step, hvd.rank()) == (1, 0) else 1.0
        scaler.scale(loss_of(net, batch_of(step, hvd.rank())) * factor).backward()
        if clip is not None:
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(net.parameters(), clip)
        scaler.step(optimizer)
        scaler.update()
