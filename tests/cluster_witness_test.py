"""Goal: of two hosts that do not hear each other the one goes on that reaches coveyrun, whichever
it is, long before the other is lost; when it dies after that, the other goes on from its own last
version and says what was lost. Method: ranks on a and b, coveyrun on c, of tools/cluster; jobs of
coveyrun -H over TCP, which train until a file is there. A lease is longer than what is waited
for."""

from __future__ import annotations

import contextlib
import pathlib
import re
import tempfile
import time
import unittest
from typing import Callable, Dict, Iterator, Sequence, Tuple

from cluster_faults_test import LOCAL, LONG, MORE, TRAIN, WAGMA
from cluster_hosts_test import Hosts, Job, has_tcp
from cluster_test import need, until

METHODS = ("eager", WAGMA, LOCAL)
# The longest that a rank may wait where the other host is silent: max_wait, three times
# election_timeout (a tenth of the lease), and a slow machine.
_MOST_S = 15.0


@unittest.skipUnless(has_tcp(), "libcovey_tcp.so is not there")
class WitnessTest(Hosts):
    """Ranks 0 on a, 1 on b."""

    @contextlib.contextmanager
    def training(
        self, hosts: str, method: str, *options: str
    ) -> Iterator[Tuple[Job, Callable[[], Tuple[int, str]]]]:
        """A job whose ranks have begun to train, and a function that ends the training and returns
        exit code and output."""
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "over")
            words = ["-H", hosts, *options, *self.python_of(TRAIN, method, str(path))]

            def end() -> Tuple[int, str]:
                path.touch()
                return job.finish()

            with self.job(*words, host="c", **LONG) as job:
                size = 4 if ":2" in hosts else 2
                until(lambda: min(self.steps(job, size).values()) > MORE, "all ranks train")
                yield job, end

    def steps(self, job: Job, size: int) -> Dict[int, int]:
        """By rank: its last step."""
        found = dict.fromkeys(range(size), 0)
        for line in job.so_far():
            match = re.search(r"step (\d) (\d+)$", line)
            if match:
                found[int(match[1])] = int(match[2])
        self.assertIsNone(job.process.poll(), job.lines)
        return found

    def go_on(self, job: Job, ranks: Sequence[int], size: int = 2) -> None:
        """Until each of these ranks has done more steps than now, and no host is lost by then."""
        before, began = self.steps(job, size), time.monotonic()

        def have_gone_on() -> bool:
            now = self.steps(job, size)
            return all(now[rank] >= before[rank] + MORE for rank in ranks)

        until(have_gone_on, f"ranks {list(ranks)} train on")
        self.assertLess(time.monotonic() - began, _MOST_S, job.lines)
        self.assertNotRegex("\n".join(job.so_far()), r"host \w is lost")

    def check_ended(self, code: int, said: str, ranks: Sequence[int]) -> None:
        """These ranks have ended well, with one model."""
        self.assertEqual(code, 0, said)
        models = dict(re.findall(r"ended (\d) (\S+)$", said, re.M))
        self.assertEqual((sorted(models), len(set(models.values()))),
                         ([str(rank) for rank in ranks], 1), said)

    def test_either_host_may_be_unplugged(self) -> None:
        for method in METHODS:
            with self.subTest(method), self.training("a,b", method) as (job, end):
                for host, other in (("a", 1), ("b", 0)):
                    self.do("fault", "unplug", host)
                    try:
                        self.go_on(job, (other,))
                    finally:
                        self.do("fault", "plug", host)
                    self.go_on_when_back(job)
                self.check_ended(*end(), (0, 1))

    def test_two_ranks_of_a_host_go_on(self) -> None:
        with self.training("a:2,b:2", "eager") as (job, end):
            self.do("fault", "unplug", "a")
            try:
                self.go_on(job, (2, 3), 4)
            finally:
                self.do("fault", "plug", "a")
            before = self.steps(job, 4)
            until(lambda: all(now >= before[rank] + MORE
                              for rank, now in self.steps(job, 4).items()), "all train on")
            self.check_ended(*end(), range(4))

    def go_on_when_back(self, job: Job) -> None:
        """The system repeats what was lost at growing intervals."""
        before = self.steps(job, 2)
        until(lambda: all(now >= before[rank] + MORE
                          for rank, now in self.steps(job, 2).items()), "both ranks train on")

    def test_of_two_that_reach_it_one_goes_on(self) -> None:
        need("--loss, cut")
        with self.training("a,b", "eager") as (job, end):
            self.do("fault", "cut", "a", "--to", "b")
            try:
                before = self.steps(job, 2)
                until(lambda: any(now >= before[rank] + 3 * MORE
                                  for rank, now in self.steps(job, 2).items()), "one trains on")
                after = self.steps(job, 2)
                self.assertLess(min(after[rank] - before[rank] for rank in (0, 1)), MORE, after)
            finally:
                self.do("fault", "heal", "a")
            self.go_on_when_back(job)
            self.check_ended(*end(), (0, 1))

    def test_the_other_says_what_was_lost(self) -> None:
        with self.training("a,b", "eager", "--keep-going") as (job, end):
            pid = job.wait_for(r"pid 0 (\d+)$")[0][1]
            self.do("fault", "unplug", "b")
            try:
                self.go_on(job, (0,))
                self.do("exec", "a", "kill", "-9", pid)
            finally:
                self.do("fault", "plug", "b")
            lost = job.wait_for(r"versions (\d+) to (\d+) of '.*' are lost: only ranks had them "
                                r"that are dead \(of rank 0\); training goes on from version (\d+)")
            first, last, own = (int(lost[0][at]) for at in (1, 2, 3))
            self.assertEqual(first, own + 1)
            self.assertGreater(last, own)
            before = self.steps(job, 2)
            until(lambda: self.steps(job, 2)[1] >= before[1] + MORE, "rank 1 trains on")
            self.check_ended(*end(), (1,))


if __name__ == "__main__":
    unittest.main()
