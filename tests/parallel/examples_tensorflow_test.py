"""Goal: the examples for TensorFlow run as their README says. Method: coveyrun with few steps."""

from __future__ import annotations

import sys
import unittest

from harness import (
    REPOSITORY,
    TENSORFLOW,
    WHY_NO_TENSORFLOW,
    also,
    preload,
    run_launcher,
    with_operations,
)

if TENSORFLOW:
    preload("tensorflow")

EXAMPLES = REPOSITORY / "examples"


@unittest.skipUnless(TENSORFLOW, WHY_NO_TENSORFLOW)
class TensorflowExamplesTest(unittest.TestCase):
    def test_two_ranks_learn_the_same_weights(self) -> None:
        self.check("tensorflow_minimal.py")

    def test_a_loop_by_another_method(self) -> None:
        for method in ("eager", *also("local:H=4", "swarm")):
            with self.subTest(method=method):
                self.check("tensorflow_loop.py", "--method", method)

    def test_fit_by_another_method(self) -> None:
        script = [str(EXAMPLES / "keras_fashion_mnist.py"), "--epochs", "1", "--max-steps", "5"]
        for method in ("eager", *also("allreduce", "adpsgd")):
            with self.subTest(method=method):
                command = ["-np", "2", "--method", method, sys.executable, *script]
                code, out, err = run_launcher(command, env=with_operations())
                self.assertEqual(code, 0, err)
                ends = [line for line in out if "accuracy" in line and "model" in line]
                self.assertEqual(len(ends), 2, out)
                self.assertEqual(len({line.rpartition(": loss ")[2] for line in ends}), 1, out)

    def check(self, name: str, *flags: str) -> None:
        command = ["-np", "2", *flags, sys.executable, str(EXAMPLES / name)]
        code, out, err = run_launcher(command, env=with_operations())
        self.assertEqual(code, 0, err)
        self.assertEqual(len(out), 2, out)
        weights = {line.rpartition("weight ")[2] for line in out}
        self.assertEqual(len(weights), 1, out)
        self.assertAlmostEqual(float(weights.pop()), 8.0, places=2)


if __name__ == "__main__":
    unittest.main()
