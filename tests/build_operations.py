"""Compiles the operations of covey.tensorflow for the tests, as `covey build tensorflow` does:
`build_operations.py FOLDER`. Without TensorFlow the folder stays empty."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import sys

from covey.cli import main

if __name__ == "__main__" and importlib.util.find_spec("tensorflow") is not None:
    with contextlib.redirect_stdout(io.StringIO()):  # Bazel would print it; errors are elsewhere.
        code = main(["build", "tensorflow", "--out", sys.argv[1]])
    sys.exit(code)
