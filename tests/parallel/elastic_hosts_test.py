"""Goal: an elastic job on several hosts goes on when ranks or hosts are lost, and takes in hosts
that come. Method: a program in ssh's place runs the agents on this machine; a host is lost when its
agent is killed. All ranks have one state at the end. cluster_elastic_test.py has real hosts."""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import signal
import sys
import tempfile
import unittest
from typing import Iterator, List, Tuple

import elastic_program
import fake_ssh
from harness import Launched, run_launcher

class Case(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.ssh, _ = fake_ssh.write(self.folder)

    @contextlib.contextmanager
    def job(self, *flags: str, lease: str = "10s") -> Iterator[Launched]:
        command = [sys.executable, "-c", elastic_program.TRAINS, str(self.folder)]
        words = ["--ssh", str(self.ssh), *flags, *command]
        with Launched(words, env={"COVEY_LEASE": lease}) as job:
            yield job
            job.wait_until_gone()

    def places(self, job: Launched, size: int, worlds: int = 1) -> List[Tuple[str, str]]:
        """(pid, its agent's) of each rank, when all are in so many worlds of that size."""
        found = job.wait_for(rf"pid (\d+) of (\d+) is (\d+) of {size},", size * worlds)
        last = sorted(found[-size:], key=lambda it: int(it[3]))
        self.assertEqual([int(it[3]) for it in last], list(range(size)))
        return [(it[1], it[2]) for it in last]

    def end(self, job: Launched, size: int) -> str:
        """All ranks end well, with equal states. Returns what coveyrun has said."""
        (self.folder / "end").touch()
        self.assertEqual(job.finish(), 0, job.dump())
        ends = sorted(line.partition(" ")[2] for line in job.stdout() if "] end " in line)
        self.assertEqual(ends, [f"end {rank} of {size}: 1" for rank in range(size)], job.dump())
        return "\n".join(job.stderr())


class RanksTest(Case):
    def test_a_killed_rank_is_replaced_on_its_host(self) -> None:
        with self.job("-H", "a:2,b:2", "--min-np", "2") as job:
            before = self.places(job, 4)
            os.kill(int(before[0][0]), signal.SIGKILL)
            job.wait_for(r"world 2: 3 ranks on 2 hosts|world 2: 4 ranks on 2 hosts")
            after = self.places(job, 4, worlds=2)
            said = self.end(job, 4)
        self.assertEqual([agent for _, agent in after], [agent for _, agent in before])
        self.assertEqual(after[0], before[1], "a rank that has the state is the first")
        self.assertEqual(after[2:], before[2:])
        self.assertIn("rank 0 on a (pid", said)

    def test_more_ranks_fill_the_slots(self) -> None:
        with self.job("-H", "a:1,b:2", "-np", "1", "--min-np", "1", "--max-np", "3") as job:
            self.places(job, 3)
            self.assertNotIn("world 2", self.end(job, 3))


class HostsTest(Case):
    def test_a_lost_host_comes_back(self) -> None:
        with self.job("-H", "a:1,b:2", "--min-np", "1") as job:
            before = self.places(job, 3)
            os.kill(int(before[1][1]), signal.SIGKILL)
            self.assertEqual(self.places(job, 1), before[:1])
            after = self.places(job, 3, worlds=2)
            said = self.end(job, 3)
        self.assertEqual(after[0], before[0])
        self.assertNotEqual(after[1][1], before[1][1], "another agent")
        self.assertRegex(said, "host b is lost, and with it ranks 1 and 2: ssh ended with")
        self.assertIn("host b has come, with room for 2 ranks", said)

    def test_a_spare_host_takes_the_place_of_a_lost_one_and_the_first_may_be_lost(self) -> None:
        with self.job("-H", "a:1,b:1,c:1", "-np", "2", "--min-np", "1") as job:
            before = self.places(job, 2)
            os.kill(int(before[0][1]), signal.SIGKILL)
            after = self.places(job, 2, worlds=2)
            said = self.end(job, 2)
        self.assertEqual(after[0], before[1])
        self.assertIn("host c has come, with room for 1 rank", said)

    def test_a_frozen_host_is_given_up(self) -> None:
        with self.job("-H", "a:1,b:2", "-np", "3", "--min-np", "1", lease="4s") as job:
            before = self.places(job, 3)
            frozen = [int(it) for it in {*before[1], *before[2]}]
            for pid in frozen:
                os.kill(pid, signal.SIGSTOP)
            try:
                self.assertEqual(self.places(job, 1), before[:1])
                self.places(job, 3, worlds=2)
            finally:
                for pid in frozen:
                    os.kill(pid, signal.SIGCONT)
            said = self.end(job, 3)
        self.assertIn("nothing was heard of it for 4 s (COVEY_LEASE)", said)
        self.assertIn("the host of ranks 1 and 2 is lost, says coveyrun", said)


class DiscoveryTest(Case):
    def lists(self, *lines: str) -> None:
        """From now on the script lists these."""
        part = self.folder / "part"
        part.write_text("\n".join(lines) + "\n", encoding="utf-8")
        part.rename(self.folder / "hosts")

    def flags(self, *more: str) -> Tuple[str, ...]:
        return ("--host-discovery-script", f"cat {self.folder}/hosts", *more)

    def test_hosts_come_and_leave(self) -> None:
        self.lists("a")
        with self.job(*self.flags("-np", "1", "--min-np", "1", "--max-np", "4")) as job:
            first = self.places(job, 1)
            self.lists("a", "b", "empty")
            second = self.places(job, 2)
            job.wait_for("host empty cannot come: .*No module named covey.*; it is tried again")
            self.lists("b")
            self.assertEqual(self.places(job, 1, worlds=2), second[1:])
            self.lists("no slots:here")
            job.wait_for(r"--host-discovery-script cat .*/hosts: line 1: .*here")
            self.lists("# none")
            job.wait_for(r"cat .*/hosts: it lists no host; the hosts stay as they are")
            said = self.end(job, 1)
        self.assertEqual(second[:1], first)
        self.assertIn("host a leaves the job: it is listed no more", said)
        self.assertNotIn("has failed", said)
        self.assertNotIn("goes back", said, "nothing is lost")

    def test_too_few_hosts_are_waited_for_so_long(self) -> None:
        self.lists("a:1", "b:1")
        with self.job(*self.flags("-np", "2", "--min-np", "2", "--elastic-timeout", "1")) as job:
            self.places(job, 2)
            self.lists("a:1")
            self.assertEqual(job.finish(), 1)
        wanted = r"1 of 2 ranks \(--min-np\) came within 1 s \(--elastic-timeout\)"
        self.assertRegex(job.dump(), wanted)

    def test_a_start_without_enough_hosts_says_so(self) -> None:
        self.lists("a:1")
        words = self.flags("-np", "2", "--min-np", "1", "--start-timeout", "1")
        code, _, err = run_launcher([*words, "true"])
        self.assertEqual(code, 2)
        self.assertRegex(err[0], r"after 1 s \(--start-timeout\) it lists a:1")

    def test_the_script_ends_with_coveyrun_however_that_ends(self) -> None:
        words = ["-np", "1", "--min-np", "1", "--host-discovery-script", "sleep 1000 & wait"]
        waits = "^coveyrun: .*sleep 1000 & wait runs, and has listed no host; waiting for -np"
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL):
            with self.subTest(number=number), Launched([*words, "true"]) as job:
                job.wait_for(waits)
                job.send(number)
                code = -number if number == signal.SIGKILL else 128 + number
                self.assertEqual(job.finish(), code, job.dump())
                job.wait_until_gone()
                self.assertEqual(len(job.all()), 1 + (number != signal.SIGKILL), job.dump())

    def test_wrong_options_are_refused(self) -> None:
        (self.folder / "hosts").touch()
        for flags, wanted in (
            (self.flags("-np", "2"), "--host-discovery-script needs --min-np N"),
            (self.flags("--min-np", "1"), "-np N is missing"),
            (self.flags("-np", "1", "--min-np", "1", "-H", "a"), "say one of them"),
            (("--host-discovery-script", "no-such-program-x", "-np", "1", "--min-np", "1"), "127"),
            (("-np", "1", "--min-np", "1", "--cooldown-range", "1"), "is tried again after 5 s"),
        ):
            with self.subTest(flags=flags):
                code, _, err = run_launcher([*flags, "true"])
                self.assertEqual(code, 2, err)
                self.assertTrue(any(re.search(wanted, line) for line in err), err)


if __name__ == "__main__":
    unittest.main()
