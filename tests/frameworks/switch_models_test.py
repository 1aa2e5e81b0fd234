"""From models to another method, before which ranks meet, while one is missing: the others train on
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


class SwitchModelsTest(SwitchTest):
    def test_the_others_train_on_until_it_is_back(self) -> None:
        for size, stopped, method, by in with_majority(
            (2, 1, f"wagma:max_wait=300ms,then=allreduce@{WARMUP}", ""),
            (4, 0, f"wagma:max_wait=300ms,then=eager@{WARMUP}:admit=all", "gradients"),
            (4, 3, f"local:H=3,max_wait=300ms,then=allreduce@{WARMUP}", ""),
            (2, 0, f"eager:max_wait=300ms,then=adpsgd@{WARMUP}", "pairs"),
        ):
            with self.subTest(method):
                self.check_switch(__file__, size, stopped, method, by)

    def test_out_of_pairs_they_wait_and_are_told(self) -> None:
        method = "adpsgd:max_wait=300ms,then=allreduce@20"
        self.check_switch(__file__, 2, 1, method, "", goes_on=False)


if __name__ == "__main__":
    unittest.main()
