"""Goal: strangers who can reach the address of a rendezvous, and do not hold its secret, cost
neither the launcher nor the rank that serves it more than a little, and the job takes place.
Method: the attacks of attackers.py against real processes with `ulimit -n 1024`; threads and memory
are read from the kernel after each; then the nodes that were missing come, while silent strangers
are still there, and the job is run to its end. No time is measured."""

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
import time
import unittest
from typing import Dict, List, Tuple

import attackers
from harness import LIMIT_S, PLUGIN, PLUGIN_FOLDER, WHY_NO_PLUGIN, Launched, environment

MORE_THREADS = 64
MORE_KIB = 64 * 1024
SUMS = """
import numpy, covey
covey.init()
total = covey.allreduce(numpy.full(1000, 10.0 ** covey.rank()), op=covey.Sum, name="x")
print("sum", covey.rank(), covey.size(), int(total[0]), flush=True)
"""
_LIMIT = "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 1024))\n"
_ENTRY = _LIMIT + "import sys; from covey.cli import coveyrun_main; sys.exit(coveyrun_main())"


def cost_of(pid: int) -> Tuple[int, int]:
    """(threads, KiB of memory at its most) of the process."""
    with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as file:
        fields: Dict[str, str] = dict(re.findall(r"(\w+):\s+(\d+)", file.read()))
    return int(fields["Threads"]), int(fields["VmHWM"])


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

    def attack(self, pid: int, address: str, kept: List[socket.socket]) -> None:
        """All attacks on the process; `kept`: the connections that stay open."""
        host, _, port = address.rpartition(":")
        threads, kib = cost_of(pid)
        for name, attack in attackers.ATTACKS.items():
            with self.subTest(name):
                opened = attack((host, int(port)))
                self.assertTrue(opened)
                now = cost_of(pid)
                self.assertLessEqual(now[0] - threads, MORE_THREADS)
                self.assertLessEqual(now[1] - kib, MORE_KIB)
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
        env = {"COVEY_PLUGIN_PATH": PLUGIN_FOLDER, "OMP_NUM_THREADS": "1"}
        launched = Launched([*words, sys.executable, "-c", SUMS], env=env, entry=_ENTRY)
        self.addCleanup(launched.__exit__)
        return launched

    def server(self) -> Tuple[Launched, str]:
        server = self.launch("--nodes", "2", "--serve", "127.0.0.1:0")
        return server, server.wait_for(r"serving the rendezvous at (\S+);")[0].group(1)

    def test_the_job_takes_place(self) -> None:
        (server, address), kept = self.server(), self.strangers()
        self.attack(server.process.pid, address, kept)
        other = self.launch("--join", address)
        for job in (server, other):
            self.assertEqual(job.finish(), 0, job.dump())
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
