"""Goal: a job of `coveyrun -H` on several hosts is to a person what one on a single host is:
output, exit codes, endings, mistakes. Method: a program in ssh's place runs the agents on this
machine, so that several of them play hosts; cluster_hosts_test.py has real ones."""

from __future__ import annotations

import json
import os
import pathlib
import shlex
import signal
import sys
import tempfile
import time
import unittest
from typing import Any, Callable, Dict, List, Tuple

import fake_ssh
from harness import LIMIT_S, Hang, Launched, processes_with, run_launcher, wait_for_state

from covey.launch.spec import LaunchError
from covey.launch.station import Station

PYTHON = sys.executable
# Checks what a rank gets, greets the next rank through its listener, and prints its place.
PLACE = """
import os, socket
e = os.environ
rank, size = int(e["COVEY_RANK"]), int(e["COVEY_SIZE"])
text = os.pread(int(e["COVEY_BOOK_FD"]), 1 << 20, 0).decode()
title, key, security, *lines = text.splitlines()
assert title == "covey book 1" and security == "security tls", text
(word, digits) = key.split()
assert len(bytes.fromhex(digits)) == 32
for file in ("environ", "cmdline"):
    for process in ("self", e["COVEY_LAUNCHER_PID"]):
        with open(f"/proc/{process}/{file}", "rb") as seen:
            assert digits.encode() not in seen.read()
entries = [line.split() for line in lines]
assert [int(entry[0]) for entry in entries] == list(range(size))
own = socket.socket(fileno=int(e["COVEY_LISTEN_FD"]))
assert own.getblocking() and list(map(str, own.getsockname()[:2])) == entries[rank][2:]
_, _, address, port = entries[(rank + 1) % size]
with socket.create_connection((address, int(port))) as out:
    out.sendall(bytes([rank]))
    with own.accept()[0] as came:
        assert came.recv(1) == bytes([(rank - 1) % size])
memory = os.fstat(int(e["COVEY_SHM_FD"])).st_ino
print(entries[rank][1], e["COVEY_LOCAL_RANK"], e["COVEY_LOCAL_SIZE"], e["GROUP_RANK"], memory)
"""
WAIT = (
    "import os, signal; print('up', os.environ['COVEY_LAUNCHER_PID'], flush=True); signal.pause()"
)


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        if time.monotonic() > deadline:
            raise Hang("it is still not so")
        time.sleep(0.01)  # A poll: the system does not tell about other people's processes.


def python(code: str) -> List[str]:
    return [PYTHON, "-c", code]


class HostsTest(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.ssh, self.log = fake_ssh.write(self.folder)

    def words(self, hosts: str, *more: str) -> List[str]:
        return ["--ssh", str(self.ssh), "--quiet", "-H", hosts, *more]

    def run_on(self, hosts: str, *more: str, **options: Any) -> Tuple[int, List[str], List[str]]:
        return run_launcher(self.words(hosts, *more), **options)

    def launched(self, hosts: str, *more: str, **options: Any) -> Launched:
        return Launched(self.words(hosts, *more), **options)

    def called(self) -> Dict[str, List[str]]:
        """The options of ssh by host."""
        return dict(json.loads(line) for line in self.log.read_text().splitlines())

    # ---- A job that goes well ------------------------------------------------------------------

    def test_ranks_have_their_place_the_book_and_a_listener(self) -> None:
        code, out, err = self.run_on("a:2,noisy:1,c:2", *python(PLACE))
        self.assertEqual((code, err), (0, []))
        seen = {line.split()[0]: line.split()[1:] for line in out}
        places = {rank: words[:4] for rank, words in seen.items()}
        self.assertEqual(
            places,
            {
                "[0]": ["0", "0", "2", "0"],
                "[1]": ["0", "1", "2", "0"],
                "[2]": ["2", "0", "1", "1"],
                "[3]": ["3", "0", "2", "2"],
                "[4]": ["3", "1", "2", "2"],
            },
        )
        self.assertEqual(seen["[0]"][4], seen["[1]"][4])
        self.assertEqual(len({words[4] for words in seen.values()}), 3, "a memory per host")

    def test_forks_have_a_listener_each_too(self) -> None:
        code, out, err = self.run_on("a:2,b:2", "--preload", "json", *python(PLACE))
        self.assertEqual((code, len(out), err), (0, 4, []))

    def test_fewer_ranks_use_the_first_hosts(self) -> None:
        show = "import os; print(os.environ['LOCAL_WORLD_SIZE'])"
        code, out, err = self.run_on("a:2,b:2,c:2", "-np", "3", *python(show))
        self.assertEqual((code, sorted(out), err), (0, ["[0] 2", "[1] 2", "[2] 1"], []))
        self.assertEqual(sorted(self.called()), ["a", "b"])

    def test_this_machine_is_not_reached_by_ssh(self) -> None:
        show = "import os; print('COVEY_BOOK_FD' in os.environ)"
        code, out, _ = self.run_on("localhost,b", *python(show))
        self.assertEqual((code, sorted(out)), (0, ["[0] True", "[1] True"]))
        self.assertEqual(list(self.called()), ["b"])
        code, out, _ = self.run_on("localhost:2", *python(show))
        self.assertEqual((code, sorted(out)), (0, ["[0] False", "[1] False"]))

    def test_ranks_of_one_other_host_share_memory_and_have_no_book(self) -> None:
        names = ["COVEY_LOCAL_SIZE", "COVEY_BOOK_FD", "COVEY_LISTEN_FD", "GROUP_RANK"]
        show = f"import os; print(*[os.environ.get(name) for name in {names}])"
        code, out, err = self.run_on("b:2", *python(show))
        wanted = ["[0] 2 None None None", "[1] 2 None None None"]
        self.assertEqual((code, sorted(out), err), (0, wanted, []))
        add = "import covey, numpy; covey.init(); x = numpy.ones(2) + covey.rank(); "
        add += "print(covey.allreduce(x, op=covey.Sum, name='x')[0])"
        code, out, err = self.run_on("b:2", *python(add))
        self.assertEqual((code, sorted(out), err), (0, ["[0] 3.0", "[1] 3.0"], []))

    def test_a_ctrl_c_while_a_host_does_not_answer(self) -> None:
        with self.launched("a,silent", *python(WAIT)) as job:
            wait_until(lambda: self.log.exists() and len(self.called()) == 2)
            job.send(signal.SIGINT)
            self.assertEqual(job.finish(), 128 + signal.SIGINT)
            job.wait_until_gone()

    def test_ssh_gets_the_arguments(self) -> None:
        hostfile = self.folder / "hosts"
        hostfile.write_text("u@a slots=1\nb:1\n", encoding="utf-8")
        options = ["--ssh", f"{self.ssh} -4", "--ssh-args", "-J 'the gate'", "-p", "222", "-i", "k"]
        words = [*options, "--quiet", "--hostfile", str(hostfile), "true"]
        self.assertEqual(run_launcher(words), (0, [], []))
        called = self.called()
        self.assertEqual(sorted(called), ["b", "u@a"])
        self.assertEqual(called["b"][:7], ["-4", "-J", "the gate", "-p", "222", "-i", "k"])
        self.assertIn("BatchMode=yes", called["b"])

    def test_folder_and_environment_are_carried(self) -> None:
        names = ["LR", "FROM_X", "SSH_AUTH_SOCK", "PWD", "HOME"]
        show = f"import os; print(os.getcwd(), *[os.environ.get(n) for n in {names}])"
        env = {"LR": "0.1", "SSH_AUTH_SOCK": "/here", "HOME": "/home-there"}
        where = os.path.realpath(self.folder)
        code, out, err = self.run_on("a,b", "-x", "FROM_X=a=b", *python(show), env=env, cwd=where)
        # Agents of this machine have the environment of the launcher.
        wanted = f"{where} 0.1 a=b /here {where} /home-there"
        self.assertEqual((code, sorted(out), err), (0, [f"[0] {wanted}", f"[1] {wanted}"], []))

    def test_bytes_lines_and_files_are_as_on_one_host(self) -> None:
        show = "import os, sys; sys.stdout.buffer.write(b'\\xff\\xc3\\xa9\\rb\\n'); "
        show += "print('tail', end='', file=sys.stderr)"
        logs = self.folder / "logs"
        code, out, err = self.run_on("a,b", "--output-dir", str(logs), *python(show))
        self.assertEqual((code, sorted(out)), (0, ["[0] b", "[1] b"]))
        self.assertEqual(sorted(err), ["[0] tail", "[1] tail"])
        for rank in range(2):
            self.assertEqual((logs / f"rank.{rank}/stdout").read_bytes(), b"\xff\xc3\xa9\rb\n")
            self.assertEqual((logs / f"rank.{rank}/stderr").read_bytes(), b"tail")

    def test_ranks_that_write_much_wait_and_lose_nothing(self) -> None:
        show = "import os\nfor i in range(30000): print(os.environ['RANK'] * 60, i)"
        code, out, err = self.run_on("a,b:2", *python(show))
        self.assertEqual((code, len(out), err), (0, 90000, []))
        for rank in range(3):
            mine = [line for line in out if line.startswith(f"[{rank}] ")]
            self.assertEqual(mine, [f"[{rank}] {str(rank) * 60} {i}" for i in range(30000)])

    def test_what_ranks_tell_for_the_end_arrives(self) -> None:
        show = "import json, os; r = int(os.environ['RANK']); told = {'rank': r, 'of': 1, "
        show += "'unfinished': r == 1}; fd = int(os.environ['COVEY_SUMMARY_FD']); "
        show += "os.write(fd, json.dumps(told).encode() + b'\\n')"
        code, _, err = self.run_on("a,b", *python(show))
        self.assertEqual((code, len(err)), (0, 1), err)
        self.assertIn("rank 1 ended with exit code 0 in the middle of training", err[0])

    def test_each_host_shares_out_its_gpus(self) -> None:
        show = python("import os; print(os.environ['CUDA_VISIBLE_DEVICES'])")
        more = ["--bind-gpus", "-x", "CUDA_VISIBLE_DEVICES=5,6", *show]
        code, out, err = self.run_on("a:2,b:1", *more)
        self.assertEqual((code, sorted(out), err), (0, ["[0] 5", "[1] 6", "[2] 5"], []))

    def test_the_security_of_the_network_is_in_the_book_and_told(self) -> None:
        show = "import os; print(os.pread(int(os.environ['COVEY_BOOK_FD']), 999, 0).split()[6])"
        words = ["--ssh", str(self.ssh), "-H", "a,b", "--network-security", "auth"]
        code, out, err = run_launcher([*words, *python(show)])
        self.assertEqual((code, sorted(out)), (0, ["[0] b'auth'", "[1] b'auth'"]))
        self.assertIn("authenticated and not encrypted", err[0])
        self.assertIn("a and b are one machine", err[1])

    # ---- Endings -------------------------------------------------------------------------------

    def test_the_rank_that_failed_first_is_named_with_its_host(self) -> None:
        fail = "import os, signal, sys\nif os.environ['RANK'] == '2': sys.exit('out of luck')\n"
        code, _, err = self.run_on("a:2,b:2", *python(fail + "signal.pause()"))
        self.assertEqual(code, 1)
        self.assertRegex("\n".join(err), r"rank 2 on b \(pid \d+\) failed first: exit code 1")
        self.assertIn("coveyrun:   out of luck", err)
        self.assertIn("coveyrun: ranks 0, 1 and 3 ended by the launcher", err)

    def test_a_signal_that_killed_a_rank_makes_the_exit_code(self) -> None:
        fail = "import os, signal\nif os.environ['RANK'] == '1': os.kill(os.getpid(), 11)\n"
        code, _, err = self.run_on("a,b", *python(fail + "signal.pause()"))
        self.assertEqual(code, 128 + signal.SIGSEGV, err)

    def test_with_keep_going_the_others_go_on(self) -> None:
        fail = "import os\nif os.environ['RANK'] == '1': os.kill(os.getpid(), 9)"
        code, _, err = self.run_on("a,b", "--keep-going", *python(fail))
        self.assertEqual((code, len(err)), (0, 2), err)
        self.assertRegex(err[0], r"rank 1 on b \(pid \d+\) has failed: killed by SIGKILL")

    def test_signals_to_the_launcher_end_all(self) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            with self.launched("a:2,b", *python(WAIT)) as job:
                job.wait_for(r"^\[\d\] up", 3)
                job.send(number)
                self.assertEqual(job.finish(), 128 + number)
                job.wait_until_gone()
                if number == signal.SIGINT:
                    said = "\n".join(job.stderr())
                    # Alone, or with those of the other host.
                    self.assertRegex(said, r"\b2 cannot say: not past covey\.init")

    def test_a_ctrl_z_stops_the_ranks_too(self) -> None:
        show = "import os, time; print('up', os.getpid(), flush=True); "
        show += (
            f"[time.sleep(0.01) for _ in iter(lambda: os.path.exists({str(self.log)!r}), False)]"
        )
        with self.launched("a,b", *python(show)) as job:
            ranks = [int(found[1]) for found in job.wait_for(r"up (\d+)", 2)]
            job.send(signal.SIGTSTP)
            for pid in (*ranks, job.process.pid):
                wait_for_state(pid, "T")
            job.send(signal.SIGCONT)
            self.log.unlink()
            self.assertEqual(job.finish(), 0)

    def test_a_launcher_that_is_killed_leaves_nothing(self) -> None:
        with self.launched("a:2,b", *python(WAIT)) as job:
            job.wait_for(r"^\[\d\] up", 3)
            job.send(signal.SIGKILL)
            job.wait_until_gone()

    def test_a_launcher_that_is_silent_counts_as_dead(self) -> None:
        with self.launched("a:2,b", *python(WAIT), env={"COVEY_LEASE": "2s"}) as job:
            job.wait_for(r"^\[\d\] up", 3)
            job.send(signal.SIGSTOP)
            wait_until(lambda: processes_with(job.mark) == [job.process.pid])
            job.send(signal.SIGCONT)
            self.assertEqual(job.finish(), 1)
            said = "\n".join(job.stderr())
            self.assertRegex(said, "host a is lost.* heard nothing from coveyrun for a lease")

    def test_a_host_that_is_lost_is_named(self) -> None:
        for number, why in (
            (signal.SIGKILL, "ssh ended with (signal 9|exit code 137)"),
            (signal.SIGTERM, "its agent got SIGTERM"),
        ):
            with self.launched("a,b:2", *python(WAIT)) as job:
                job.wait_for(r"^\[\d\] up", 3)
                (agent,) = {int(found[1]) for found in job.wait_for(r"^\[[12]\] up (\d+)", 2)}
                os.kill(agent, number)
                self.assertEqual(job.finish(), 1)
                said = "\n".join(job.stderr())
                self.assertRegex(said, f"host b is lost, and with it ranks 1 and 2: {why}")
                self.assertIn("rank 0 ended by the launcher", said)
                job.wait_until_gone()

    # ---- Mistakes ------------------------------------------------------------------------------

    def refuse(self, words: List[str], *expected: str) -> None:
        code, out, err = run_launcher(words)
        self.assertEqual((code, out, len(err)), (2, [], len(expected)), err)
        for line, text in zip(err, expected):
            self.assertIn(text, line)

    def test_each_host_that_fails_is_named_with_its_reason(self) -> None:
        self.refuse(
            self.words("unknown,locked,shut,bare,empty,old,b", "true"),
            "unknown: ssh: Could not resolve hostname unknown: Name or service not known; is the",
            "locked: root@locked: Permission denied (publickey,password).; `ssh locked true` has",
            "shut: ssh: connect to host shut port 22: Connection refused; does sshd run there?",
            f"bare: there is no {PYTHON}; --remote-python PATH says another",
            "empty: the agent ended with exit code 1: /x/python: No module named covey; install",
        )

    def test_another_version_is_refused_with_both(self) -> None:
        self.refuse(self.words("a,old", "true"), "old: Covey's version is 0.0.9 there and ")

    def test_a_host_that_does_not_answer_is_given_up(self) -> None:
        words = self.words("silent", "--start-timeout", "1", "true")
        self.refuse(words, "silent: no answer within 1 s (--start-timeout)")

    def test_mistakes_in_the_command(self) -> None:
        for words, expected in (
            (["-np", "8", "-H", "a:2,b:2", "true"], "-np 8: -H has only 4 slots (a:2,b:2)"),
            (["-H", "a", "--hostfile", "f", "true"], "-H and --hostfile: say one of them"),
            (["-H", "a,b,a", "true"], "a is named twice"),
            (["-H", "a", "--join", "b:1", "true"], "say either"),
            (["-H", "a:1"], "no command to run"),
            (["-H", "a", "--ssh", "/nowhere/ssh", "true"], "cannot start /nowhere/ssh: No such"),
            (self.words("a", "--ssh-args", "'", "true"), "--ssh-args: No closing quotation"),
            (self.words("a", "--network", "nic7", "true"), "--network nic7: none of a: "),
            (self.words("a", "no-such-program"), "a: no such program: no-such-program"),
            (self.words("a", PYTHON, "nothing.py"), "a: no such script: nothing.py"),
            (self.words("a", "--timeline", "/dev/null/x", "true"), "a: --timeline /dev/null/x"),
            (self.words("a", "--output-dir", "/dev/null/x", "true"), "--output-dir /dev/null/x"),
            (
                self.words("a", "--preload", "no_such", *python("1")),
                "a: --preload no_such: cannot import no_such",
            ),
        ):
            with self.subTest(words=shlex.join(words)):
                self.refuse(words, expected)

    def test_a_folder_that_a_host_has_not_is_named(self) -> None:
        spec = {"command": ["true"], "settings_env": {}, "extra_env": {}, "preload": []}
        job = {"places": [], "cwd": "/nowhere/at/all", "environ": {}, "spec": spec}
        station = Station(job)
        self.addCleanup(station.close)
        with self.assertRaisesRegex(LaunchError, "cannot enter the working folder /nowhere/at/all"):
            station.enter()


if __name__ == "__main__":
    unittest.main()
