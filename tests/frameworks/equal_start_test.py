"""Replicas that differ before the first update are told, by every method, and the call that is
missing is named."""

from __future__ import annotations

import contextlib
import io
import unittest
from typing import List

import torch
from ranks import SharedPool

import covey.torch as hvd

pool = SharedPool(__file__)
METHODS = ("allreduce", "eager", "local:local_steps=2", "wagma", "adpsgd", "swarm", "dpsgd")


def tearDownModule() -> None:
    pool.close()


# ---- On the ranks ------------------------------------------------------------------------------


def train(method: str, seed: int, is_told: bool) -> str:
    """What a rank says while it trains from a model drawn from ``seed`` plus its rank."""
    torch.manual_seed(seed + hvd.rank())
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Linear(3, 2))
    sgd = torch.optim.SGD(model.parameters(), lr=0.01)
    optimizer = hvd.DistributedOptimizer(sgd, model=model, method=method)
    if is_told:
        hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    text = io.StringIO()
    with contextlib.redirect_stderr(text):
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.ones(5, 4)).sum().backward()
            optimizer.step()
        hvd.barrier()  # The digests of all have come.
        optimizer.finish()
        for _ in range(2):
            model(torch.ones(5, 4)).sum().backward()
            optimizer.step()
        optimizer.finish()
    return text.getvalue()


class EqualStartTest(unittest.TestCase):
    def told(self, method: str, is_told: bool) -> List[str]:
        said = pool(3).call(train, method, 7, is_told)
        return [text for text in said if "before the first update" in text]

    def test_a_forgotten_broadcast_is_told_once(self) -> None:
        for method in METHODS:
            with self.subTest(method=method):
                (text,) = self.told(method, False)
                self.assertEqual(text.count("before the first update"), 1)
                self.assertIn("covey rank 0 warning: before the first update ranks 1, 2 had", text)
                self.assertIn("broadcast_parameters(model.state_dict(), root_rank=0)", text)

    def test_nothing_is_said_of_equal_replicas(self) -> None:
        for method in METHODS:
            with self.subTest(method=method):
                self.assertEqual(self.told(method, True), [])


if __name__ == "__main__":
    unittest.main()
