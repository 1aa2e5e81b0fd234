"""Who has fallen out of the log gets its snapshot wherever others wait meanwhile: in an operation
of the script's own, or in finish() of another optimizer.

Method: the late rank begins its first step when the others have done all of theirs.
"""

from __future__ import annotations

import unittest
from typing import Any, List, Tuple

import numpy
import torch
import trainings
from ranks import SEED, SharedPool

import covey
import covey.numpy
import covey.torch as hvd

pool = SharedPool(__file__)
LATE = 1
STEPS = 6
METHOD = "eager:admit=solo,grace=0,log=1,L=1000"
DELTAS = "diloco:H=1,admit=solo,grace=0,log=1,L=1000"


def setUpModule() -> None:
    print(f"seed {SEED}")


def tearDownModule() -> None:
    pool.close()


def make(method: str = METHOD) -> Tuple[torch.nn.Linear, Any]:
    net = torch.nn.Linear(3, 1)
    hvd.broadcast_parameters(net.state_dict(), root_rank=0)
    adam = torch.optim.Adam(net.parameters(), lr=0.01)
    return net, hvd.DistributedOptimizer(adam, model=net, method=method)


def step(net: torch.nn.Linear, optimizer: Any, number: int) -> None:
    while hvd.rank() == LATE and trainings.made(optimizer) < STEPS:
        pass
    optimizer.zero_grad()
    net(torch.full((2, 3), 1.0 + number + hvd.rank())).square().mean().backward()
    optimizer.step()


def recovered(before: int) -> int:
    return covey.stats()["round_snapshots"] - before


def elsewhere(method: str) -> List[int]:
    """All wait for all in an operation of the script's own, twice."""
    net, optimizer = make(method)
    found = []
    for epoch in range(2):
        before = covey.stats()["round_snapshots"]
        for number in range(STEPS):
            step(net, optimizer, number)
        total = hvd.allreduce(torch.tensor(1.0), op=hvd.Sum, name=f"metric{epoch}")
        assert float(total) == hvd.size()
        found.append(recovered(before))
        optimizer.finish()
        covey.check_replicas(net)
        if epoch == 0:
            net, optimizer = make(method)
    return found


def two() -> int:
    """finish() of the first waits for all before the late one has its snapshot of the second."""
    first, second = make(), make()
    before = covey.stats()["round_snapshots"]
    for number in range(STEPS):
        if hvd.rank() != LATE:
            step(*first, number)
            step(*second, number)
    hvd.barrier()  # From here on the others do no step.
    if hvd.rank() == LATE:
        for number in range(STEPS):
            step(*second, number)
            step(*first, number)
    for net, optimizer in (first, second):
        optimizer.finish()
        covey.check_replicas(net)
    return recovered(before)


def by_numpy(method: str) -> int:
    def move(parameters: List[Any], gradients: List[Any]) -> None:
        parameters[0] -= gradients[0]

    before = covey.stats()["round_snapshots"]
    with covey.numpy.Trainer([numpy.zeros(3)], move, method=method) as trainer:
        if hvd.rank() == LATE:
            covey.barrier()
        for _ in range(STEPS):
            trainer.step([numpy.ones(3)])
        if hvd.rank() != LATE:
            covey.barrier()
        covey.barrier()
        trainer.finish()
    return recovered(before)


class HelpingTest(unittest.TestCase):
    def test_others_wait_in_an_operation_under_numpy(self) -> None:
        for method in (METHOD, DELTAS):
            with self.subTest(method):
                results = pool(3).call(by_numpy, method, timeout=60)
                self.assertGreaterEqual(results[LATE], 1, results)

    def test_others_wait_in_an_operation(self) -> None:
        for method in (METHOD, DELTAS):
            with self.subTest(method):
                results = pool(3).call(elsewhere, method, timeout=60)
                self.assertTrue(all(count >= 1 for count in results[LATE]), results)

    def test_others_wait_in_finish_of_another_optimizer(self) -> None:
        results = pool(3).call(two, timeout=50)  # Less than finish() waits at least.
        self.assertGreaterEqual(results[LATE], 1, results)


if __name__ == "__main__":
    unittest.main()
