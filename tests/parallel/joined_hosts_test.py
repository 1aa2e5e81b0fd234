"""Goal: launchers on several hosts are one job, as those of one host are: places, books, failures,
and mistakes that are named by all of them.
Method: launchers that take themselves for other hosts; cluster_joined_test.py has real ones."""

from __future__ import annotations

import signal
import unittest
from typing import List

from harness import PLUGIN, PLUGIN_FOLDER, SECRET, WHY_NO_PLUGIN, Launched
from joined import FAILS, PYTHON, SUMS, WAITS, JoinedTestCase

# Rank argv[1] leaves, and the others end well.
LEAVES = """
import os, sys
sys.exit(3 if os.environ["RANK"] == sys.argv[1] else 0)
"""
PAUSES = "import signal; print('up', flush=True); signal.pause()"
# What a rank of several hosts is told.
BOOK = """
import os
text = os.pread(int(os.environ["COVEY_BOOK_FD"]), 1 << 20, 0).decode().splitlines()
title, key, security, *entries = text
hosts = [entry.split()[1] for entry in entries]
print(security, *hosts, key + ";", os.environ["MASTER_ADDR"] + ":" + os.environ["MASTER_PORT"])
"""
AS_HOST = (
    "import sys; import covey.launch.memory as m; from covey.cli import coveyrun_main; "
    "m.host_id = lambda: {!r}; sys.exit(coveyrun_main())"
)


@unittest.skipUnless(PLUGIN, WHY_NO_PLUGIN)
class HostsTest(JoinedTestCase):
    def on(self, host: str, *arguments: str, before: str = "") -> Launched:
        """A launcher that shares no memory with those of other names. `before`: code of its own."""
        words = ["-np", "2", "--secret-file", self.secret, *arguments]
        env = {"COVEY_PLUGIN_PATH": PLUGIN_FOLDER, "OMP_NUM_THREADS": "1"}
        entry = before + AS_HOST.format(host)
        return self.stack.enter_context(Launched(words, env=env, entry=entry))

    def hosts(self, names: str, *arguments: str) -> List[Launched]:
        """A launcher on each of these hosts; the first serves."""
        serve = ["--nodes", str(len(names)), "--serve", "127.0.0.1:0"]
        server = self.on(names[0], *serve, *arguments)
        jobs, join = [server], ["--join", self.address(server)]
        for number, name in enumerate(names[1:], 1):
            jobs.append(self.on(name, *join, "--node", str(number), *arguments))
        return jobs

    def test_launchers_of_several_hosts_are_one_job(self) -> None:
        jobs = self.hosts("aba", PYTHON, "-c", SUMS)
        self.check_ends(jobs, 0)
        for first, job, local_ranks in zip((0, 2, 4), jobs, ((0, 1), (0, 1), (2, 3))):
            wanted = [f"[{first + i}] sum {first + i} 6 {local_ranks[i]} 111111" for i in (0, 1)]
            self.assertEqual(sorted(job.stdout()), wanted)

    def test_ranks_are_told_where_all_are_and_not_the_secret(self) -> None:
        jobs = self.hosts("aba", "--network-security", "auth", PYTHON, "-c", BOOK)
        self.check_ends(jobs, 0)
        told = sorted(line.partition(" ")[2] for job in jobs for line in job.stdout())
        books = {line.partition(";")[0] for line in told}
        self.assertEqual(len(books), 1, "all ranks have one book")
        (said,) = books
        self.assertRegex(said, r"^security auth 0 0 2 2 0 0 key [0-9a-f]{64}$")
        self.assertNotIn(SECRET, said)
        stores = {line.partition(";")[2].split()[-1] for line in told}
        self.assertEqual(len(stores), 1, "of all a store is at one address")

    def test_options_that_differ_are_named_on_all(self) -> None:
        for option, words in (
            (["--network-security", "auth"], "--network-security auth and tls"),
            (["--keep-going"], "--keep-going on one of them"),
        ):
            server = self.on("a", "--nodes", "2", "--serve", "127.0.0.1:0", "true")
            other = self.on("b", "--join", self.address(server), *option, "true")
            for job in (server, other):
                self.check_refused(job, f"nodes 1 and 0 were told different things ({words})")

    def test_a_network_that_the_host_has_not_is_named(self) -> None:
        self.write_secret()
        job = self.on("a", "--join", "127.0.0.1:9", "--network", "198.51.100.0/24", "true")
        self.check_refused(job, "--network 198.51.100.0/24: none of ")

    def test_a_host_that_cannot_listen_is_named_on_all(self) -> None:
        server = self.on("a", "--nodes", "2", "--serve", "127.0.0.1:0", "true")
        cannot = "import covey.launch.formation as f; f.reach.listen = lambda at, n: open('/no'); "
        other = self.on("b", "--join", self.address(server), "true", before=cannot)
        for job in (server, other):
            self.check_refused(job, "node 1 on ", " cannot take part: ", "No such file")

    def test_ports_that_cannot_be_reached_are_named_on_all(self) -> None:
        server = self.on("a", "--nodes", "2", "--serve", "127.0.0.1:0", "true")
        deaf = "import covey.launch.formation as f; listen = f.reach.listen; "
        deaf += "f.reach.listen = lambda at, n: [(it.listen(0), it.shutdown(2), it)[2] "
        deaf += "for it in listen(at, n)]; "
        other = self.on("b", "--join", self.address(server), "true", before=deaf)
        for job in (server, other):
            self.check_refused(job, " cannot reach ", "(connection refused): a firewall?")

    def test_the_failing_rank_is_named_by_both_launchers(self) -> None:
        jobs = self.hosts("ab", PYTHON, "-c", FAILS, "2")
        self.check_ends(jobs, 1)
        for job, where in zip(jobs, (r" on \S+", "")):
            first = [line for line in job.stderr() if "failed first" in line]
            self.assertEqual(len(first), 1, job.dump())
            self.assertRegex(first[0], rf"^coveyrun: rank 2{where} \(pid \d+\) failed first")

    def test_with_keep_going_the_others_go_on(self) -> None:
        jobs = self.hosts("ab", "--keep-going", PYTHON, "-c", LEAVES, "2")
        self.assertEqual([job.finish() for job in jobs], [0, 0], [job.dump() for job in jobs])
        for job in jobs:
            job.wait_for(r"coveyrun: rank 2( on \S+)? \(pid \d+\) has failed: exit code 3; the")
            job.wait_until_gone()
        jobs = self.hosts("ab", "--keep-going", PYTHON, "-c", WAITS, "0")
        for job in jobs:
            job.wait_for(r"\] up", 2)
        jobs[1].process.kill()
        jobs[0].wait_for(r"rank 2 \(pid \d+\) is lost: node 1 on .* the job goes on")
        jobs[0].send(signal.SIGTERM)
        self.assertEqual(jobs[0].finish(), 143)

    def test_with_keep_going_the_server_and_a_ctrl_c_end_all(self) -> None:
        for victim, end in ((0, signal.SIGKILL), (1, signal.SIGINT)):
            jobs = self.hosts("ab", "--keep-going", PYTHON, "-c", PAUSES)
            for job in jobs:
                job.wait_for(r"\] up", 2)
            jobs[victim].send(end)
            other = jobs[1 - victim]
            self.assertEqual(other.finish(), 130 if victim else 1, other.dump())
            for job in jobs:
                job.wait_until_gone()


if __name__ == "__main__":
    unittest.main()
