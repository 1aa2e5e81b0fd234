"""Goal: covey.run returns the results by rank, and fails as plainly as coveyrun does.
Method: real processes; functions of this file, which the ranks import as multiprocessing would."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import harness
from harness import environment

from covey.launch import JobFailed, LaunchError, run


def place(*args: object, **kwargs: object) -> tuple:
    return (os.environ["COVEY_RANK"], os.environ["COVEY_SIZE"], args, kwargs)


def fail_on_rank_1() -> None:
    if os.environ["COVEY_RANK"] == "1":
        raise ValueError("not today")


def total() -> float:
    import numpy

    import covey

    covey.init()
    mine = numpy.array([covey.rank() + 1.0])
    return float(covey.allreduce(mine, op=covey.Sum, name="total")[0])


class RunTest(unittest.TestCase):
    def setUp(self) -> None:
        self.old = dict(os.environ)
        os.environ["PYTHONPATH"] = environment()["PYTHONPATH"]

    def tearDown(self) -> None:
        os.environ.clear()
        os.environ.update(self.old)

    def test_results_come_by_rank(self) -> None:
        expected = [(str(rank), "3", (1, "a"), {"b": 2}) for rank in range(3)]
        self.assertEqual(run(place, (1, "a"), {"b": 2}, num_proc=3), expected)
        self.assertEqual(len(run(place, np=2)), 2)

    def test_the_ranks_are_one_job(self) -> None:
        self.assertEqual(run(total, num_proc=3), [6.0] * 3)

    def test_a_failure_names_the_rank(self) -> None:
        with self.assertRaises(JobFailed) as caught:
            run(fail_on_rank_1, num_proc=2)
        self.assertEqual((caught.exception.rank, caught.exception.exit_code), (1, 1))
        self.assertIn("ValueError: not today", str(caught.exception))

    def test_what_cannot_be_sent_is_said(self) -> None:
        with self.assertRaisesRegex(LaunchError, "cannot send"):
            run(place, (sys.stdin,), num_proc=1)

    def test_a_rank_that_leaves_early_is_named(self) -> None:
        with self.assertRaisesRegex(JobFailed, "rank 0 exited with code 0 before"):
            run(os._exit, (0,), num_proc=1)

    def test_num_proc_is_checked(self) -> None:
        for wrong in (0, -1, 1.5, "2", True):
            with self.assertRaises(ValueError):
                run(place, num_proc=wrong)  # type: ignore[arg-type]

    def test_no_files_stay_behind(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            os.environ["TMPDIR"] = folder
            tempfile.tempdir = None
            try:
                run(place, num_proc=1)
                self.assertEqual(os.listdir(folder), [])
            finally:
                tempfile.tempdir = None

    def test_a_script_of_its_own(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            script = pathlib.Path(folder, "script.py")
            script.write_text(
                "import covey\n"
                "def double(x):\n    return 2 * x\n"
                "if __name__ == '__main__':\n    print(covey.run(double, (21,), num_proc=2))\n",
                encoding="ascii",
            )
            out = subprocess.check_output(
                [sys.executable, str(script)], env=environment(), timeout=harness.LIMIT_S
            )
        self.assertEqual(out, b"[42, 42]\n")


if __name__ == "__main__":
    unittest.main()
