"""From one method to another, between which ranks have to meet, while one is missing: nobody waits
for it for longer than max_wait, the others train on meanwhile, and replicas are equal in the end.

Method: a rank stops itself before the switch. Versions are counted, not seconds.
"""

from __future__ import annotations

import unittest

from ranks import SEED
from warmups import WARMUP, WarmupTest, adam_until
from watched import Watched


def setUpModule() -> None:
    print(f"seed {SEED}")


class SwitchFaultsTest(WarmupTest):
    def test_what_waits_for_all_begins_when_nobody_is_missing(self) -> None:
        for size, stopped, method, by in (
            (2, 0, f"adpsgd:max_wait=300ms,warmup_steps={WARMUP}", "PairTrainer"),
            (4, 2, f"swarm:max_wait=300ms,warmup_steps={WARMUP}", "PairTrainer"),
            (4, 0, f"allreduce:max_wait=300ms,then=eager@{WARMUP}:admit=all", "RoundTrainer"),
            (2, 1, f"allreduce:max_wait=300ms,then=local@{WARMUP}", "NoneType"),
            (2, 1, "wagma:max_wait=300ms,then=allreduce@20", "NoneType"),
            (4, 2, "eager:max_wait=300ms,then=local@20:max_wait=300ms", "ModelRounds"),
        ):
            with self.subTest(method), Watched(
                size, __file__, adam_until, method, stopped, WARMUP - 30
            ) as job:
                job.wait_until_stopped(stopped)
                goes_on = "@20" not in method  # Else it waits on in finish(), after a Timeout.
                for other in set(range(size)) - {stopped}:
                    job.wait_for_version(other, WARMUP + 40 if goes_on else 19)
                job.go_on(stopped)
                job.wait_for_version(stopped, WARMUP + 200)
                results = job.end()
                self.assertEqual([end.by for end in results], [by] * size)
                self.check_alike([end._replace(seen={}) for end in results])


if __name__ == "__main__":
    unittest.main()
