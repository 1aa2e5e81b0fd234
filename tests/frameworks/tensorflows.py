"""What the tests of covey.tensorflow share: its operations, compiled once for all of them by Bazel
(tests/operations.bzl). Run by hand a test takes those of the package, which the first import makes.

The ranks import TensorFlow; the test itself, which starts and judges them, does not. Where it is
not installed the tests are skipped: tools/setup --with tensorflow.
"""

from __future__ import annotations

import importlib.util
import os
import pathlib
import subprocess
import sys
import unittest
from typing import Dict, Sequence

from ranks import SEED, SharedPool
from starter import ENVIRONMENT

IS_RANK = "TEST_INIT" in os.environ
HAS_TENSORFLOW = importlib.util.find_spec("tensorflow") is not None
WHY_NOT = "no TensorFlow here: tools/setup --with tensorflow"
_FOLDER = pathlib.Path(__file__).absolute().parents[1] / "tensorflow_operations"
_BUILD = "import sys; from covey.cli import main; sys.exit(main(sys.argv[1:]))"

os.environ.update(ENVIRONMENT["tensorflow"])


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


def with_operations() -> Dict[str, str]:
    """The variables by which a rank finds the operations. Raises SkipTest without TensorFlow."""
    if not HAS_TENSORFLOW:
        raise unittest.SkipTest(WHY_NOT)
    return {"COVEY_PLUGIN_PATH": str(_FOLDER)} if _FOLDER.is_dir() else {}


def set_up(pool: SharedPool) -> None:
    """For setUpModule: the ranks of `pool` find the operations, and end with the module."""
    print(f"seed {SEED}")
    unittest.addModuleCleanup(pool.close)
    pool.env.update(with_operations())
