"""Drawn scripts (drawn_scripts.py) by torch's DistributedOptimizer."""

from __future__ import annotations

import unittest
from typing import Any, List

import torch
from drawn_scripts import End, Script, Training, check, draw, draw_finishes, draw_saves, run_script
from ranks import also

import covey
import covey.torch as hvd


class TorchTraining(Training):
    def __init__(self, method: str) -> None:
        torch.manual_seed(1)
        self.net = torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.Linear(7, 2))
        sgd = torch.optim.SGD(self.net.parameters(), lr=0.01, momentum=0.9)
        self.optimizer = hvd.DistributedOptimizer(sgd, model=self.net, method=method)
        self.computed = -1

    def step(self, number: int) -> None:
        if self.computed < number:
            draws = torch.Generator().manual_seed(hvd.rank() * 1009 + number)
            self.optimizer.zero_grad()
            outputs = self.net(torch.randn(3, 5, generator=draws))
            (outputs - hvd.rank()).square().mean().backward()
            self.computed = number
        self.optimizer.step()

    @property
    def version(self) -> int:
        return self.optimizer.version

    def finish(self, strict: bool) -> None:
        self.optimizer.finish(strict=strict)
        if strict:
            hvd.check_replicas(self.net)

    def consensus(self) -> None:
        covey.consensus(self.net)

    def save(self, path: str) -> None:
        covey.save(path, self.net, self.optimizer)

    def load(self, path: str) -> None:
        covey.load(path, self.net, self.optimizer)

    def parameters(self) -> List[Any]:
        return [it.detach().numpy() for it in self.net.parameters()]


def run(script: Script, folder: str) -> List[End]:
    return run_script(TorchTraining(script.method), script, folder)


class ScriptsTest(unittest.TestCase):
    def test_versions_that_begin_within_a_finish(self) -> None:
        """Rank 1 is late: it makes versions of gradients while rank 0 waits in a finish() that has
        begun in the part before."""
        for method in ("diloco:H=2,admit=all,max_wait=300ms,then=allreduce@8:max_wait=300ms",
                       "local:H=2,max_wait=300ms,then=eager@8:max_wait=300ms"):
            lines = [("steps", 18), ("finish", 0)]
            check(self, run, 0, Script(2, method, lines, {0: {}, 1: {5: 0.8}}))

    def test_all_ranks_end_alike(self) -> None:
        for seed in (*range(4), *also(*range(4, 100))):
            check(self, run, seed, draw(seed))

    def test_finishes_in_a_row_end_alike(self) -> None:
        for seed in (*range(4), *also(*range(4, 100))):
            check(self, run, seed, draw_finishes(seed))

    def test_what_was_saved_is_there_again(self) -> None:
        for seed in (*range(4), *also(*range(4, 100))):
            check(self, run, seed, draw_saves(seed))


if __name__ == "__main__":
    unittest.main()
