"""Goal: launchers that know an address and a secret become one job; what keeps them from it, and
who failed or died in it, is one clear sentence on every launcher.
Method: real `coveyrun` processes on loopback, ports chosen by the system and read from what the
serving launcher says."""

from __future__ import annotations

import os
import re
import signal
import sys
import tempfile
import unittest
from contextlib import ExitStack
from typing import List, Optional

from harness import (
    OTHER_SECRET,
    PLUGIN,
    PLUGIN_FOLDER,
    SECRET,
    WHY_NO_PLUGIN,
    Launched,
    run_launcher,
)

from covey.launch.rendezvous_handler import in_plain_words

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

# Rank argv[1] leaves, and the others end well.
LEAVES = """
import os, sys
sys.exit(3 if os.environ["RANK"] == sys.argv[1] else 0)
"""
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


@unittest.skipUnless(PLUGIN, WHY_NO_PLUGIN)
class JoinedTest(JoinedTestCase):
    def test_two_launchers_are_one_job(self) -> None:
        jobs = self.pair(SUMS)
        self.check_ends(jobs, 0)
        lines = [sorted(job.stdout()) for job in jobs]
        self.assertEqual(lines[0], ["[0] sum 0 4 0 1111", "[1] sum 1 4 1 1111"])
        self.assertEqual(lines[1], ["[2] sum 2 4 2 1111", "[3] sum 3 4 3 1111"])
        self.assertEqual(os.stat(self.secret).st_mode & 0o777, 0o600)

    def test_ranks_follow_the_numbers_asked_for(self) -> None:
        code = [PYTHON, "-c", SUMS]
        server = self.serve(3, "--node", "2", *code, np=1)
        others = [
            self.launch("--join", self.address(server), "--node", str(node), *code, np=node + 1)
            for node in (1, 0)
        ]
        self.check_ends([server, *others], 0)
        ranks = [sorted(line[:3] for line in job.stdout()) for job in (server, *others)]
        self.assertEqual(ranks, [["[3]"], ["[1]", "[2]"], ["[0]"]])

    def test_through_a_file(self) -> None:
        path = os.path.join(self.folder, "address")
        code = [PYTHON, "-c", SUMS]
        with open(path, "w", encoding="ascii") as file:
            file.write("127.0.0.1:9")  # left by a job that was killed; nobody listens there
        self.write_secret()  # Who serves would make it, perhaps after the other has looked for it.
        server = self.launch("--nodes", "2", "--serve", f"file:{path}", *code)
        other = self.launch("--join", f"file:{path}", *code)
        self.check_ends([server, other], 0)
        self.assertFalse(os.path.exists(path))

    def test_the_failing_rank_is_named_by_both_launchers(self) -> None:
        for rank in (2, 0):
            jobs = self.pair(FAILS, str(rank))
            self.check_ends(jobs, 1)
            for job, is_own in zip(jobs, (rank < 2, rank >= 2)):
                said = [line for line in job.stderr() if not line.startswith("[")]
                first = [line for line in said if "failed first" in line]
                where = "" if is_own else r" on \S+"
                self.assertEqual(len(first), 1, said)
                self.assertRegex(first[0], rf"^coveyrun: rank {rank}{where} \(pid \d+\) failed")
                self.assertIn("coveyrun:   ValueError: its own mistake", said)

    def test_a_killed_launcher_is_named_with_its_ranks(self) -> None:
        for victim in (1, 0):
            jobs = self.pair(WAITS, str(victim * 2))
            for job in jobs:
                job.wait_for(r"\] up", 2)
            jobs[victim].process.kill()
            survivor = jobs[1 - victim]
            self.assertEqual(survivor.finish(), 1, survivor.dump())
            ranks = "ranks 2-3" if victim else "ranks 0-1"
            pid = jobs[victim].process.pid
            wanted = rf"^coveyrun: node {victim} on \S+ \(process {pid}, {ranks}\).* has died"
            self.assertTrue(any(re.search(wanted, line) for line in survivor.stderr()))
            for job in jobs:
                job.wait_until_gone()

    def test_an_interrupted_launcher_ends_the_others(self) -> None:
        jobs = self.pair(WAITS, "2")
        for job in jobs:
            job.wait_for(r"\] up", 2)
        jobs[1].send(signal.SIGTERM)
        self.assertEqual(jobs[1].finish(), 143)
        self.assertEqual(jobs[0].finish(), 143, jobs[0].dump())
        self.assertIn("coveyrun:   its launcher got SIGTERM", jobs[0].stderr())


@unittest.skipUnless(PLUGIN, WHY_NO_PLUGIN)
class RefusalTest(JoinedTestCase):
    """Before any rank has started; the one that serves is not harmed."""

    def setUp(self) -> None:
        super().setUp()
        self.server = self.serve(2, "true")
        self.at = self.address(self.server)

    def test_what_does_not_fit_is_refused_and_the_job_begins_without_it(self) -> None:
        other = self.another_secret()
        join = ["--join", self.at]
        self.check_refused(
            self.launch(*join, "true", secret=other),
            f"the rendezvous at {self.at} does not accept this node's secret",
            "give every node the same secret file",
        )
        self.check_refused(
            self.launch(*join, "--nodes", "3", "true"),
            "this node was told of 3 nodes, the rendezvous of 2",
        )
        self.check_refused(
            self.launch(*join, "--node", "0", "true"),
            f"node 0 is taken by process {self.server.process.pid} on ",
        )
        self.check_refused(self.launch(*join, "--node", "2", "true"), "there is no node 2 in a job")
        self.check_refused(self.launch(*join, "true", np=1023), "1025 ranks; at most 1024")
        self.check_refused(
            self.launch("--nodes", "2", "--serve", self.at, "true"),
            f"cannot serve at {self.at}: Address already in use",
        )
        self.assertEqual(self.launch(*join, "true").finish(), 0)
        self.assertEqual(self.server.finish(), 0, self.server.dump())

    def test_who_waits_hears_of_strangers_and_can_be_interrupted(self) -> None:
        stranger = self.launch("--join", self.at, "true", secret=self.another_secret())
        self.assertEqual(stranger.finish(), 2)
        self.server.wait_for("1 of 2 nodes have joined.*turned away without the job's secret: ")
        self.server.send(signal.SIGINT)
        self.assertEqual(self.server.finish(), 130, self.server.dump())

    def another_secret(self) -> str:
        path = os.path.join(self.folder, "other")
        with open(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600), "w", encoding="ascii") as file:
            file.write(OTHER_SECRET + "\n")
        return path


@unittest.skipUnless(PLUGIN, WHY_NO_PLUGIN)
class HostsTest(JoinedTestCase):
    """Launchers that take themselves for other hosts: tests/cluster_joined_test.py has real ones."""

    def on(self, host: str, *arguments: str, np: int = 2) -> Launched:
        """A launcher that shares no memory with those of other names."""
        words = ["-np", str(np), "--secret-file", self.secret, *arguments]
        env = {"COVEY_PLUGIN_PATH": PLUGIN_FOLDER, "OMP_NUM_THREADS": "1"}
        return self.stack.enter_context(Launched(words, env=env, entry=AS_HOST.format(host)))

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
        words = ["-np", "2", "--secret-file", self.secret, "--join", self.address(server), "true"]
        env = {"COVEY_PLUGIN_PATH": PLUGIN_FOLDER}
        entry = cannot + AS_HOST.format("b")
        other = self.stack.enter_context(Launched(words, env=env, entry=entry))
        for job in (server, other):
            self.check_refused(job, "node 1 on ", " cannot take part: ", "No such file")

    def test_ports_that_cannot_be_reached_are_named_on_all(self) -> None:
        server = self.on("a", "--nodes", "2", "--serve", "127.0.0.1:0", "true")
        deaf = "import covey.launch.formation as f; listen = f.reach.listen; "
        deaf += "f.reach.listen = lambda at, n: [(it.listen(0), it.shutdown(2), it)[2] "
        deaf += "for it in listen(at, n)]; "
        words = ["-np", "2", "--secret-file", self.secret, "--join", self.address(server), "true"]
        env = {"COVEY_PLUGIN_PATH": PLUGIN_FOLDER}
        other = self.stack.enter_context(Launched(words, env=env, entry=deaf + AS_HOST.format("b")))
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
            job.wait_for(r"coveyrun: rank 2( on \S+)? \(pid \d+\) has failed: exit code 3; the job")
            job.wait_until_gone()
        jobs = self.hosts("ab", "--keep-going", PYTHON, "-c", WAITS, "0")
        for job in jobs:
            job.wait_for(r"\] up", 2)
        jobs[1].process.kill()
        jobs[0].wait_for(r"rank 2 \(pid \d+\) is lost: node 1 on .* the job goes on")
        jobs[0].send(signal.SIGTERM)
        self.assertEqual(jobs[0].finish(), 143)

    def test_with_keep_going_the_server_and_a_ctrl_c_end_all(self) -> None:
        for end in (signal.SIGKILL, signal.SIGINT):
            jobs = self.hosts("ab", "--keep-going", PYTHON, "-c", WAITS, "0")
            for job in jobs:
                job.wait_for(r"\] up", 2)
            jobs[0].send(end)
            self.assertNotEqual(jobs[1].finish(), 0, jobs[1].dump())
            for job in jobs:
                job.wait_until_gone()


@unittest.skipUnless(PLUGIN, WHY_NO_PLUGIN)
class WaitingTest(JoinedTestCase):
    def test_an_address_where_nobody_listens(self) -> None:
        self.write_secret()
        job = self.launch("--join", "127.0.0.1:9", "--start-timeout", "1", "true")
        self.check_refused(job, "did not form within 1 s", "nobody serves at 127.0.0.1:9; if a job")

    def test_that_it_waits_for_who_serves_is_told_before(self) -> None:
        self.write_secret()
        job = self.launch("--join", "127.0.0.1:9", "--start-timeout", "60", "true")
        told = "coveyrun: nobody serves at 127.0.0.1:9; gives up after 60 s (--start-timeout)"
        job.wait_for(f"^{re.escape(told)}$")
        job.process.send_signal(signal.SIGTERM)
        self.assertEqual(job.finish(), 128 + signal.SIGTERM, job.dump())
        self.assertNotIn("connect", job.dump())

    def test_why_nobody_answers_is_told_in_plain_words(self) -> None:
        for why, words in (
            ("failed to connect; UNKNOWN: ipv4:h:1: Connection refused", "nobody serves at h:1"),
            ("DNS resolution failed for h:1: not found", "the host of h:1 is not known here"),
            ("UNKNOWN: Network is unreachable", "h:1 cannot be reached from here"),
            ("Deadline Exceeded", "no answer from h:1"),
        ):
            self.assertEqual(in_plain_words(f"no answer from h:1 ({why})"), words)
        self.assertEqual(in_plain_words("1 of 2 nodes"), "1 of 2 nodes")

    def test_who_is_missing_is_told(self) -> None:
        job = self.serve(3, "--start-timeout", "1", "true")
        other = self.launch("--join", self.address(job), "--start-timeout", "60", "true")
        self.check_refused(job, "did not form within 1 s", " of 3 nodes have joined; waiting for ")
        self.assertEqual(other.process.wait(60), 2, other.dump())

    def test_an_address_file_that_nobody_writes(self) -> None:
        self.write_secret()
        path = os.path.join(self.folder, "address")
        job = self.launch("--join", f"file:{path}", "--start-timeout", "1", "true")
        self.check_refused(job, "did not form within 1 s", f"no answer from file:{path} yet")


class MistakeTest(JoinedTestCase):
    """Found before anything is opened: no plug-in is needed."""

    def refused(self, *arguments: str, plugin: str = "/nowhere") -> str:
        words = ["-np", "2", *arguments, "true"]
        code, out, err = run_launcher(words, env={"COVEY_PLUGIN_PATH": plugin})
        self.assertEqual((code, out, len(err)), (2, [], 1), err)
        return err[0]

    def test_options_that_do_not_go_together(self) -> None:
        at = "127.0.0.1:0"
        for words, wanted in (
            (["--nodes", "2"], "--nodes needs --serve ADDRESS or --join ADDRESS"),
            (["--node", "0"], "--node needs --serve ADDRESS or --join ADDRESS"),
            (["--secret-file", "x"], "--secret-file needs --serve ADDRESS or --join ADDRESS"),
            (["--serve", at, "--join", at], "a launcher does one of them"),
            (["--serve", at], "--serve needs --nodes N"),
            (["--join", at], "--secret-file FILE is missing"),
            (["--nodes", "0"], "0 is not a number of launchers"),
            (["--node", "-1"], "-1"),
        ):
            self.assertIn(wanted, self.refused(*words))

    def test_a_secret_file_that_is_none(self) -> None:
        join = ["--join", "127.0.0.1:9"]
        for mode in (0o640, 0o604, 0o620, 0o602):
            said = self.refused(*join, *self.write_secret(mode))
            self.assertIn(f"open to other users (mode {mode:04o}): chmod 600", said)
        for weak in (b"0123456789abcdef" * 2, b"abcdefgh" * 6):
            said = self.refused(*join, *self.write_secret(text=weak))
            self.assertIn("does not hold 32 drawn bytes as 64 hexadecimal digits or as", said)
            self.assertIn("write what `openssl rand -hex 32` gives into it", said)
        self.assertIn("No such file", self.refused(*join, "--secret-file", "/nowhere/secret"))
        self.assertIn("is not a file", self.refused(*join, "--secret-file", "/dev/null"))
        pipe, link = (os.path.join(self.folder, name) for name in ("pipe", "link"))
        os.mkfifo(pipe, 0o600)
        self.assertIn("is not a file", self.refused(*join, "--secret-file", pipe))
        os.symlink(self.secret, link)
        said = self.refused(*join, "--secret-file", link)
        self.assertIn("it is a symbolic link; name the file itself", said)
        serve = ["--serve", "127.0.0.1:0", "--nodes", "2"]
        said = self.refused(*serve, "--secret-file", "/nowhere/secret")
        self.assertIn("cannot make the secret file /nowhere/secret", said)

    def test_without_the_plug_in_the_way_out_is_told(self) -> None:
        said = self.refused("--join", "127.0.0.1:9", *self.write_secret())
        self.assertIn("the plug-in libcovey_grpc.so is in none of the places looked at", said)
        self.assertIn("/nowhere (COVEY_PLUGIN_PATH)", said)
        self.assertIn("start all ranks with one coveyrun", said)

    @unittest.skipUnless(PLUGIN, WHY_NO_PLUGIN)
    def test_an_address_that_is_none(self) -> None:
        for address in ("29500", "host:", ":29500", "host:port", "host:99999"):
            said = self.refused("--join", address, *self.write_secret(), plugin=PLUGIN_FOLDER)
            self.assertIn(f'"{address}" is not an address of the form HOST:PORT', said)


if __name__ == "__main__":
    unittest.main()
