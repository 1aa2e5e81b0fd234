"""The end of a warm-up when a rank is missing there: nobody waits for it, it goes on from where the
others were, and replicas are equal at every version, also at the last of the warm-up.

Method: a rank stops itself at a step before the end, and the others are past it when it goes on.
Whole numbers and hashes; versions are counted, not seconds.
"""

from __future__ import annotations

import random
import unittest
from typing import List

import torch
from ranks import SEED, on_one_host, ranks_may_die, with_majority
from warmups import WARMUP, End, WarmupTest, adam_until, apart_until
from watched import Watched
from whole_numbers import gradient_of, sum_of


def setUpModule() -> None:
    print(f"seed {SEED}")


class WarmupEndTest(WarmupTest):
    def test_replicas_are_equal_at_the_end_of_the_warm_up(self) -> None:
        """Also where a rank comes later than the others have gone on: from the log, or beyond it
        from what another rank has left there. Adam, and a schedule of warm-up and cosine."""
        for size, stopped, method, stops_at in with_majority(
            (4, 1, "eager:admit=0.5", WARMUP - 5), (2, 0, "eager:admit=solo", WARMUP - 30),
            (4, 2, "wagma", WARMUP - 5), (4, 0, "wagma", WARMUP - 30), (2, 1, "wagma", WARMUP - 30),
            (4, 3, "local:local_steps=3", WARMUP - 5), (2, 0, "local:local_steps=3", WARMUP - 30),
            (4, 1, f"allreduce:max_wait=300ms,then=wagma@{WARMUP}", WARMUP - 30),
        ):
            words = ("," if ":" in method else ":") + "max_wait=300ms"
            words += "" if "then" in method else f",warmup_steps={WARMUP}"
            with self.subTest(method=method, size=size, stops_at=stops_at), Watched(
                size, __file__, adam_until, method + words, stopped, stops_at
            ) as job:
                job.wait_for_version(stopped, stops_at - 1)
                job.wait_until_stopped(stopped)
                for other in set(range(size)) - {stopped}:
                    job.wait_for_version(other, WARMUP + 40)
                job.go_on(stopped)
                job.wait_for_version(stopped, WARMUP + 60)
                results = job.end()
                seen = [
                    end._replace(seen={v: it for v, it in end.seen.items() if v <= WARMUP})
                    if "eager" not in method else end for end in results
                ]
                self.check_alike(seen)
                if "eager" not in method:
                    self.assertEqual([len(end.at_end) for end in results], [1] * size)
                    self.assertEqual(len({end.at_end[0] for end in results}), 1, f"seed {SEED}")

    @ranks_may_die
    def test_the_state_is_there_though_one_has_died_that_has_left_it(self) -> None:
        size, stopped, killed = 4, 3, 0
        method = f"wagma:max_wait=300ms,warmup_steps={WARMUP}"
        with Watched(size, __file__, adam_until, method, stopped, WARMUP - 30) as job:
            job.wait_until_stopped(stopped)
            for other in set(range(size)) - {stopped}:
                job.wait_for_version(other, WARMUP + 40)
            job.kill(killed, random.Random(SEED))
            job.go_on(stopped)
            job.wait_for_version(stopped, WARMUP + 60)
            results = [end for end in job.end(may_end=True) if end is not None]
            self.assertEqual(len({end.at_end[0] for end in results}), 1, f"seed {SEED}")
            self.assertEqual(len({end.model for end in results}), 1, f"seed {SEED}")

    @on_one_host("between hosts local averages deltas, and its warm-up ends when all have met")
    def test_what_comes_too_late_for_the_warm_up_counts_once(self) -> None:
        """As a step of the rank's own."""
        size, stopped = 2, 1
        for stops_at, looks in ((WARMUP - 3, False), (WARMUP - 30, False), (WARMUP - 3, True)):
            with self.subTest(stops_at=stops_at, looks=looks), Watched(
                size, __file__, apart_until, stopped, stops_at, looks
            ) as job:
                job.wait_for_version(0, WARMUP + 20)
                job.wait_until_stopped(stopped)
                job.go_on(stopped)
                job.wait_for_version(stopped, WARMUP + 20)
                results = job.end()
                self.check_alike(results)
                counted = [k for k in range(WARMUP + 1) if self.are_apart(results, k)]
                self.assertEqual(len(counted), 1, f"seed {SEED}")
                self.assertLessEqual(counted[0], stops_at)

    def are_apart(self, results: List[End], counted: int) -> bool:
        """Whether all is there once, if so many steps of the last rank were in the warm-up."""
        shared = torch.tensor(sum_of([WARMUP, counted]), dtype=torch.float64) / 2
        for rank, (end, begin) in enumerate(zip(results, (WARMUP, counted))):
            own = sum(gradient_of(rank, step) for step in range(begin + 1, end.steps + 1))
            if (shared - own).tolist() != end.numbers:
                return False
        return True


if __name__ == "__main__":
    unittest.main()
