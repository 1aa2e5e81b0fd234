"""SwarmSGD: whatever the numbers of local steps, each counts once, finish() leaves the exact mean,
and ranks that are stopped or killed hold up nobody.

Method: gradients that are whole numbers, so that the mean of all is known; versions are counted,
not seconds; when a rank is stopped is drawn, from a seed that is printed.
"""

from __future__ import annotations

import random
import unittest
from typing import List, Tuple

import torch
from pairs import learn, mean_of, train_until
from ranks import SEED, SharedPool, ranks_may_die
from watched import Watched
from whole_numbers import WIDTH, gradient_of

import covey
import covey.torch as hvd

COPIES = "swarm:H=2,steps=geometric,exchange=nonblocking"
pool = SharedPool(__file__)


def setUpModule() -> None:
    print(f"seed {SEED}")


def tearDownModule() -> None:
    pool.close()


# ---- On the ranks ------------------------------------------------------------------------------


def momenta(method: str) -> Tuple[List[float], List[float]]:
    """This rank's momentum after finish(), and what its own gradients alone make of it."""
    parameter = torch.nn.Parameter(torch.zeros(WIDTH, dtype=torch.float64))
    sgd = torch.optim.SGD([parameter], lr=1.0, momentum=0.5)
    optimizer = hvd.DistributedOptimizer(sgd, method=method)
    expected = torch.zeros(WIDTH, dtype=torch.float64)
    for step in range(1, 20):
        optimizer.zero_grad()
        (parameter * gradient_of(hvd.rank(), step)).sum().backward()
        optimizer.step()
        expected = 0.5 * expected + gradient_of(hvd.rank(), step)
    optimizer.finish()
    return optimizer.state[parameter]["momentum_buffer"].tolist(), expected.tolist()


def rates() -> List[float]:
    return [hvd.lr_scale("adpsgd"), hvd.lr_scale("swarm")]


def refusal(method: str) -> str:
    try:
        learn(method, [1] * hvd.size())
    except covey.InvalidArgument as error:
        return str(error)
    return "nothing"


# ---- The tests ---------------------------------------------------------------------------------


class SwarmTest(unittest.TestCase):
    def test_every_local_step_counts_once(self) -> None:
        for size in (2, 4, 8, 3):  # The tests below go on with three.
            for method in ("swarm", "swarm:H=50", COPIES):
                rng = random.Random(SEED + size)
                steps = [rng.randrange(20, 40) for _ in range(size)]
                with self.subTest(size=size, method=method):
                    results = pool(size).call(learn, method, steps)
                    self.assertEqual(len({result[0] for result in results}), 1)
                    for got, wanted in zip(results[0][1], mean_of(steps)):
                        self.assertAlmostEqual(got, wanted, delta=1e-6)
                    # Fewer than 50 steps are handed in by finish() alone.
                    met = sum(met for _, _, met in results)
                    self.assertEqual(met > 0, method != "swarm:H=50")

    def test_momentum_is_each_ranks_own(self) -> None:
        for method in ("swarm", COPIES):
            for got, wanted in pool(3).call(momenta, method):
                self.assertEqual(got, wanted)

    def test_its_learning_rate_is_that_of_one_rank(self) -> None:
        self.assertEqual(pool(3).call(rates), [[3.0, 1.0]] * 3)

    @ranks_may_die
    def test_who_is_stopped_or_killed_holds_up_nobody(self) -> None:
        for size, method in ((2, "swarm"), (3, "swarm:H=2,codec=lattice@8"), (4, "swarm:H=2"),
                             (8, COPIES)):
            rng = random.Random(SEED + size)
            stopped, killed = rng.sample(range(size), 2)
            with self.subTest(size=size, method=method), \
                    Watched(size, __file__, train_until, method) as job:
                job.wait_for_all(3)
                for _ in range(2):
                    with job.stopped(stopped, rng) as behind:
                        job.others_go_on(stopped, 20)
                    job.wait_for_version(stopped, behind + 5)
                job.kill(killed, rng)
                job.others_go_on(killed, 20)
                results = [result for result in job.end(may_end=True) if result is not None]
                self.assertEqual(len(results), size - 1)
                self.assertEqual(len({model for model, _, _ in results}), 1, f"seed {SEED}")

    def test_what_is_wrong_is_refused(self) -> None:
        for method, why in (
            ("swarm:topology=bipartite", "needs an even number"),
            ("swarm:steps=any", "is not fixed or geometric"),
            ("swarm:exchange=never", "is not blocking or nonblocking"),
            ("swarm:local_steps=0", "is not a number of steps from 1"),
            ("swarm:codec=topk", "a model is no sparse thing"),
            ("swarm:codec=lattice@8", "for float32 on the CPU, and there are parameters of "
                                      "torch.float64 on cpu only"),
        ):
            with self.subTest(method):
                for message in pool(3).call(refusal, method):
                    self.assertIn(why, message)


if __name__ == "__main__":
    unittest.main()
