"""Goal: a method with a codec trains parameters on a device as those on the CPU, bit for bit.
Method: that of mirror_test.py."""

from __future__ import annotations

import unittest

from mirror_training import check_both, in_turn
from ranks import SEED, SharedPool, on_one_host

pool = SharedPool(__file__)
METHOD = "swarm:H=2,codec=lattice@8"


def setUpModule() -> None:
    print(f"seed {SEED}")


def tearDownModule() -> None:
    pool.close()


class MirrorCodecTest(unittest.TestCase):
    @on_one_host("between hosts two models are averaged when messages come, and so not in turn")
    def test_what_waits_for_nobody(self) -> None:
        for size in (2, 4):
            check_both(self, pool(size), in_turn, METHOD)


if __name__ == "__main__":
    unittest.main()
