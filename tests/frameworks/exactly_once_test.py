"""One rank is ten times slower, and every gradient still counts exactly once, under Adam and a
schedule of warm-up and cosine; replicas are bitwise equal at equal version.

Method: eight ranks, 200 steps, gradients of whole numbers, whose sum over all versions that are
applied is exact. Slow is counted in versions, not in seconds: the slow rank begins its next step
when ten more have been made. Hashes of the parameters at every version.
"""

from __future__ import annotations

import os
import unittest
from typing import Dict, List, Tuple

import torch
import trainings
from ranks import SEED, SharedPool
from whole_numbers import WIDTH, gradient_of, watch

import covey.torch as hvd

STEPS = 200
SLOW = 5
TIMES = 10

pool = SharedPool(__file__)


def setUpModule() -> None:
    print(f"seed {SEED}")


def tearDownModule() -> None:
    pool.close()


# ---- On the ranks ------------------------------------------------------------------------------


def schedule_of(optimizer: torch.optim.Optimizer) -> torch.optim.lr_scheduler.LRScheduler:
    warm_up = torch.optim.lr_scheduler.LinearLR(optimizer, 0.1, total_iters=20)
    cosine = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=STEPS - 20)
    return torch.optim.lr_scheduler.SequentialLR(optimizer, [warm_up, cosine], [20])


def train(method: str) -> Tuple[Dict[int, str], List[float], int, int]:
    """Hashes by version, the sum of all that was applied, the version, late steps of the slow."""
    parameter = torch.nn.Parameter(torch.zeros(WIDTH, dtype=torch.float64))
    adam = torch.optim.Adam([parameter], lr=0.01)
    optimizer = hvd.DistributedOptimizer(adam, op=hvd.Sum, method=method)
    schedule = schedule_of(optimizer)
    seen = watch(optimizer, [parameter])
    applied = torch.zeros(WIDTH, dtype=torch.float64)
    optimizer.before_update(lambda: applied.add_(parameter.grad))
    is_slow, late = hvd.rank() == SLOW, 0
    for step in range(1, STEPS + 1):
        until = min(TIMES * step, STEPS) if is_slow else 0
        while trainings.made(optimizer) < until:
            os.sched_yield()
        late += trainings.made(optimizer) >= step
        optimizer.zero_grad()
        (parameter * gradient_of(hvd.rank(), step)).sum().backward()
        optimizer.step()
        schedule.step()
    optimizer.finish()
    return seen, applied.tolist(), optimizer.version, late


# ---- Here --------------------------------------------------------------------------------------


class ExactlyOnceTest(unittest.TestCase):
    def test_one_rank_ten_times_slower(self) -> None:
        everything = sum(
            gradient_of(rank, step) for rank in range(8) for step in range(1, STEPS + 1)
        )
        for method in ("eager:admit=0.5,log=256,max_staleness=1000",
                       "eager:admit=solo,progress=skip,log=1000,L=1000,clip_norm=50"):
            with self.subTest(method=method):
                results = pool(8).call(train, method, timeout=120)
                for rank, (seen, applied, version, late) in enumerate(results):
                    if "clip_norm" not in method:  # Else what is applied is scaled.
                        self.assertEqual(applied, everything.tolist(), f"rank {rank}")
                    self.assertEqual(seen, results[0][0], f"rank {rank}, seed {SEED}")
                    self.assertGreaterEqual(version, STEPS)
                    self.assertEqual(version, results[0][2])
                    if rank == SLOW:
                        self.assertGreater(late, STEPS // 2)  # Else this shows nothing.
