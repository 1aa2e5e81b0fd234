"""A training for the tests of checkpoints: with buffers, momenta, a schedule and random numbers."""

from __future__ import annotations

import pathlib
import random
from typing import Any, Dict, Tuple

import torch
from ranks import SEED

import covey.torch as hvd
from covey.torch.plain import digest, plain


class Net(torch.nn.Module):
    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.first = torch.nn.Linear(6, width)
        self.norm = torch.nn.BatchNorm1d(width)
        self.drop = torch.nn.Dropout(0.2)
        self.frozen = torch.nn.Linear(width, width).requires_grad_(False)
        self.last = torch.nn.Linear(width, 3)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        hidden: torch.Tensor = self.drop(torch.tanh(self.norm(self.first(inputs))))
        return self.last(hidden + self.frozen(hidden))


class Training:
    """That of one rank."""

    def __init__(self, method: str, seed: int = SEED, width: int = 16) -> None:
        torch.manual_seed(seed)
        self.net = Net(width)
        trained = [parameter for parameter in self.net.parameters() if parameter.requires_grad]
        adam = torch.optim.Adam(trained, lr=0.01)
        self.optimizer = hvd.DistributedOptimizer(adam, model=self.net, method=method)
        self.schedule = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, 20)
        torch.manual_seed(seed + 1 + hvd.rank())

    def train(self, first: int, steps: int) -> None:
        for step in range(first, first + steps):
            inputs, targets = batch_of(step)
            self.optimizer.zero_grad()
            ((self.net(inputs) - targets) ** 2).mean().backward()
            self.optimizer.step()
            self.schedule.step()

    def parts(self) -> Dict[str, Any]:
        """Hashes, and numbers, of all that it is."""
        own = self.net.state_dict()
        return {
            "model": digest(plain(own, "model")),
            "optimizer": digest(plain(self.optimizer.state_dict(), "optimizer")),
            "lr": self.schedule.get_last_lr(),
            "version": self.optimizer.version,
            "random": digest(torch.get_rng_state()),
        }

    def save(self, path: str, **also: Any) -> None:
        hvd.save(path, self.net, self.optimizer, schedule=self.schedule, **also)

    def load(self, path: str) -> hvd.Loaded:
        return hvd.load(path, self.net, self.optimizer, schedule=self.schedule)


def batch_of(step: int) -> Tuple[torch.Tensor, torch.Tensor]:
    seed = random.Random(f"{SEED} {step} {hvd.rank()}").getrandbits(31)
    source = torch.Generator().manual_seed(seed)
    return torch.randn(8, 6, generator=source), torch.randn(8, 3, generator=source)


def flip(file: pathlib.Path, at: float) -> None:
    """Changes one bit, at that part of its length."""
    data = bytearray(file.read_bytes())
    data[int(len(data) * at)] ^= 1
    file.write_bytes(bytes(data))
