"""Goal: coveyrun tells of each rank that does not say where it is, and why. Method: real `coveyrun`
processes with small scripts that do not use the runtime, on this host and by an agent (a program in
ssh's place)."""

from __future__ import annotations

import os
import pathlib
import signal
import sys
import tempfile
import unittest

import fake_ssh
from harness import Launched, wait_for_state

# Rank 0 answers, rank 1 has a handler that says nothing, rank 2 has none, rank 3 will be stopped.
CODE = """
import os, signal, sys
rank = int(os.environ["COVEY_RANK"])
if rank != 2:
    signal.signal(signal.SIGUSR1, lambda *_: rank != 1 and print("waits for x", file=sys.stderr))
print("up", rank, os.getpid(), flush=True)
while True:
    signal.pause()
"""


class WhereTest(unittest.TestCase):
    def test_those_that_do_not_answer_are_told_of(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            ssh, _ = fake_ssh.write(pathlib.Path(folder))
            places = {"here": ["-np", "4"], "agents": ["--ssh", str(ssh), "-H", "a:2,b:2"]}
            for place, where in places.items():
                for number in (signal.SIGINT, signal.SIGUSR1):
                    with self.subTest(place=place, number=number):
                        self.check([*where, sys.executable, "-c", CODE], number)

    def check(self, command: list, number: int) -> None:
        with Launched(command) as job:
            found = [match.groups() for match in job.wait_for(r"\] up (\d) (\d+)", 4)]
            pids = {int(rank): int(pid) for rank, pid in found}
            os.kill(pids[3], signal.SIGSTOP)
            wait_for_state(pids[3], "T")
            job.send(number)
            job.wait_for(rf"^coveyrun: rank 3 \(pid {pids[3]}\) does not answer: it is stopped$")
            job.wait_for(rf"^coveyrun: rank 1 \(pid {pids[1]}\) does not answer$")
            job.wait_for("^coveyrun: rank 2 cannot say: not past covey.init")
            if number == signal.SIGUSR1:
                job.wait_for(r"^\[0\] waits for x$")
                job.send(signal.SIGTERM)
            job.finish()
            for rank in (1, 3):
                told = [it for it in job.stderr() if it.startswith(f"coveyrun: rank {rank} ")]
                self.assertEqual(len(told), 1, job.dump())


if __name__ == "__main__":
    unittest.main()
