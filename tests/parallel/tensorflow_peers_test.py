"""Goal: the experiment that compares Covey with TensorFlow's own strategy runs as its README says.
Method: few steps of a tiny model, no timing."""

from __future__ import annotations

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

SCRIPT = str(REPOSITORY / "examples" / "experiments" / "tensorflow_peers.py")


@unittest.skipUnless(TENSORFLOW, WHY_NO_TENSORFLOW)
class TensorflowPeersTest(unittest.TestCase):
    def test_few_steps_of_both(self) -> None:
        command = [sys.executable, SCRIPT, "--model", "tiny", "--turns", "1", "--steps", "2"]
        env = environment(**with_operations())
        out = subprocess.check_output(command, env=env, timeout=2 * LIMIT_S, text=True)
        self.assertIn("tiny, 2 processes", out)
        for name in ("covey", "MultiWorkerMirroredStrategy"):
            self.assertRegex(out, rf"(?m)^  {name} +\d+\.\d / \d+\.\d$")


if __name__ == "__main__":
    unittest.main()
