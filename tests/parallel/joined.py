"""Launchers that know an address and a secret, for tests: real `coveyrun` processes on loopback,
ports chosen by the system and read from what the serving launcher says."""

from __future__ import annotations

import os
import sys
import tempfile
import unittest
from contextlib import ExitStack
from typing import List, Optional

from harness import PLUGIN_FOLDER, SECRET, Launched

PYTHON = sys.executable
SUMS = """
import numpy, covey
covey.init()
for turn in range(20):
    mine = numpy.full(1000, 10.0 ** covey.rank(), "float64")
    total = covey.allreduce(mine, op=covey.Sum, name="x")
print("sum", covey.rank(), covey.size(), covey.local_rank(), int(total[0]), flush=True)
"""
# Prints its rank when the job runs, then waits for a rank that will never come.
WAITS = """
import os, sys, time, numpy, covey
covey.init()
covey.allreduce(numpy.ones(3), name="all")
print("up", covey.rank(), os.getpid(), flush=True)
if covey.rank() == int(sys.argv[1]):
    time.sleep(3600)
covey.allreduce(numpy.ones(3), name="never")
"""
FAILS = """
import sys, numpy, covey
covey.init()
covey.allreduce(numpy.ones(3), name="all")
if covey.rank() == int(sys.argv[1]):
    raise ValueError("its own mistake")
covey.allreduce(numpy.ones(3), name="never")
"""


class JoinedTestCase(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.secret = os.path.join(folder.name, "secret")
        self.stack = ExitStack()
        self.addCleanup(self.stack.close)

    def launch(self, *arguments: str, np: int = 2, secret: Optional[str] = None) -> Launched:
        words = ["-np", str(np), "--secret-file", secret or self.secret, *arguments]
        env = {"COVEY_PLUGIN_PATH": PLUGIN_FOLDER, "OMP_NUM_THREADS": "1"}
        return self.stack.enter_context(Launched(words, env=env))

    def serve(self, nodes: int, *arguments: str, np: int = 2) -> Launched:
        return self.launch("--nodes", str(nodes), "--serve", "127.0.0.1:0", *arguments, np=np)

    def address(self, server: Launched) -> str:
        return server.wait_for(r"serving the rendezvous at (\S+);")[0].group(1)

    def pair(self, code: str, *arguments: str) -> List[Launched]:
        command = [PYTHON, "-c", code, *arguments]
        server = self.serve(2, *command)
        return [server, self.launch("--join", self.address(server), *command)]

    def check_ends(self, jobs: List[Launched], code: int) -> None:
        codes = [job.finish() for job in jobs]
        dumps = "\n--\n".join(job.dump() for job in jobs)
        self.assertEqual(codes, [code] * len(jobs), dumps)
        for job in jobs:
            job.wait_until_gone()

    def write_secret(self, mode: int = 0o600, text: bytes = SECRET.encode()) -> List[str]:
        with open(self.secret, "wb") as file:
            file.write(text)
        os.chmod(self.secret, mode)
        return ["--secret-file", self.secret]

    def check_refused(self, job: Launched, *words: str) -> None:
        self.assertEqual(job.finish(), 2, job.dump())
        self.assertEqual(job.stdout(), [])
        for word in words:
            self.assertIn(word, job.stderr()[-1])
