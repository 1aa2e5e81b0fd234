"""Runs of `covey bench`, with the smallest effort."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import unittest
from typing import List

from harness import environment

LIMIT_S = 240.0
ENTRY = "import sys; from covey.cli import main; sys.exit(main())"
LITTLE = ["--small", "--rounds", "1", "--samples", "1"]


class BenchCase(unittest.TestCase):
    """A test case with ``bench``."""

    def bench(self, kind: str, *options: str) -> tuple:
        """(stdout, what is in the file) of `covey bench KIND OPTION...`."""
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, "-c", ENTRY, "bench", kind, *LITTLE, "--out", folder]
            result = subprocess.run(
                [*command, *options],
                env=environment(),
                timeout=LIMIT_S,
                capture_output=True,
                text=True,
                check=False,
            )
            self.assertEqual(result.returncode, 0, result.stderr)
            with open(os.path.join(folder, kind + ".json"), encoding="utf-8") as file:
                found = json.load(file)
            try:
                import matplotlib  # noqa: F401
            except ImportError:
                return result.stdout, found
            with open(os.path.join(folder, kind + ".png"), "rb") as picture:
                self.assertEqual(picture.read(4)[1:], b"PNG")
            return result.stdout, found


def names(found: dict) -> List[str]:
    """The contestants of the first row."""
    return list(found["rows"][0]["contestants"])
