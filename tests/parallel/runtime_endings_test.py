"""Goal: a job that uses the runtime ends well from any fault: the culprit is named on every rank
and by the launcher, nobody hangs, nothing stays behind.
Method: real processes that allreduce without end while one is killed, raises, leaves or stalls."""

from __future__ import annotations

import json
import os
import pathlib
import random
import re
import signal
import sys
import tempfile
import unittest

from harness import Launched, run_launcher, wait_until_memory_gone

PYTHON = sys.executable
SETUP = """
import os, signal, sys, time
import numpy, covey
covey.init()
rank, step = covey.rank(), 0
data = numpy.ones(1000, numpy.float32)
def reduce():
    global step
    covey.allreduce_(data, op=covey.Average, name='gradients')
    step += 1
    if step == 3: print('up', os.getpid(), flush=True)
"""
FOREVER = SETUP + "while True: reduce()\n"


def python(code: str) -> list:
    return [PYTHON, "-c", code]


class ChildTest(unittest.TestCase):
    def test_a_child_process_of_a_rank_is_told_that_it_is_none(self) -> None:
        child = "import covey; covey.init()"
        code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
        for flags, name in (((), "COVEY_SHM_FD"), (("--min-np", "1"), "COVEY_ELASTIC_FD")):
            _, _, err = run_launcher(["-np", "1", *flags, *python(code)])
            wanted = rf"this process is a child of rank 0, and no rank: {name}=\d+ of the rank "
            self.assertRegex("\n".join(err), wanted + "is not open here; put init()")


class FaultTest(unittest.TestCase):
    def check(self, code: str, rank: int, exit_code: int, how: str, ranks: int = 3) -> list:
        found, _, err = run_launcher(["-np", str(ranks), *python(code)])
        text = "\n".join(err)
        self.assertEqual(found, exit_code, text)
        self.assertRegex(text, rf"coveyrun: rank {rank} \(pid \d+\) failed first: {how}")
        return err

    def test_a_killed_rank(self) -> None:
        code = SETUP + (
            "while True:\n  reduce()\n"
            "  if rank == 1 and step == 50: os.kill(os.getpid(), signal.SIGKILL)\n"
        )
        err = self.check(code, 1, 137, "killed by SIGKILL")
        survivors = [line for line in err if re.search(r"^\[[02]\].*rank 1\b", line)]
        self.assertGreaterEqual(len(survivors), 2, err)

    def test_an_exception(self) -> None:
        code = SETUP + (
            "while True:\n  reduce()\n"
            "  if rank == 2 and step == 50: raise ValueError('bad batch')\n"
        )
        err = self.check(code, 2, 1, "exit code 1")
        self.assertIn("coveyrun:   ValueError: bad batch", err)

    def test_a_rank_that_just_leaves(self) -> None:
        code = SETUP + "for i in range(50 if rank == 0 else 1000): reduce()\n"
        found, _, err = run_launcher(["-np", "3", *python(code)])
        self.assertEqual(found, 1, err)
        self.assertTrue(any("rank 0" in line and "coveyrun" in line for line in err), err)

    def test_os_exit_with_an_operation_in_flight(self) -> None:
        code = SETUP + (
            "while True:\n  reduce()\n"
            "  if rank == 0 and step == 50:\n"
            "    covey.allreduce_async_(data, op=covey.Sum, name='last'); os._exit(5)\n"
        )
        self.check(code, 0, 5, "exit code 5")

    def test_kills_at_random_moments(self) -> None:
        seed = random.Random(7)
        for trial in range(5):
            with self.subTest(seed=7, trial=trial), Launched(["-np", "4", *python(FOREVER)]) as job:
                pids = {
                    int(m.group(1)): int(m.group(2)) for m in job.wait_for(r"^\[(\d)\] up (\d+)", 4)
                }
                victim = seed.randrange(4)
                os.kill(pids[victim], signal.SIGKILL)
                self.assertEqual(job.finish(), 137, job.dump())
                self.assertRegex(job.dump(), rf"rank {victim} \(pid \d+\) failed first: killed")
                job.wait_until_gone()


class InterruptTest(unittest.TestCase):
    STALL = SETUP + "reduce(); reduce(); reduce()\nif rank == 0: time.sleep(1000)\nreduce()\n"

    def test_every_rank_says_what_it_waits_for(self) -> None:
        with Launched(["-np", "3", *python(self.STALL)]) as job:
            job.wait_for(r"\] up", 3)
            job.send(signal.SIGINT)
            self.assertEqual(job.finish(), 130)
            for rank in range(3):
                mine = "\n".join(line for line in job.stderr() if line.startswith(f"[{rank}]"))
                self.assertIn(f"rank {rank} of 3", mine, job.dump())
                self.assertRegex(mine, r"<string>:\d+ in ", job.dump())
                if rank != 0:
                    self.assertRegex(mine, r"gradients.*0", job.dump())
            self.assertNotIn("Traceback", job.dump())
            job.wait_until_gone()

    def test_usr1_reports_and_the_job_goes_on(self) -> None:
        with Launched(["-np", "2", *python(FOREVER)]) as job:
            job.wait_for(r"\] up", 2)
            for times in (1, 2):
                job.send(signal.SIGUSR1)
                job.wait_for(r"covey: rank 0 of 2", times)
                job.wait_for(r"covey: rank 1 of 2", times)
            self.assertIsNone(job.process.poll())
            job.send(signal.SIGINT)
            self.assertEqual(job.finish(), 130)
            job.wait_until_gone()


class LauncherKilledTest(unittest.TestCase):
    def test_ranks_and_memory_go_also_under_a_shell(self) -> None:
        code = FOREVER.replace(
            "print('up', os.getpid(), flush=True)",
            "print('inode', os.fstat(int(os.environ['COVEY_SHM_FD'])).st_ino, flush=True)",
        )
        with tempfile.TemporaryDirectory() as folder:
            script = pathlib.Path(folder, "script.py")
            script.write_text(code, encoding="ascii")
            for command in ([PYTHON, str(script)], ["sh", "-c", f"{PYTHON} {script}; exit 1"]):
                with self.subTest(command=command[0]), Launched(["-np", "2", *command]) as job:
                    inode = int(job.wait_for(r"inode (\d+)", 2)[0].group(1))
                    job.process.kill()
                    job.process.wait()
                    job.wait_until_gone()
                    wait_until_memory_gone(inode)


class TimelineTest(unittest.TestCase):
    def test_one_valid_file_per_rank_and_one_of_all(self) -> None:
        code = SETUP + "for i in range(20): reduce()\n"
        with tempfile.TemporaryDirectory() as folder:
            found, _, err = run_launcher(["-np", "2", "--timeline", folder, *python(code)])
            self.assertEqual(found, 0, err)
            files = sorted(pathlib.Path(folder).iterdir())
            names = [file.name for file in files]
            self.assertEqual(names, ["rank.0.json", "rank.1.json", "trace.json"])
            for file in files:
                self.assertTrue(json.loads(file.read_text(encoding="utf-8")))


if __name__ == "__main__":
    unittest.main()
