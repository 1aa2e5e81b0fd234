"""Warm-ups of methods that have a max_wait: a rank that is stopped or killed in one holds up nobody
for longer, comes back, and every gradient counts once. (At their end: warmup_end_test.py.)

Method: whole numbers and hashes. Versions are counted, not seconds; when a rank is stopped is
drawn, from a seed that is printed.
"""

from __future__ import annotations

import random
import unittest

from ranks import SEED, ranks_may_die, with_majority
from warmups import WARMUP, WarmupTest, adam_until, count_until
from watched import Watched
from whole_numbers import sum_of

import covey.torch as hvd

LONG = "max_wait=300ms,warmup_steps=1000000"


def setUpModule() -> None:
    print(f"seed {SEED}")


class WarmupFaultsTest(WarmupTest):
    def test_a_stopped_rank_is_waited_for_once(self) -> None:
        """And comes back, and every gradient counts once, whatever comes after the warm-up."""
        for size, stopped, method in with_majority(
            (2, 0, "eager:" + LONG), (4, 2, "eager:" + LONG),
            (2, 1, "wagma:" + LONG), (4, 3, "wagma:" + LONG),
            (2, 0, "allreduce:" + LONG), (4, 0, "local:" + LONG), (4, 1, "adpsgd:" + LONG),
        ):
            rng = random.Random(SEED + size)
            other = (stopped + 1) % size
            with self.subTest(size=size, method=method), Watched(
                size, __file__, count_until, method, hvd.Average
            ) as job:
                job.wait_for_all(5)
                with job.stopped(stopped, rng) as behind:
                    job.others_go_on(stopped, 100)
                    self.assertLessEqual(job.version(stopped), behind)
                job.wait_for_version(stopped, behind + 90)
                job.wait_until_none_is_overdue(other)
                results = job.end()
                self.check_alike(results)
                self.assertEqual(len({end.version for end in results}), 1, f"seed {SEED}")
                self.assertGreaterEqual(results[other].overdue[stopped], 1)
                self.assertEqual([size * it for it in results[0].numbers],
                                 sum_of([end.steps for end in results]))
                said = job.pool.stderr(other)
                self.assertIn(f"rank {stopped} was missing at version", said)

    @ranks_may_die
    def test_a_killed_rank_holds_up_nobody(self) -> None:
        for size, killed, method in with_majority(
            (2, 1, "eager:" + LONG), (4, 0, "eager:" + LONG), (2, 0, "wagma:" + LONG),
            (4, 1, "wagma:" + LONG),
            (4, 2, f"wagma:max_wait=300ms,warmup_steps={WARMUP}"),
            (2, 0, f"local:local_steps=3,max_wait=300ms,warmup_steps={WARMUP}"),
        ):
            rng = random.Random(SEED - size)
            with self.subTest(size=size, method=method), Watched(
                size, __file__, adam_until, method, -1, 0
            ) as job:
                job.wait_for_all(5)
                job.kill(killed, rng)
                job.others_go_on(killed, 60)
                results = [end for end in job.end(may_end=True) if end is not None]
                self.assertEqual(len(results), size - 1)
                self.assertEqual(len({end.model for end in results}), 1, f"seed {SEED}")


if __name__ == "__main__":
    unittest.main()
