"""Goal: the experiments that compare TensorFlow with others run as their README says.
Method: few steps, no timing."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import unittest

from harness import (
    LIMIT_S,
    REPOSITORY,
    TENSORFLOW,
    WHY_NO_TENSORFLOW,
    environment,
    with_operations,
)

EXPERIMENTS = REPOSITORY / "examples" / "experiments"
SCRIPT = str(EXPERIMENTS / "tensorflow_peers.py")


@unittest.skipUnless(TENSORFLOW, WHY_NO_TENSORFLOW)
class TensorflowPeersTest(unittest.TestCase):
    def test_few_steps_of_both(self) -> None:
        command = [sys.executable, SCRIPT, "--model", "tiny", "--turns", "1", "--steps", "2"]
        env = environment(**with_operations())
        out = subprocess.check_output(command, env=env, timeout=2 * LIMIT_S, text=True)
        self.assertIn("tiny, 2 processes", out)
        for name in ("covey", "MultiWorkerMirroredStrategy", "covey.torch"):
            self.assertRegex(out, rf"(?m)^  {re.escape(name)} +\d+\.\d / \d+\.\d$")

    @unittest.skipUnless(os.environ.get("TEST_SLOW") == "1", "four jobs: tools/test --slow")
    def test_few_images_of_both(self) -> None:
        few = ["--ranks", "2", "--epochs", "2", "--turns", "1", "--max-steps", "3"]
        command = [sys.executable, str(EXPERIMENTS / "fashion_pace.py"), *few]
        env = environment(**with_operations())
        out = subprocess.check_output(command, env=env, timeout=4 * LIMIT_S, text=True)
        self.assertEqual(
            len(re.findall(r"(?m)^  (keras|torch), [12] ranks: +[\d,]+ / ", out)), 4, out
        )


if __name__ == "__main__":
    unittest.main()
