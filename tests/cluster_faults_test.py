"""Goal: what a process, a host or a link that fails costs the ranks of other hosts, by method: who
goes on, what each rank is told, and the exit code, as the table of the guide says. Method: hosts of
tools/cluster and their faults; jobs of coveyrun -H over TCP, which train until a file is there."""

from __future__ import annotations

import contextlib
import pathlib
import re
import tempfile
import unittest
from typing import Callable, Dict, Iterator, List, Sequence, Tuple

from cluster_hosts_test import Hosts, Job, has_tcp
from cluster_test import cluster, need, until

# With allreduce the ranks agree on the last step.
TRAIN = """
import os, sys, time
import numpy, covey, covey.numpy
covey.init()
method, path = sys.argv[1:]
rank = covey.rank()
def update(parameters, gradients):
    parameters[0] -= gradients[0]
def is_over(step):
    there = os.path.exists(path)
    if method != "allreduce":
        return there
    return covey.allreduce(numpy.array([there * 1.0]), op=covey.Max, name=f"over{step}")[0] > 0
parameters = [numpy.zeros(20000)]
trainer = covey.numpy.Trainer(parameters, update, method=method)
print(f"pid {rank} {os.getpid()}", flush=True)
step = 0
try:
    while not is_over(step):
        trainer.step([numpy.full(20000, rank + 1.0)])
        step += 1
        print(f"step {rank} {step}", flush=True)
        time.sleep(0.02)  # computes
    trainer.finish()
except covey.CoveyError as error:
    print(f"told {rank} {type(error).__name__}: {error}", flush=True)
    sys.exit(3)
print(f"ended {rank} {parameters[0][0]:.9g}", flush=True)
"""

LOCAL = "local:local_steps=2,max_wait=2s"
WAGMA = "wagma:S=2,tau=4,max_wait=2s"
ASYNCHRONOUS = ("eager", "adpsgd", "swarm", LOCAL, WAGMA)
MORE = 20  # steps that show that a rank goes on
LONG = {"COVEY_LEASE": "20s"}  # Whatever happens in a test, it is over before.
SHORT = {"COVEY_LEASE": "3s"}


class Training(Hosts):
    """Rank 0 on a, 1 on b, 2 on c, where the faults are."""

    @contextlib.contextmanager
    def training(
        self, method: str, *options: str, knobs: Dict[str, str]
    ) -> Iterator[Tuple[Job, Callable[[], Tuple[int, str]]]]:
        """A job whose ranks have begun to train, and a function that ends the training and returns
        exit code and output."""
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "over")
            words = ["-H", "a,b,c", *options, *self.python_of(TRAIN, method, str(path))]

            def end() -> Tuple[int, str]:
                path.touch()
                return job.finish()

            with self.job(*words, **knobs) as job:
                self.go_on(job, range(3))
                yield job, end

    def steps(self, job: Job) -> Dict[int, int]:
        """By rank: its last step."""
        found = {0: 0, 1: 0, 2: 0}
        for line in job.so_far():
            match = re.search(r"step (\d) (\d+)$", line)
            if match:
                found[int(match[1])] = int(match[2])
        return found

    def go_on(self, job: Job, ranks: Sequence[int]) -> None:
        """Until each of these ranks has done more steps than now."""
        before = self.steps(job)

        def have_gone_on() -> bool:
            now = self.steps(job)
            self.assertIsNone(job.process.poll(), job.lines)
            return all(now[rank] >= before[rank] + MORE for rank in ranks)

        until(have_gone_on, f"ranks {list(ranks)} train on")

    def check_ended(self, code: int, said: str, ranks: Sequence[int]) -> None:
        """These ranks have ended well, with one model."""
        self.assertEqual(code, 0, said)
        models = dict(re.findall(r"ended (\d) (\S+)$", said, re.M))
        self.assertEqual((sorted(models), len(set(models.values()))),
                         ([str(rank) for rank in ranks], 1), said)

    def pid(self, job: Job, rank: int) -> str:
        """The process number of a rank, on its host."""
        return str(job.wait_for(rf"pid {rank} (\d+)$")[0][1])

    def told(self, said: str, rank: int) -> List[str]:
        """The errors that this rank has raised."""
        return re.findall(rf"told {rank} (.*)$", said, re.M)


@unittest.skipUnless(has_tcp(), "libcovey_tcp.so is not there")
class ProcessTest(Training):
    """A rank that is killed."""

    LOST = r"Aborted: .*: rank 2 has died, or its host has \(.*\)"
    FIRST = r"coveyrun: rank 2 on c \(pid \d+\) failed first: killed by SIGKILL"

    def kill(self, job: Job) -> None:
        self.do("exec", "c", "kill", "-9", self.pid(job, 2))

    def test_it_ends_the_job(self) -> None:
        with self.training("adpsgd", knobs=LONG) as (job, _):
            self.kill(job)
            code, said = job.finish()
        self.assertEqual(code, 137, said)
        self.assertRegex(said, self.FIRST)
        self.assertIn("ranks 0 and 1 ended by the launcher", said)
        self.assertIn("with --keep-going the others go on", said)

    def test_allreduce_tells_every_rank_and_needs_all(self) -> None:
        with self.training("allreduce", "--keep-going", knobs=LONG) as (job, _):
            self.kill(job)
            code, said = job.finish()
        self.assertEqual(code, 137, said)
        for rank in (0, 1):
            self.assertEqual(len(self.told(said, rank)), 1, said)
            self.assertRegex(self.told(said, rank)[0], self.LOST)
        self.assertIn("ranks 0, 1 and 2 failed, and nobody is left", said)
        self.assertRegex(said, self.FIRST)

    def test_the_others_go_on(self) -> None:
        for method in ASYNCHRONOUS:
            with self.subTest(method):
                with self.training(method, "--keep-going", knobs=LONG) as (job, end):
                    self.kill(job)
                    self.go_on(job, (0, 1))
                    code, said = end()
                self.check_ended(code, said, (0, 1))
                self.assertRegex(said, r"rank 2 on c .*killed by SIGKILL; the job goes on")


class PassingTest(Training):
    """A host or a link that comes back within COVEY_LEASE."""

    def check(self, method: str, begin: Sequence[str], end_fault: Sequence[str],
              others: Sequence[int]) -> None:
        with self.training(method, knobs=LONG) as (job, end):
            self.do("fault", *begin)
            try:
                before = self.steps(job)
                if method != "allreduce":
                    self.go_on(job, others)
                after = self.steps(job)
            finally:
                self.do("fault", *end_fault)
            if method == "allreduce" and others == (0, 1):
                self.assertLessEqual(after[0], before[0] + 1)
            self.go_on(job, range(3))
            self.check_ended(*end(), range(3))

    def test_a_frozen_host(self) -> None:
        for method in ("allreduce", *ASYNCHRONOUS):
            with self.subTest(method):
                self.check(method, ("freeze", "c"), ("thaw", "c"), (0, 1))

    def test_an_unplugged_host(self) -> None:
        for method in ("allreduce", *ASYNCHRONOUS):
            with self.subTest(method):
                self.check(method, ("unplug", "c"), ("plug", "c"), (0, 1))

    def test_a_link_that_is_cut_one_way(self) -> None:
        need("--loss, cut")
        for method in ("allreduce", *ASYNCHRONOUS):
            with self.subTest(method):
                begin = ("cut", "c", "--to", "b", "--one-way")
                self.check(method, begin, ("heal", "c"), (0,))

    def test_a_slow_link(self) -> None:
        need("--rate")
        for method in ("allreduce", *ASYNCHRONOUS):
            with self.subTest(method), self.training(method, knobs=LONG) as (job, end):
                self.do("fault", "slow", "c", "--rate", "100mbit")
                try:
                    self.go_on(job, range(3))
                    self.check_ended(*end(), range(3))
                finally:
                    self.do("fault", "heal", "c")


class LossTest(Training):
    """Packets that are lost at random."""

    def test_lost_packets(self) -> None:
        need("--loss, cut")
        self.do("down")
        self.do("up", "3", "--loss", "1%")
        for method in ("allreduce", *ASYNCHRONOUS):
            with self.subTest(method), self.training(method, knobs=LONG) as (job, end):
                self.go_on(job, range(3))
                self.check_ended(*end(), range(3))


class LostTest(Training):
    """A host that stays away."""

    LOST = r"host c is lost, and with it rank 2: (nothing was heard of it for 3 s|ssh ended)"
    # The second to hear of it may have heard of the end of the first, which names the lost one.
    UNREACHABLE = (r"rank 2 (could not be reached for 3 s \(COVEY_LEASE\)|has died|has gone)|"
                   r"rank [01] has left the job after it had lost rank 2")

    def lose(self, method: str, *fault: str, back: Sequence[str] = ()) -> None:
        with self.training(method, "--keep-going", knobs=SHORT) as (job, end):
            self.do("fault", *fault)
            job.wait_for(self.LOST)
            if method != "allreduce":
                self.go_on(job, (0, 1))
                code, said = end()
            if back:
                self.do("fault", *back)
            if method == "allreduce":
                code, said = job.finish()
        if method != "allreduce":
            return self.check_ended(code, said, (0, 1))
        self.assertEqual(code, 1, said)
        for rank in (0, 1):
            self.assertEqual(len(self.told(said, rank)), 1, said)
            self.assertRegex(self.told(said, rank)[0], self.UNREACHABLE)
        self.assertRegex(said, "told . Aborted: .*rank 2 ")

    def test_an_unplugged_host(self) -> None:
        for method in ("allreduce", *ASYNCHRONOUS):
            with self.subTest(method):
                self.lose(method, "unplug", "c", back=("plug", "c"))

    def test_a_frozen_host(self) -> None:
        # Its kernel answers, so that the ranks of other hosts do not lose it: finish() waits.
        in_pairs = ("adpsgd:max_wait=2s", "swarm:max_wait=2s")
        for method in ("allreduce", "eager", *in_pairs, LOCAL, WAGMA):
            with self.subTest(method):
                self.lose(method, "freeze", "c", back=("thaw", "c"))

    def test_the_end_of_a_host(self) -> None:
        self.addCleanup(cluster, "up", self.HOSTS, env=self.env)
        self.addCleanup(cluster, "down", env=self.env)
        self.lose("adpsgd", "kill", "c")


if __name__ == "__main__":
    unittest.main()
