"""Models averaged by groups: a rank that is stopped or killed holds up nobody for longer than
max_wait, merges when it returns, and in the end those that live have one model.

Versions are counted, not seconds; when a rank is stopped is drawn, from a seed that is printed.
"""

from __future__ import annotations

import random
import unittest
from typing import Tuple

import torch
import trainings
from nets import batch_of, loss_of, make_net
from ranks import SEED, ranks_may_die, with_majority
from watched import Report, Watched, finish
from whole_numbers import digest

import covey.torch as hvd

METHOD = "wagma:S=2,tau=5,max_wait=200ms"


def setUpModule() -> None:
    print(f"seed {SEED}")


def train_until(folder: str) -> Tuple[str, str, int, int]:
    """The model's hash at the end, an error, steps, and how many of them were late."""
    net = make_net()
    sgd = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    optimizer = hvd.DistributedOptimizer(sgd, model=net, method=METHOD)
    report = Report(folder, hvd.rank())
    steps = 0
    while report.goes_on:
        optimizer.zero_grad()
        loss_of(net, batch_of(steps, hvd.rank())).backward()
        optimizer.step()
        steps += 1
        report.write(optimizer.version)
    error = finish(optimizer)
    return digest(net.parameters()), error, steps, trainings.late(optimizer, hvd.rank())


class WagmaFaultsTest(unittest.TestCase):
    def test_a_stopped_rank_holds_up_nobody_and_merges_when_it_returns(self) -> None:
        for size, stopped in with_majority((2, 0), (3, 2), (4, 1)):
            rng = random.Random(SEED + size)
            with self.subTest(size=size), Watched(size, __file__, train_until) as job:
                job.wait_for_all(3)
                for _ in range(3):
                    with job.stopped(stopped, rng) as behind:
                        job.others_go_on(stopped)
                        self.assertLessEqual(job.version(stopped), behind)
                    job.wait_for_version(stopped, behind + 45)
                results = job.end()
                self.assertEqual(len({model for model, _, _, _ in results}), 1, f"seed {SEED}")
                self.assertGreater(results[stopped][3], 0)
                # It has not done again what the others have done meanwhile.
                others = [steps for rank, (_, _, steps, _) in enumerate(results) if rank != stopped]
                self.assertLess(results[stopped][2], max(others))
                self.assertIn(f"rank {stopped} was missing", job.pool.stderr((stopped + 1) % size))

    @ranks_may_die
    def test_a_killed_rank_holds_up_nobody(self) -> None:
        for size, killed in ((2, 1), (3, 0)):
            rng = random.Random(SEED - size)
            with self.subTest(size=size), Watched(size, __file__, train_until) as job:
                job.wait_for_all(3)
                job.kill(killed, rng)
                job.others_go_on(killed)
                results = [result for result in job.end(may_end=True) if result is not None]
                self.assertEqual(len(results), size - 1)
                self.assertEqual(len({model for model, _, _, _ in results}), 1, f"seed {SEED}")
                for _, error, _, _ in results:
                    self.assertIn(f"rank {killed}", error)
