"""Goal: examples/stop_and_go.py shows what it promises: the others go on while a worker is stopped,
and end well when one is killed; a job that ends for it names the flag that it lacks.
Method: real jobs; signals to a worker whose process id the example has printed."""

from __future__ import annotations

import os
import signal
import sys
import unittest

from harness import REPOSITORY, Launched, also, preload, wait_for_state

preload("torch")

EXAMPLES = REPOSITORY / "examples"
README = (REPOSITORY / "README.md").read_text(encoding="utf-8")


class StopAndGoTest(unittest.TestCase):
    def test_the_others_go_on_while_one_is_stopped(self) -> None:
        self.assertIn("coveyrun -np 4 --method eager python examples/stop_and_go.py ", README)
        script = [sys.executable, str(EXAMPLES / "stop_and_go.py"), "--step", "0.005"]
        for method in ("eager", *also("wagma")):
            command = ["-np", "4", "--method", method, *script, "--versions", "1500"]
            with self.subTest(method), Launched(command) as job:
                lines = job.wait_for(r"^\[2\] pid (\d+): version \d+, error", 3)
                pid = int(lines[0][1])
                os.kill(pid, signal.SIGSTOP)
                wait_for_state(pid, "T")
                for rank in (0, 1, 3):
                    pattern = rf"^\[{rank}\] pid \d+: version (\d+)"
                    seen = len(job.wait_for(pattern))
                    job.wait_for(pattern, seen + 10)
                stopped = len(job.wait_for(r"^\[2\] pid"))
                os.kill(pid, signal.SIGCONT)
                job.wait_for(r"^\[2\] pid", stopped + 2)
                self.assertEqual(job.finish(), 0, job.dump())
                job.wait_for(r"^\[\d\] pid \d+: the end, parameters equal on all workers", 4)

    def test_the_others_end_well_when_one_is_killed(self) -> None:
        script = [sys.executable, str(EXAMPLES / "stop_and_go.py"), "--step", "0.005"]
        way = "with --keep-going the others go on: method"
        flags = "coveyrun -np 4 --keep-going --method eager"
        self.assertIn(f"{flags} python examples/stop_and_go.py ", README)
        for method, keeps_going in (("eager", True), ("wagma", True), ("eager", False)):
            flags = ["-np", "4", "--method", method, *["--keep-going"] * keeps_going]
            command = [*flags, *script, "--versions", "100"]
            with self.subTest(method, keeps_going=keeps_going), Launched(command) as job:
                pid = int(job.wait_for(r"^\[2\] pid (\d+): version \d+, error")[0][1])
                os.kill(pid, signal.SIGKILL)
                code, said = job.finish(), "\n".join(job.stderr())
                if not keeps_going:
                    self.assertEqual(code, 128 + signal.SIGKILL, job.dump())
                    self.assertIn(f"coveyrun: {way} {method}", said)
                    continue
                self.assertEqual(code, 0, job.dump())
                ends = job.wait_for(r"^\[[013]\].* the end, parameters (\w{8}); .*rank 2", 3)
                self.assertEqual(len({end[1] for end in ends}), 1, job.dump())
                self.assertNotIn(way, said)


if __name__ == "__main__":
    unittest.main()
