"""Replicas that differ before the first update are told, by every method, and the call that is
missing is named."""

from __future__ import annotations

import contextlib
import io
import random
import unittest
from typing import List

import torch
from ranks import SharedPool

import covey.torch as hvd
from covey.torch.equal_start import digest

pool = SharedPool(__file__)
METHODS = ("allreduce", "eager", "local:local_steps=2", "wagma", "adpsgd", "swarm", "dpsgd")


def tearDownModule() -> None:
    pool.close()


# ---- On the ranks ------------------------------------------------------------------------------


def train(method: str, what: str, steps: int, finishes: bool) -> str:
    """What a rank says that trains, and leaves, with ``what`` of its own."""
    torch.manual_seed(7 + hvd.rank())
    layers = (torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 2))
    model = torch.nn.Sequential(*layers)
    model[2].bias.requires_grad_(False)
    mine = {name: it.clone() for name, it in model.state_dict().items()}
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    with torch.no_grad():
        if what == "everything":
            model.load_state_dict(mine)
        elif what == "frozen parameters":
            model[2].bias.add_(hvd.rank())
        elif what == "buffers":
            model[1].running_mean.add_(hvd.rank())
        elif what == "order" and hvd.rank() > 0:
            model[0].weight.copy_(model[0].weight.flip(0))
    sgd = torch.optim.SGD([it for it in model.parameters() if it.requires_grad], lr=0.01)
    optimizer = hvd.DistributedOptimizer(sgd, model=model, method=method)
    if what == "broadcast later":
        model[1].running_mean.add_(hvd.rank())
        hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    text = io.StringIO()
    with contextlib.redirect_stderr(text):
        for _ in range(steps):
            optimizer.zero_grad()
            model(torch.randn(5, 4)).sum().backward()
            optimizer.step()
        if finishes:
            optimizer.finish()
        hvd.shutdown()
    hvd.init()
    return text.getvalue()


def number(values: List[float]) -> int:
    return int(digest([("", torch.tensor(values))]))


class EqualStartTest(unittest.TestCase):
    def told(self, size: int, *args: object) -> List[str]:
        said = pool(size).call(train, *args)
        return [text for text in said if "before the first update" in text]

    def test_a_forgotten_broadcast_is_told_once_of_the_shortest_training(self) -> None:
        for index, method in enumerate(METHODS):
            with self.subTest(method=method):
                (text,) = self.told(3, method, "everything", 1, index % 2 == 0)
                self.assertEqual(text.count("before the first update"), 1)
                self.assertIn("covey rank 0 warning: before the first update ranks 1, 2 had", text)
                self.assertIn("broadcast_parameters(model.state_dict(), root_rank=0)", text)

    def test_what_differs_is_named(self) -> None:
        for what in ("frozen parameters", "buffers"):
            with self.subTest(what):
                (text,) = self.told(2, "eager", what, 1, False)
                self.assertIn(f"rank 1 had other {what} than rank 0", text)
        (text,) = self.told(2, "allreduce", "order", 1, False)
        self.assertIn("rank 1 had other parameters than rank 0", text)

    def test_nothing_is_said_of_equal_replicas(self) -> None:
        for method in METHODS:
            with self.subTest(method=method):
                self.assertEqual(self.told(2, method, "nothing", 2, True), [])
        self.assertEqual(self.told(2, "eager", "broadcast later", 1, True), [])

    def test_a_digest_depends_on_the_place_of_each_number(self) -> None:
        rng = random.Random(3)
        values = [float(i) for i in range(3 * (1 << 14) + 5)]
        whole = number(values)
        self.assertEqual(whole, number(list(values)))
        for _ in range(30):
            i, j = rng.sample(range(len(values)), 2)
            other = list(values)
            other[i], other[j] = other[j], other[i]
            self.assertNotEqual(number(other), whole, (i, j))


if __name__ == "__main__":
    unittest.main()
