"""Goal: launchers and ranks that know an address and a secret become one job on hosts that share
nothing but a network; a launcher that is killed or cut off ends the job on every host.
Method: hosts of tools/cluster; a coveyrun on each by --serve and --join, and ranks with the
variables of Slurm."""

from __future__ import annotations

import contextlib
import os
import pathlib
import signal
import subprocess
import tempfile
import unittest
from typing import Dict, Iterator, List

import cluster_programs as programs
from cluster_hosts_test import Hosts, Job
from cluster_tensors_test import OPERATIONS, TRAINING, start
from cluster_test import _LIMIT_S, need

_PLUGIN_FOLDER = pathlib.Path(__file__).absolute().parents[1] / "ops" / "control"
_SECRET = "9e7d24f0c1b85a3362d4f1a07bc8e9554f0d3a1c67b29e8840f5d6c7ab1392e4"

EAGER = TRAINING.replace("METHODS.split()", "['eager:admit=all']")
WHERE = """
import covey, numpy, socket
covey.init()
total = covey.allreduce(numpy.full(50_000, 10.0 ** covey.rank()), op=covey.Sum, name="x")
print("fine", covey.rank(), covey.local_rank(), socket.gethostname(), int(total[0]), flush=True)
covey.shutdown()
"""


@unittest.skipUnless((_PLUGIN_FOLDER / "libcovey_grpc.so").exists(), "libcovey_grpc.so is missing")
class JoinedHosts(Hosts):
    def setUp(self) -> None:
        super().setUp()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.secret = os.path.join(self.folder, "secret")
        with open(os.open(self.secret, os.O_CREAT | os.O_WRONLY, 0o600), "w") as file:
            file.write(_SECRET)

    def variables(self, **more: str) -> Dict[str, str]:
        return {"COVEY_PLUGIN_PATH": str(_PLUGIN_FOLDER), "OMP_NUM_THREADS": "1", **more}


class LaunchersTest(JoinedHosts):
    """A coveyrun on each host."""

    @contextlib.contextmanager
    def jobs(self, hosts: str, np: int, *arguments: str, **more: str) -> Iterator[List[Job]]:
        """One on each of the hosts; a serves, and is the first."""
        words = ["-np", str(np), "--secret-file", self.secret]
        env = self.variables(**more)
        with contextlib.ExitStack() as stack:
            serve = ["--nodes", str(len(hosts)), "--serve", "10.77.0.1:0"]
            made = [stack.enter_context(self.job(*words, *serve, *arguments, **env))]
            at = made[0].wait_for(r"serving the rendezvous at (\S+);")[0].group(1)
            for number, host in enumerate(hosts[1:], 1):
                join = ["--join", at, "--node", str(number)]
                job = self.job(*words, *join, *arguments, host=host, **env)
                made.append(stack.enter_context(job))
            yield made

    def test_operations_and_a_method_of_two_and_two(self) -> None:
        with self.jobs("ab", 2, *self.python_of(EAGER + OPERATIONS)) as jobs:
            ends = [job.finish() for job in jobs]
        self.assertEqual([code for code, _ in ends], [0, 0], ends)
        for rank in range(4):
            self.assertEqual(ends[rank // 2][1].count(f"[{rank}] fine {rank}"), 2, ends)

    def test_a_host_behind_a_firewall_is_named_before_a_rank_starts(self) -> None:
        need("--loss, cut")
        self.do("fault", "cut", "b", "--to", "c")
        self.addCleanup(self.do, "fault", "heal", "all")
        with self.jobs("abc", 1, *self.python_of("print('started')")) as jobs:
            for job in jobs:
                code, said = job.finish()
                self.assertEqual(code, 2, said)
                self.assertRegex(said, r"b cannot reach c at 10\.77\.0\.3:\d+ \(no answer within")
                self.assertRegex(said, r"c cannot reach b at 10\.77\.0\.2:\d+ .*--network")
                self.assertNotIn("started", said)

    def test_a_killed_launcher_ends_the_job_on_all_hosts(self) -> None:
        for victim, survivor in ((1, 0), (0, 1)):
            with self.jobs("ab", 1, *self.python_of(programs.WAIT)) as jobs:
                for job in jobs:
                    job.wait_for(r"\] up")
                os.kill(self.launcher("ab"[victim]), signal.SIGKILL)
                code, said = jobs[survivor].finish()
                self.assertEqual(code, 1, said)
                self.assertRegex(said, rf"node {victim} on {'ab'[victim]} \(process .* has died")

    def launcher(self, host: str) -> int:
        """The process of coveyrun on that host, not that of the tool which has started it."""
        for pid in self.left():
            words = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            is_launcher = any(b"coveyrun_main" in word for word in words) and b"exec" not in words
            if is_launcher and (b"--serve" in words) == (host == "a"):
                return pid
        raise AssertionError(f"no coveyrun on {host}")

    def test_a_cut_ends_the_job_on_both_sides(self) -> None:
        need("--loss, cut")
        with self.jobs("ab", 1, *self.python_of(programs.WAIT), COVEY_LEASE="2s") as jobs:
            for job in jobs:
                job.wait_for(r"\] up")
            self.do("fault", "cut", "a", "--to", "b")
            self.addCleanup(self.do, "fault", "heal", "all")
            ends = [job.finish() for job in jobs]
        self.assertEqual([code for code, _ in ends], [1, 1], ends)
        self.assertRegex(ends[0][1], r"node 1 on b .* is silent for longer than 2000 ms")
        self.assertRegex(ends[1][1], r"node 0 on a .*, which served the rendezvous, has died")


class RanksTest(JoinedHosts):
    """Ranks with the variables of Slurm, as of `srun python train.py`."""

    def test_three_ranks_on_two_hosts(self) -> None:
        file = f"file:{os.path.join(self.folder, 'address')}"
        for address in ("10.77.0.1:29512", file):
            env = {**self.env, **self.variables(COVEY_SECRET_FILE=self.secret)}
            env |= {"COVEY_RENDEZVOUS": address, "SLURM_STEP_NUM_TASKS": "3"}
            ranks: List["subprocess.Popen[str]"] = []
            for rank, host in enumerate("aba"):
                own = {**env, "SLURM_PROCID": str(rank)}
                ranks.append(start(host, *self.python_of(WHERE), env=own))
            said = [rank.communicate(timeout=_LIMIT_S)[0] for rank in ranks]
            places = ("0 0 a", "1 0 b", "2 1 a")
            wanted = [f"fine {place} 111\n" for place in places]
            self.assertEqual(said, wanted, "\n".join(said))


if __name__ == "__main__":
    unittest.main()
