"""Goal: what Horovod's scripts do around their steps works with model and optimizer on a device.
Method: a device that does everything as late as it may (``late_cuda``); the same on the CPU, bit
for bit."""

from __future__ import annotations

import unittest

from cuda_scripts import OPTIMIZERS, around, resumed
from ranks import SEED, SharedPool

pool = SharedPool(__file__)


def setUpModule() -> None:
    print(f"seed {SEED}")


def tearDownModule() -> None:
    pool.close()


class CudaScriptTest(unittest.TestCase):
    def test_ranks_take_up_the_optimizers_state_of_the_root(self) -> None:
        for name in OPTIMIZERS:
            with self.subTest(optimizer=name):
                there = pool(3).call(resumed, "cuda", name)
                here = pool(3).call(resumed, "cpu", name)
                self.assertEqual(there, here)
                self.assertTrue(there[0][0] and there[0] == there[1] == there[2])

    def test_operations_of_a_script(self) -> None:
        there, here = (pool(3).call(around, device) for device in ("cuda", "cpu"))
        self.assertEqual(there, here)
        self.assertTrue(there[0][0])


if __name__ == "__main__":
    unittest.main()
