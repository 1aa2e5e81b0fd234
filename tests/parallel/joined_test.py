"""Goal: launchers that know an address and a secret become one job; what keeps them from it, and
who failed or died in it, is one clear sentence on every launcher.
Method: real `coveyrun` processes on loopback, ports chosen by the system and read from what the
serving launcher says."""

from __future__ import annotations

import os
import re
import signal
import socket
import unittest

from harness import OTHER_SECRET, PLUGIN, PLUGIN_FOLDER, WHY_NO_PLUGIN, run_launcher
from joined import FAILS, PYTHON, SUMS, WAITS, JoinedTestCase

from covey.launch.rendezvous_handler import in_plain_words


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

    def test_a_launcher_that_comes_before_the_server_joins_it(self) -> None:
        self.write_secret()
        with socket.create_server(("127.0.0.1", 0)) as found:
            at = f"127.0.0.1:{found.getsockname()[1]}"
        early = self.launch("--join", at, "true")
        early.wait_for(f"nobody serves at {at}")
        server = self.launch("--nodes", "2", "--serve", at, "true")
        self.check_ends([early, server], 0)

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
