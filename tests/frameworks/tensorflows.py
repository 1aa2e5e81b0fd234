"""What the tests of covey.tensorflow share: its operations, compiled once per test file.

The ranks import TensorFlow; the test itself, which starts and judges them, does not. Where it is
not installed the tests are skipped: tools/setup --with tensorflow.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tempfile
import unittest
from typing import Dict, Sequence

from ranks import SEED, SharedPool

IS_RANK = "TEST_INIT" in os.environ
ON_TORCH = {"KERAS_BACKEND": "torch", "CUDA_VISIBLE_DEVICES": ""}
"""The environment of a rank whose Keras runs on torch."""
_BUILD = "import sys; from covey.cli import main; sys.exit(main(sys.argv[1:]))"


def quiet(**extra: str) -> Dict[str, str]:
    """The environment of a rank: few threads, few words."""
    return {"TF_CPP_MIN_LOG_LEVEL": "3", "TF_NUM_INTEROP_THREADS": "2", **extra}


def build(
    folder: str, path: str = "", more: Sequence[str] = ()
) -> "subprocess.CompletedProcess[str]":
    """`covey build tensorflow --out FOLDER`; Python looks into `path` first."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("COVEY_")}
    env["PYTHONPATH"] = os.pathsep.join(part for part in (path, *sys.path) if part)
    return subprocess.run(
        [sys.executable, "-c", _BUILD, "build", "tensorflow", "--out", folder, *more],
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


class Operations:
    """The compiled operations, in a folder of their own."""

    def __init__(self) -> None:
        """Raises SkipTest without TensorFlow."""
        if importlib.util.find_spec("tensorflow") is None:
            raise unittest.SkipTest("no TensorFlow here: tools/setup --with tensorflow")
        self.folder = tempfile.TemporaryDirectory()
        self.done = build(self.folder.name)
        if self.done.returncode != 0:
            raise AssertionError(self.done.stdout + self.done.stderr)

    def environment(self) -> Dict[str, str]:
        """What a rank needs to find them."""
        return quiet(COVEY_PLUGIN_PATH=self.folder.name)

    def close(self) -> None:
        """Removes them."""
        self.folder.cleanup()


def set_up(pool: SharedPool) -> None:
    """For setUpModule: the ranks of `pool` find the operations; both end with the module."""
    print(f"seed {SEED}")
    unittest.addModuleCleanup(pool.close)
    operations = Operations()
    unittest.addModuleCleanup(operations.close)
    pool.env.update(operations.environment())
