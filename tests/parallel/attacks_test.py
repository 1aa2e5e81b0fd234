"""Goal: strangers who can reach the address of a rendezvous, and do not hold its secret, cost
neither the launcher nor the rank that serves it more than a little, and the job takes place.
Method: the attacks of attackers.py against real processes with `ulimit -n 1024`, and at most 512
processes and threads where this machine lets a test limit them; threads, descriptors and memory are
read from the kernel after each; then the nodes that were missing come, while silent strangers are
still there and others flood, and the job is run to its end. No time is measured: that each is ended
within 2 s is what unit/ops/control/admission_test shows."""

from __future__ import annotations

import contextlib
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from typing import Dict, List, Optional, Tuple

import attackers
from harness import LIMIT_S, PLUGIN, PLUGIN_FOLDER, WHY_NO_PLUGIN, Launched, environment

MORE_THREADS = 64
MORE_KIB = 64 * 1024
MORE_DESCRIPTORS = 512  # half of what it may have
MOST_PROCESSES = 512
SUMS = """
import numpy, covey
covey.init()
total = covey.allreduce(numpy.full(1000, 10.0 ** covey.rank()), op=covey.Sum, name="x")
print("sum", covey.rank(), covey.size(), int(total[0]), flush=True)
"""
_LIMIT = """
import os, resource
resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 1024))
if "TEST_CGROUP" in os.environ:
    with open(os.environ.pop("TEST_CGROUP") + "/cgroup.procs", "w") as file:
        file.write(str(os.getpid()))
"""
_ENTRY = _LIMIT + "import sys; from covey.cli import coveyrun_main; sys.exit(coveyrun_main())"


def cost_of(pid: int) -> Tuple[int, int, int]:
    """(threads, KiB of memory at its most, descriptors) of the process."""
    with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as file:
        fields: Dict[str, str] = dict(re.findall(r"(\w+):\s+(\d+)", file.read()))
    return int(fields["Threads"]), int(fields["VmHWM"]), len(os.listdir(f"/proc/{pid}/fd"))


def group_of_few() -> Optional[str]:
    """A cgroup with at most MOST_PROCESSES processes and threads; None where none can be made.
    (RLIMIT_NPROC does not bind root.)"""
    for folder in ("/sys/fs/cgroup/pids", "/sys/fs/cgroup"):
        made = f"{folder}/covey-test-{os.getpid()}-{time.monotonic_ns()}"
        with contextlib.suppress(OSError):
            os.mkdir(made)
            try:
                with open(f"{made}/pids.max", "w", encoding="ascii") as file:
                    file.write(str(MOST_PROCESSES))
                return made
            except OSError:
                os.rmdir(made)
    return None


def setUpModule() -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 4096 if most == resource.RLIM_INFINITY else min(4096, most)
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))


class AttackTestCase(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.secret = os.path.join(self.folder, "secret")
        self.limits: Dict[str, str] = {}
        group = group_of_few()
        print(f"pids.max: {MOST_PROCESSES if group else 'cannot be set here'}", flush=True)
        if group is not None:
            self.limits = {"TEST_CGROUP": group}
            self.addCleanup(self.remove, group)

    @staticmethod
    def remove(group: str) -> None:
        deadline = time.monotonic() + LIMIT_S
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError):
                return os.rmdir(group)
            time.sleep(0.01)  # The last process of it is not quite gone.

    def check(self, pid: int, before: Tuple[int, int, int]) -> None:
        now = cost_of(pid)
        self.assertLessEqual(now[0] - before[0], MORE_THREADS)
        self.assertLessEqual(now[1] - before[1], MORE_KIB)
        self.assertLessEqual(now[2] - before[2], MORE_DESCRIPTORS)

    def attack(self, pid: int, address: str, kept: List[socket.socket]) -> None:
        """All attacks on the process; `kept`: the connections that stay open."""
        host, _, port = address.rpartition(":")
        before = cost_of(pid)
        for name, attack in attackers.ATTACKS.items():
            with self.subTest(name):
                opened = attack((host, int(port)))
                self.assertTrue(opened)
                self.check(pid, before)
                if attack is attackers.silence:
                    kept += opened
                    continue
                for connection in opened:
                    self.assertTrue(attackers.is_closed(connection))
                    connection.close()

    def strangers(self) -> List[socket.socket]:
        kept: List[socket.socket] = []
        self.addCleanup(lambda: [connection.close() for connection in kept])
        return kept


@unittest.skipUnless(PLUGIN, WHY_NO_PLUGIN)
class LauncherTest(AttackTestCase):
    def launch(self, *way: str) -> Launched:
        words = ["-np", "1", "--secret-file", self.secret, "--start-timeout", "600", *way]
        env = {"COVEY_PLUGIN_PATH": PLUGIN_FOLDER, "OMP_NUM_THREADS": "1", **self.limits}
        launched = Launched([*words, sys.executable, "-c", SUMS], env=env, entry=_ENTRY)
        self.addCleanup(launched.__exit__)
        return launched

    def server(self) -> Tuple[Launched, str]:
        server = self.launch("--nodes", "2", "--serve", "127.0.0.1:0")
        return server, server.wait_for(r"serving the rendezvous at (\S+);")[0].group(1)

    def test_the_job_takes_place(self) -> None:
        (server, address), kept = self.server(), self.strangers()
        before = cost_of(server.process.pid)
        self.attack(server.process.pid, address, kept)
        host, _, port = address.rpartition(":")
        stopped = threading.Event()
        flood = threading.Thread(target=attackers.flood, args=((host, int(port)), stopped))
        flood.start()
        self.addCleanup(flood.join)
        self.addCleanup(stopped.set)
        server.wait_for(r"without the job's secret: (4096|8192|\d{5,})\b")
        self.check(server.process.pid, before)
        other = self.launch("--join", address)
        for job in (server, other):
            self.assertEqual(job.finish(), 0, job.dump())
        stopped.set()
        self.assertEqual(server.stdout(), ["[0] sum 0 2 11"])
        # Nothing of gRPC's is shown, and strangers are counted.
        said = [line for line in server.stderr() if "serving the rendezvous" not in line]
        self.assertEqual([line for line in said if "without the job's secret" not in line], [])
        for connection in kept:
            self.assertTrue(attackers.is_closed(connection))

    def test_it_can_be_ended_meanwhile(self) -> None:
        (server, address), kept = self.server(), self.strangers()
        self.attack(server.process.pid, address, kept)
        server.send(signal.SIGTERM)
        self.assertEqual(server.finish(), 143, server.dump())


@unittest.skipUnless(PLUGIN, WHY_NO_PLUGIN)
class RankTest(AttackTestCase):
    def rank(self, number: int) -> "subprocess.Popen[str]":
        env = environment(
            OMP_NUM_THREADS="1",
            COVEY_PLUGIN_PATH=PLUGIN_FOLDER,
            COVEY_RENDEZVOUS=f"file:{self.folder}/address",
            COVEY_SECRET_FILE=self.secret,
            COVEY_START_TIMEOUT="600s",
            SLURM_PROCID=str(number),
            SLURM_STEP_NUM_TASKS="2",
            **self.limits,
        )
        process = subprocess.Popen(
            [sys.executable, "-c", _LIMIT + SUMS],
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        return process

    def told(self) -> str:
        deadline = time.monotonic() + LIMIT_S
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError), open(f"{self.folder}/address", "rb") as file:
                return file.read().decode()
            time.sleep(0.01)
        raise AssertionError("no rank serves")

    def test_the_job_takes_place(self) -> None:
        with open(self.secret, "w", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
            file.write(os.urandom(32).hex())
        kept = self.strangers()
        first = self.rank(0)
        self.attack(first.pid, self.told(), kept)
        second = self.rank(1)
        for number, process in enumerate((first, second)):
            out, err = process.communicate(timeout=2 * LIMIT_S)
            self.assertEqual((process.returncode, out, err), (0, f"sum {number} 2 11\n", ""))


if __name__ == "__main__":
    unittest.main()
