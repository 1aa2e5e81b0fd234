"""What only one rank knows, which is far slower than the others and misses all their averages, is
learnt about as well as by eager, where every gradient counts.

Method: rank r alone pulls element r to 1. Rank 2 does a step when the others have done 30 more;
versions are counted, not seconds.
"""

from __future__ import annotations

import pathlib
import time
import unittest

import torch
from ranks import SEED, on_one_host
from watched import Report, Watched

import covey.torch as hvd

STEPS = 40  # Of the slow rank; alone with a third of its rate: 0.93 ** 40 = 0.06 is left.
OTHERS = 30  # Of the others meanwhile.
METHODS = (
    "eager:admit=solo,max_wait=50ms,max_staleness=1000000",
    "local:max_wait=50ms",
    "local:H=4,max_wait=50ms",
    "wagma:S=2,tau=5,max_wait=50ms",
)


def setUpModule() -> None:
    print(f"seed {SEED}")


def version_of(file: pathlib.Path) -> int:
    words = file.read_bytes().split() if file.exists() else []
    return int(words[0]) if words else 0


def learn(folder: str, method: str) -> float:
    """How far the slow rank's element is from 1 in the end."""
    rank = hvd.rank()
    parameter = torch.nn.Parameter(torch.zeros(3))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([parameter], lr=0.2), method=method)
    report, steps = Report(folder, rank), 0
    fast = pathlib.Path(folder) / "0"
    while report.goes_on:
        while rank == 2 and version_of(fast) < OTHERS * steps:
            time.sleep(0.001)  # A poll.
        optimizer.zero_grad()
        (0.5 * (parameter[rank] - 1).square()).backward()
        optimizer.step()
        steps += 1
        report.write(steps)
        if rank == 2 and steps == STEPS:
            (pathlib.Path(folder) / "end").touch()
    optimizer.finish(strict=True)
    hvd.check_replicas({"parameter": parameter})
    return abs(float(parameter.detach()[2]) - 1)


class LateProgressTest(unittest.TestCase):
    @on_one_host("the bound of the error is one for ranks that share memory")
    def test_it_counts_as_by_eager(self) -> None:
        for method in METHODS:
            with self.subTest(method), Watched(3, __file__, learn, method) as job:
                errors = job.pool.collect()
                print(method, errors[0])
                self.assertLess(errors[0], 0.2)


if __name__ == "__main__":
    unittest.main()
