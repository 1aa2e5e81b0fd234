"""Goal: the experiment that compares Covey with TensorFlow's own strategy runs as its README says.
Method: few steps of a tiny model, no timing."""

from __future__ import annotations

import importlib.util
import pathlib
import subprocess
import sys
import unittest

from harness import LIMIT_S, REPOSITORY, environment

SCRIPT = str(REPOSITORY / "examples" / "experiments" / "tensorflow_peers.py")
OPERATIONS = pathlib.Path(__file__).absolute().parents[1] / "tensorflow_operations"  # Of Bazel.


@unittest.skipIf(
    importlib.util.find_spec("tensorflow") is None,
    "no TensorFlow here: tools/setup --with tensorflow",
)
class TensorflowPeersTest(unittest.TestCase):
    def test_few_steps_of_both(self) -> None:
        command = [sys.executable, SCRIPT, "--model", "tiny", "--turns", "1", "--steps", "2"]
        env = environment()
        if OPERATIONS.is_dir():
            env["COVEY_PLUGIN_PATH"] = str(OPERATIONS)
        out = subprocess.check_output(command, env=env, timeout=2 * LIMIT_S, text=True)
        self.assertIn("tiny, 2 processes", out)
        for name in ("covey", "MultiWorkerMirroredStrategy"):
            self.assertRegex(out, rf"(?m)^  {name} +\d+\.\d / \d+\.\d$")


if __name__ == "__main__":
    unittest.main()
