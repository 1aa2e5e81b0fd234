"""Models averaged in pairs (adpsgd): every update counts once, finish() leaves the exact mean, and
a rank that is stopped or killed holds up nobody.

Method: gradients that are whole numbers, so that the mean of all is known; versions are counted,
not seconds; when a rank is stopped is drawn, from a seed that is printed.
"""

from __future__ import annotations

import random
import signal
import time
import unittest

import torch
from pairs import learn, mean_of, train_until
from ranks import SEED, SharedPool, ranks_may_die
from watched import Watched

import covey
import covey.torch as hvd

pool = SharedPool(__file__)


def setUpModule() -> None:
    print(f"seed {SEED}")


def tearDownModule() -> None:
    pool.close()


# ---- On the ranks ------------------------------------------------------------------------------


def of_many_types() -> int:
    """Parameters of several dtypes, one used twice, one moved elsewhere by the user."""
    net = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 3).double())
    net[0].weight.data = torch.eye(3) * (1 + hvd.rank())
    optimizer = hvd.DistributedOptimizer(
        torch.optim.Adam(net.parameters(), lr=0.1), model=net, method="adpsgd"
    )
    for step in range(4):
        optimizer.zero_grad()
        net[1](net[0](torch.ones(2, 3)).double()).square().sum().backward()
        if step == 2:
            net[0].weight.data = net[0].weight.data.clone()
        optimizer.step()
    optimizer.finish()
    hvd.check_replicas(net)
    return optimizer.version


def refusal(method: str) -> str:
    try:
        learn(method, [1] * hvd.size())
    except covey.InvalidArgument as error:
        return str(error)
    return "nothing"


# ---- The tests ---------------------------------------------------------------------------------


class PairsTest(unittest.TestCase):
    def test_every_update_counts_once(self) -> None:
        for size in (2, 3, 4, 8):
            for method in ("adpsgd", "adpsgd:topology=matching,seed=3"):
                rng = random.Random(SEED + size)
                steps = [rng.randrange(20, 40) for _ in range(size)]
                with self.subTest(size=size, method=method):
                    results = pool(size).call(learn, method, steps)
                    self.assertEqual(len({result[0] for result in results}), 1)
                    for got, wanted in zip(results[0][1], mean_of(steps)):
                        self.assertAlmostEqual(got, wanted, delta=1e-6)
                    self.assertGreater(sum(met for _, _, met in results), 0)

    def test_parameters_of_many_types(self) -> None:
        self.assertEqual(pool(2).call(of_many_types), [4, 4])

    def test_a_stopped_rank_holds_up_nobody(self) -> None:
        for size, stopped in ((2, 0), (4, 1)):
            rng = random.Random(SEED + size)
            with self.subTest(size=size), Watched(size, __file__, train_until, "adpsgd") as job:
                for rank in range(size):
                    job.wait_for_version(rank, 3)
                for _ in range(3):
                    time.sleep(rng.uniform(0, 0.02))  # Anywhere in a step.
                    job.pool.processes[stopped].send_signal(signal.SIGSTOP)
                    job.wait_until_stopped(stopped)
                    behind = job.version(stopped)
                    job.others_go_on(stopped)
                    self.assertLessEqual(job.version(stopped), behind)
                    job.pool.processes[stopped].send_signal(signal.SIGCONT)
                    job.wait_for_version(stopped, behind + 5)
                results = job.end()
                self.assertEqual(len({model for model, _, _ in results}), 1, f"seed {SEED}")

    @ranks_may_die
    def test_a_killed_rank_holds_up_nobody(self) -> None:
        for size, killed in ((2, 1), (3, 0)):
            rng = random.Random(SEED - size)
            with self.subTest(size=size), Watched(size, __file__, train_until, "adpsgd") as job:
                for rank in range(size):
                    job.wait_for_version(rank, 3)
                time.sleep(rng.uniform(0, 0.05))  # Anywhere in a step.
                job.pool.processes[killed].kill()
                job.pool.processes[killed].wait()
                job.others_go_on(killed)
                results = [result for result in job.end(may_end=True) if result is not None]
                self.assertEqual(len(results), size - 1)
                self.assertEqual(len({model for model, _, _ in results}), 1, f"seed {SEED}")

    def test_bad_input(self) -> None:
        for method, why in (
            ("adpsgd:topology=ring", "needs an even number"),
            ("adpsgd:topology=rings", "is not auto, bipartite, ring"),
            ("adpsgd:H=3", "has no parameter"),
        ):
            with self.subTest(method):
                for message in pool(3).call(refusal, method):
                    self.assertIn(why, message)


if __name__ == "__main__":
    unittest.main()
