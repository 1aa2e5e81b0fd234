"""Goal: ranks may have unequal numbers of batches: who has no more joins, the others go on.
Method: ranks of known data with as many steps as their number; each expects what the ranks that
still had data give."""

from __future__ import annotations

import unittest
from typing import Any, List

import torch
from ranks import SharedPool

import covey
import covey.torch as hvd

pool = SharedPool(__file__)


def tearDownModule() -> None:
    pool.close()


def steps_of(rank: int) -> int:
    return 2 + 3 * rank


def uneven(epochs: int) -> List[int]:
    """Sums of what those ranks give that still have data; the rank that joined last, per epoch."""
    last = []
    for _ in range(epochs):
        for step in range(steps_of(hvd.rank())):
            going_on = [r for r in range(hvd.size()) if steps_of(r) > step]
            data = torch.full((100,), 2.0 ** hvd.rank())
            total = hvd.allreduce(data, op=hvd.Sum, name="data")
            assert total[7] == sum(2.0**r for r in going_on), (step, total)
            loss = hvd.allreduce(data[0])
            torch.testing.assert_close(loss, total[0] / hvd.size(), msg=f"step {step}")
        last.append(hvd.join())
    return last


def refused_while_one_has_joined() -> Any:
    if hvd.rank() == 0:
        return hvd.join()
    text = ""
    try:
        hvd.broadcast(torch.ones(3), 1, name="refused")
    except covey.CoveyError as error:
        text = str(error)
    hvd.join()
    return text


def train() -> List[float]:
    torch.manual_seed(1)
    net = torch.nn.Linear(4, 1)
    weight, bias = net.weight.detach().clone(), net.bias.detach().clone()
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(net.parameters(), lr=0.1), net.named_parameters()
    )
    for step in range(steps_of(hvd.rank())):
        optimizer.zero_grad()
        net(torch.full((2, 4), float(hvd.rank() + step))).sum().backward()
        optimizer.step()
    last = hvd.join()
    hvd.broadcast_parameters(net.state_dict(), root_rank=last)
    size = hvd.size()
    for step in range(steps_of(size - 1)):  # who has joined counts as one with gradient 0
        going_on = [r for r in range(size) if steps_of(r) > step]
        weight -= 0.1 * sum(2.0 * (r + step) for r in going_on) / size
        bias -= 0.1 * 2.0 * len(going_on) / size
    torch.testing.assert_close(net.weight.detach(), weight)
    torch.testing.assert_close(net.bias.detach(), bias)
    return [parameter.sum().item() for parameter in net.parameters()]


class JoinTest(unittest.TestCase):
    def test_the_others_go_on(self) -> None:
        for size in (2, 3):
            self.assertEqual(pool(size).call(uneven, 2), [[size - 1] * 2] * size)

    def test_what_a_joined_rank_cannot_do_fails_on_every_rank(self) -> None:
        seen = pool(3).call(refused_while_one_has_joined)
        self.assertEqual(seen[1], seen[2])
        self.assertRegex(seen[1], "rank 0")

    def test_training_with_unequal_numbers_of_batches(self) -> None:
        for size in (2, 3):
            weights = pool(size).call(train)
            self.assertEqual(weights, [weights[0]] * size)


if __name__ == "__main__":
    unittest.main()
