"""From one method to another, between which ranks meet, while one is missing: the others train on
until it is back, and replicas are equal in the end.

Method: a rank stops itself before the switch. Versions are counted, not seconds; hashes.
"""

from __future__ import annotations

import unittest

from ranks import SEED, with_majority
from warmups import WARMUP, SwitchTest, adam_until

__all__ = ["adam_until"]  # What ranks are asked for.


def setUpModule() -> None:
    print(f"seed {SEED}")


class SwitchFaultsTest(SwitchTest):
    def test_what_waits_for_all_begins_when_nobody_is_missing(self) -> None:
        for size, stopped, method, by in with_majority(
            (2, 0, f"adpsgd:max_wait=300ms,warmup_steps={WARMUP}", "pairs"),
            (4, 2, f"swarm:max_wait=300ms,warmup_steps={WARMUP}", "pairs"),
            (4, 0, f"allreduce:max_wait=300ms,then=eager@{WARMUP}:admit=all", "gradients"),
            (2, 1, f"allreduce:max_wait=300ms,then=local@{WARMUP}", ""),
            (2, 0, f"eager:max_wait=300ms,then=allreduce@{WARMUP}", ""),
            (4, 2, f"eager:max_wait=300ms,then=local@{WARMUP}:max_wait=300ms", "models"),
        ):
            with self.subTest(method):
                self.check_switch(__file__, size, stopped, method, by)


if __name__ == "__main__":
    unittest.main()
