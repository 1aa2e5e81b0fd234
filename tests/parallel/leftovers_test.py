"""Goal: what a rank leaves in its process group has time to end by itself, and is then ended. So
Python's shared memory does not stay behind. Method: real `coveyrun` processes with small scripts
that do not use the runtime, on this host and by an agent (a program in ssh's place)."""

from __future__ import annotations

import os
import pathlib
import signal
import sys
import tempfile
import unittest
import uuid

import fake_ssh
from harness import Launched

PYTHON = sys.executable
OWNER = """
import os, signal, sys, time
from multiprocessing import shared_memory
mode, name, rank = sys.argv[1], sys.argv[2], int(os.environ["COVEY_RANK"])
kept = shared_memory.SharedMemory(name=f"{name}_{rank}", create=True, size=4096)
print("up", flush=True)
while len([it for it in os.listdir("/dev/shm") if it.startswith(name)]) < 2:
    time.sleep(0.01)
if mode == "killed" and rank == 0:
    os.kill(os.getpid(), signal.SIGKILL)
if mode == "failed" and rank == 0:
    os._exit(3)
while mode != "well":
    signal.pause()
"""
# Its helper does not end by itself.
HELPER = """
import subprocess, sys
helper = "import os, signal; print('helps', os.getpid(), flush=True); signal.pause()"
process = subprocess.Popen([sys.executable, "-c", helper], stdout=subprocess.PIPE, text=True)
print(process.stdout.readline(), end="", flush=True)
"""


class LeftoversTest(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        ssh, _ = fake_ssh.write(pathlib.Path(folder.name))
        self.places = {"here": ["-np", "2"], "by agents": ["--ssh", str(ssh), "-H", "a:1,b:1"]}

    def test_shared_memory_of_python_goes_with_its_owner(self) -> None:
        signals = {"INT": signal.SIGINT, "TERM": signal.SIGTERM}
        for place, where in self.places.items():
            for mode in ("well", "failed", "killed", *signals):
                name = f"covey-test-{uuid.uuid4().hex}"
                command = ["--quiet", *where, PYTHON, "-c", OWNER, mode, name]
                with self.subTest(place=place, mode=mode), Launched(command) as job:
                    if mode in signals:
                        job.wait_for(r"\] up", 2)
                        job.send(signals[mode])
                    code = job.finish()
                    left = [it for it in os.listdir("/dev/shm") if it.startswith(name)]
                    for it in left:
                        os.unlink(f"/dev/shm/{it}")
                    self.assertEqual(left, [], job.dump())
                    codes = {"well": 0, "failed": 3, "killed": 137, "INT": 130, "TERM": 143}
                    self.assertEqual(code, codes[mode], job.dump())

    def test_a_helper_that_stays_is_ended_and_told_of(self) -> None:
        for place, where in self.places.items():
            with self.subTest(place=place), Launched([*where, PYTHON, "-c", HELPER]) as job:
                self.assertEqual(job.finish(), 0, job.dump())
                pids = [int(match.group(1)) for match in job.wait_for(r"helps (\d+)", 2)]
                for pid in pids:
                    self.assertFalse(os.path.exists(f"/proc/{pid}/exe"), job.dump())
                told = "coveyrun: ranks 0 and 1 ended with exit code 0 and left processes"
                self.assertEqual(len([it for it in job.stderr() if it.startswith(told)]), 1)

    def test_a_rank_that_fails_ends_the_job_whatever_it_has_left(self) -> None:
        code = "import os, subprocess, sys; subprocess.Popen(['sleep', '1000']); "
        code += "sys.exit(7 if os.environ['COVEY_RANK'] == '0' else 0)"
        for place, where in self.places.items():
            with self.subTest(place=place), Launched([*where, PYTHON, "-c", code]) as job:
                self.assertEqual(job.finish(), 7, job.dump())
                job.wait_until_gone()
                self.assertFalse([it for it in job.stderr() if "rank 0 ended with" in it])


if __name__ == "__main__":
    unittest.main()
