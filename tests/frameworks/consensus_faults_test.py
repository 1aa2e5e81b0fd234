"""Looking at the model that all ranks have on average while they train, are stopped or dead: each
is read whole, or named with the reason, and nothing hangs.

When a rank is stopped is drawn, from a seed that is printed.
"""

from __future__ import annotations

import random
import time
import unittest
from typing import Dict, Tuple

from even_net import make, step
from ranks import SEED, ranks_may_die
from watched import LIMIT_S, Report, Watched
from whole_numbers import digest

import covey
import covey.torch as hvd

# Ranks that do unequal numbers of steps.
METHODS = ("local:H=1000000", "eager:max_wait=50ms", "wagma:S=2,tau=1000000", "adpsgd")
WIDE = 50_000  # Numbers, so that copying them takes a while.


def setUpModule() -> None:
    print(f"seed {SEED}")


def train_until(folder: str, method: str) -> Tuple[int, str, Dict[int, str]]:
    """Rank 0 looks after each step: how often it has seen another rank; what was wrong; who was
    not seen at last, and why."""
    net, optimizer = make(method, WIDE)
    report = Report(folder, hvd.rank())
    seen, wrong, missing, done = 0, "", {}, 0
    while report.goes_on:
        done += 1
        step(net, optimizer, 1.0 + hvd.rank())
        report.write(done)
        if hvd.rank() > 0:
            continue
        own = digest([net.wide])
        with covey.consensus(net, timeout=0.02) as mean:
            # A mean of numbers of one moment each: all elements are alike, but for rounding.
            least, most = float(net.wide.min()), float(net.wide.max())
            if most - least > 1e-9 * abs(most):
                wrong = f"half written: {least} to {most}"
            seen += len(mean.ages) - 1
            missing.update(mean.missing)
        if digest([net.wide]) != own:
            wrong = "own weights did not return"
    deadline = time.monotonic() + LIMIT_S  # News of a death may take a while.
    while hvd.rank() == 0 and "died" not in missing.get(2, "") and time.monotonic() < deadline:
        with covey.consensus(net, timeout=0.02) as mean:
            missing[2] = mean.missing.get(2, "")
    try:
        optimizer.finish()
    except covey.CoveyError:
        pass  # A rank was killed.
    return seen, wrong, missing


class ConsensusFaultsTest(unittest.TestCase):
    @ranks_may_die
    def test_others_that_train_are_stopped_and_die_are_read_whole_or_named(self) -> None:
        rng = random.Random(SEED)
        for method in METHODS:
            with self.subTest(method), Watched(3, __file__, train_until, method) as job:
                job.wait_for_all(3)
                for _ in range(2):
                    with job.stopped(1, rng):
                        job.wait_for_version(0, job.version(0) + 3)
                job.kill(2, rng)
                seen, wrong, missing = job.end(may_end=True)[0]
                self.assertEqual(wrong, "", f"seed {SEED}")
                self.assertGreater(seen, 0)
                self.assertIn("has died", missing.pop(2), f"seed {SEED}")
                # In the middle of a step, at its end, or before its first one; between hosts a
                # rank that is stopped.
                allowed = "being changed|closed its optimizer|no model yet|has not answered"
                for why in missing.values():
                    self.assertRegex(why, allowed)


if __name__ == "__main__":
    unittest.main()
