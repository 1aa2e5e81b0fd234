"""max_wait of the methods that wait for all: a rank that is stopped or killed holds up nobody for
longer, is named and counted, and comes back until it is waited for again; every gradient counts
once, and in the end replicas are equal.

Method: whole numbers and hashes. Versions are counted, not seconds; when a rank is stopped is
drawn, from a seed that is printed.
"""

from __future__ import annotations

import random
import time
import unittest
from typing import Dict, List, NamedTuple

import torch
import trainings
from nets import batch_of, loss_of, make_net
from ranks import HOSTS, SEED, ranks_may_die, with_majority
from watched import Report, Watched, finish
from whole_numbers import Trainer, digest, sum_of

import covey
import covey.torch as hvd

ALLREDUCE = "allreduce:max_wait=300ms"
LOCAL = "local:local_steps=4,max_wait=300ms"
DILOCO = "diloco:local_steps=4,outer_lr=1,outer_momentum=0,max_wait=300ms"
# Stands for computing: else who has a core for a moment has done hundreds of steps in it, and one
# that is not waited for is at none of them.
STEP_S = 0.002


def setUpModule() -> None:
    print(f"seed {SEED}")


# ---- On the ranks ------------------------------------------------------------------------------


class End(NamedTuple):
    """Of a rank that has trained until there was a file `end`; ``overdue`` by rank: how often."""

    model: str
    version: int
    steps: int
    overdue: List[int]
    error: str
    seen: Dict[int, str] = {}
    numbers: List[float] = []


def count_until(folder: str, method: str) -> End:
    """Gradients of whole numbers."""
    trainer = Trainer(method)
    optimizer, report = trainer.optimizer, Report(folder, hvd.rank())
    while report.goes_on:
        trainer.step()
        report.write(optimizer.version, trainings.missing(optimizer))
    error = finish(optimizer)
    overdue = trainings.overdue(optimizer)
    assert covey.stats()["training"]["overdue_of_rank"] == dict(enumerate(overdue))
    model = digest([trainer.parameter])
    return End(model, optimizer.version, trainer.steps, overdue, error, trainer.seen,
               trainer.parameter.tolist())


def average_until(folder: str, method: str) -> End:
    net = make_net()
    sgd = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    optimizer = hvd.DistributedOptimizer(sgd, model=net, method=method)
    report = Report(folder, hvd.rank())
    steps = 0
    while report.goes_on:
        optimizer.zero_grad()
        loss_of(net, batch_of(steps, hvd.rank())).backward()
        time.sleep(STEP_S)
        optimizer.step()
        steps += 1
        report.write(optimizer.version, trainings.missing(optimizer))
    error = finish(optimizer)
    overdue = trainings.overdue(optimizer)
    assert covey.stats()["training"]["overdue_of_rank"] == dict(enumerate(overdue))
    assert all(bool(p.isfinite().all()) for p in net.parameters())
    return End(digest(net.parameters()), optimizer.version, steps, overdue, error)


# ---- Here --------------------------------------------------------------------------------------


class MaxWaitFaultsTest(unittest.TestCase):
    def check_stopped(self, job: Watched, stopped: int, rng: random.Random) -> List[End]:
        """It is waited for once, comes back until it is waited for again, and that twice."""
        other = (stopped + 1) % job.pool.size
        job.wait_for_all(5)
        for _ in range(2):
            with job.stopped(stopped, rng) as behind:
                job.others_go_on(stopped, 200)
                self.assertLessEqual(job.version(stopped), behind)
            job.wait_for_version(stopped, behind + 190)
            job.wait_until_none_is_overdue(other)
        results = job.end()
        self.assertEqual([end.error for end in results], [""] * job.pool.size)
        self.assertEqual(len({(end.model, end.version) for end in results}), 1, f"seed {SEED}")
        self.assertGreaterEqual(results[other].overdue[stopped], 2)
        self.assertIn(f"rank {stopped} was missing at version", job.pool.stderr(other))
        self.assertIn("when max_wait was over", job.pool.stderr(other))
        return results

    def test_allreduce_a_stopped_rank_is_waited_for_once(self) -> None:
        """And comes back, beyond the log from a snapshot; what it has published counts once."""
        for size, stopped in with_majority((2, 0), (4, 1)):
            rng = random.Random(SEED + size)
            with self.subTest(size=size), Watched(size, __file__, count_until, ALLREDUCE) as job:
                results = self.check_stopped(job, stopped, rng)
                self.assertEqual(results[0].numbers, sum_of([end.steps for end in results]))
                for end in results[1:]:
                    for version in end.seen.keys() & results[0].seen.keys():
                        self.assertEqual(end.seen[version], results[0].seen[version], version)

    def test_local_a_stopped_rank_is_waited_for_once(self) -> None:
        """And takes up the mean when it comes back."""
        for size, stopped, method in ((2, 1, LOCAL), (4, 2, LOCAL), (2, 1, DILOCO)):
            rng = random.Random(SEED + size)
            with self.subTest(size=size, method=method), Watched(
                size, __file__, average_until, method
            ) as job:
                results = self.check_stopped(job, stopped, rng)
                # It has not done again what the others have done meanwhile.
                others = [end.steps for rank, end in enumerate(results) if rank != stopped]
                self.assertLess(results[stopped].steps, max(others))

    @ranks_may_die
    def test_a_killed_rank_holds_up_nobody(self) -> None:
        # Between hosts local averages deltas, in whose finish() the dead are not awaited.
        for function, method, said in (
            (count_until, ALLREDUCE, ""), (average_until, LOCAL, "rank {}" if HOSTS == 1 else "")
        ):
            for size, killed in ((2, 1), (4, 0)):
                rng = random.Random(SEED - size)
                with self.subTest(method=method, size=size), Watched(
                    size, __file__, function, method
                ) as job:
                    job.wait_for_all(5)
                    job.kill(killed, rng)
                    job.others_go_on(killed)
                    results = [end for end in job.end(may_end=True) if end is not None]
                    self.assertEqual(len(results), size - 1)
                    self.assertEqual(len({end.model for end in results}), 1, f"seed {SEED}")
                    for end in results:
                        self.assertIn(said.format(killed), end.error)
