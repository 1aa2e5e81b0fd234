"""Goal: every operation is right over shared memory, whatever the number of real processes.

Method: the script that runs under mpirun too (mpi_test.py), under the launcher.
"""

from __future__ import annotations

import pathlib
import sys
import tempfile
import textwrap
import unittest

from harness import run_launcher
from operations import EVERY_OPERATION


class OperationsTest(unittest.TestCase):
    """One job for each number of ranks."""

    def check_fine(self, size: int) -> None:
        with tempfile.TemporaryDirectory() as folder:
            script = pathlib.Path(folder, "script.py")
            script.write_text(textwrap.dedent(EVERY_OPERATION), encoding="ascii")
            code, lines, err = run_launcher(["-np", str(size), sys.executable, str(script)])
        self.assertEqual(code, 0, err)
        for rank in range(size):
            self.assertTrue(any(line.endswith(f"fine {rank}") for line in lines), lines)

    def test_one_rank(self) -> None:
        self.check_fine(1)

    def test_two_ranks(self) -> None:
        self.check_fine(2)

    def test_three_ranks(self) -> None:
        self.check_fine(3)

    def test_four_ranks(self) -> None:
        self.check_fine(4)

    def test_eight_ranks(self) -> None:
        self.check_fine(8)


if __name__ == "__main__":
    unittest.main()
