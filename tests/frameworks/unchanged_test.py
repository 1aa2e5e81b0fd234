"""A parameter whose shape or dtype changes under its optimizer is refused by name, by each kind of
method; after rebuild_buckets() training goes on where that can be."""

from __future__ import annotations

import unittest
from typing import List

import torch
from ranks import SharedPool

import covey.torch as hvd
from covey.errors import InvalidArgument

pool = SharedPool(__file__)


def tearDownModule() -> None:
    pool.close()


# One of each kind of exchange.
METHODS = ("allreduce", "local:local_steps=2", "dpsgd:topology=ring", "eager", "wagma",
           "diloco:local_steps=2", "adpsgd")


def _trained(method: str) -> tuple:
    first, second = (torch.nn.Parameter(torch.ones(size)) for size in (4, 3))
    sgd = torch.optim.SGD([first, second], lr=0.5)
    named = [("first", first), ("second", second)]
    optimizer = hvd.DistributedOptimizer(sgd, named_parameters=named, method=method)
    _step(optimizer, first, second)
    return optimizer, first, second


def _step(optimizer: torch.optim.Optimizer, *parameters: torch.Tensor) -> None:
    for parameter in parameters:
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()


def changed(method: str, kind: str) -> str:
    """The refusal of a step after a change; all ranks train on once it is taken back."""
    optimizer, first, second = _trained(method)
    before = second.data
    second.grad = None
    second.data = torch.zeros(1) if kind == "shape" else before.double()
    try:
        _step(optimizer, first, second)
        text = "no error"
    except InvalidArgument as error:
        text = str(error)
    second.grad = None
    second.data = before
    _step(optimizer, first, second)
    optimizer.finish(strict=True)
    return text


def rebuilt(method: str) -> List[float]:
    optimizer, first, second = _trained(method)
    second.grad = None
    second.data = torch.zeros(2, dtype=torch.float64)
    optimizer.rebuild_buckets()
    _step(optimizer, first, second)
    optimizer.finish(strict=True)
    return first.tolist() + second.tolist()


class UnchangedTest(unittest.TestCase):
    def test_a_changed_parameter_is_refused_by_name(self) -> None:
        for method in METHODS:
            for kind, now in (("shape", "float32 [1]"), ("dtype", "float64 [3]")):
                with self.subTest(method=method, kind=kind):
                    for text in pool(2).call(changed, method, kind):
                        self.assertIn(f"second is {now} on cpu, and was float32 [3]", text)
                        self.assertIn("on every rank", text)

    def test_after_rebuild_buckets_training_goes_on(self) -> None:
        for method in ("allreduce", "local:local_steps=2"):
            with self.subTest(method):
                for numbers in pool(2).call(rebuilt, method):
                    self.assertEqual(numbers, [0.0] * 4 + [-0.5] * 2)


if __name__ == "__main__":
    unittest.main()
