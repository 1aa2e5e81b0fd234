"""Goal: `covey doctor` finds what would keep a job from starting, names host and next step, and is
silent about the rest. Method: its parts by facts that are made up, connections on this machine, and
the command with a program in ssh's place; cluster_doctor_test.py has real hosts."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import pathlib
import socket
import subprocess
import sys
import tempfile
import threading
import unittest
from typing import Any, Dict, Iterator, List, Tuple

import fake_ssh
from harness import LIMIT_S, environment

from covey.doctor import cgroups, checks, facts, passage, table
from covey.doctor.check import Check, by_value, in_bytes
from covey.doctor.visit import Findings
from covey.launch.spec import Host, HostPlan

_MANY = 1 << 20
_FACTS: Dict[str, Any] = {
    "kernel": "6.18.1",
    "cores": 4,
    "limits": {"NOFILE": _MANY, "NPROC": None, "AS": None, "FSIZE": None, "MEMLOCK": None},
    "groups": {},
    "shm": 8 << 30,
    "pidfd": True,
    "packages": {"Python": "3.11.2", "torch": "2.13.0"},
    "plugins": {"tcp": "/x/libcovey_tcp.so", "mpi": "", "ucx": "", "grpc": ""},
    "operations": True,
    "gpus": [],
    "rdma": [],
    "host": "",
    "names": {"a": ["10.0.0.1"], "b": ["10.0.0.2"]},
    "folder": "",
    "variables": {},
    "is_root": False,
    "memory": "",
    "address_space": 1 << 40,
}
_WAY = {
    **{"why": "", "source": "", "packet": 1500, "round_trip_s": 1e-4, "bytes_per_s": 1e8},
    **{"passed": passage.DATA_BYTES, "where": ["10.0.0.2", 7]},
}


def found_of(**facts_of_b: Any) -> Findings:
    """Two hosts of which all is well, but for these facts of b."""
    plan = HostPlan([Host("a", 2), Host("b", 2)], ["ssh"], "/x/python")
    found = Findings(plan, {"a": 2, "b": 2}, cwd="/job")
    for number, name in enumerate(found.ranks, 1):
        address = f"10.0.0.{number}"
        found.hellos[name] = {
            **{"build": "Covey 1", "version": "1", "machine": name, "by_ssh": "", "peer": ""},
            "addresses": [["lo", "127.0.0.1", 8], ["eth0", address, 24]],
        }
        found.facts[name] = {**_FACTS, "host": name}
        found.apart[name] = (-0.5, 0.5)
        found.addresses[name] = address
    found.pairs["a", "b"] = {**_WAY, "source": "10.0.0.1"}
    found.pairs["b", "a"] = {**_WAY, "source": "10.0.0.2"}
    found.facts["b"].update(facts_of_b)
    return found


class ChecksTest(unittest.TestCase):
    def not_ok(self, found: Findings) -> List[Check]:
        return [check for check in checks.of(found) if check.state != "ok"]

    def expect(self, found: Findings, name: str, state: str, seen: str, step: str = "") -> None:
        (check,) = self.not_ok(found)
        self.assertEqual((check.name, check.state), (name, state), check)
        self.assertIn(seen, check.seen)
        self.assertIn(step, check.step)

    def test_all_is_well(self) -> None:
        found = found_of()
        self.assertEqual(self.not_ok(found), [])
        said = {check.name: check.seen for check in checks.of(found)}
        self.assertEqual(said["ports"], "2 of 2 ways between hosts are open")
        self.assertEqual(said["network"], "a 10.0.0.1 (eth0), b 10.0.0.2 (eth0)")
        self.assertIn("round trips 0.1 ms; 1 MiB on all ways at once, each 100 MB/s", said["speed"])

    def test_each_fact_that_keeps_a_job_from_starting(self) -> None:
        limits = _FACTS["limits"]
        for facts_of_b, name, seen, step in (
            ({"plugins": {**_FACTS["plugins"], "tcp": ""}}, "plug-ins", "on b", "install"),
            ({"folder": "there is no such folder"}, "folder", "/job: there is no such", "every"),
            ({"memory": "COVEY_X is not a setting"}, "variables", "COVEY_X is not", "unset"),
            ({"memory": "cannot make it"}, "memory", "cannot make it", ""),
            ({"limits": {**limits, "NOFILE": 65}}, "limits", "b: RLIMIT_NOFILE is 65, and", "-n"),
            ({"limits": {**limits, "AS": 1 << 39}}, "limits", "b: RLIMIT_AS is", "ulimit -v"),
            ({"groups": {"pids": 3.0}}, "limits", "b: pids.max leaves 3 proc", "raise it"),
        ):
            with self.subTest(name, seen=seen):
                self.expect(found_of(**facts_of_b), name, "failed", seen, step)

    def test_each_fact_that_makes_a_job_slow_or_end_later(self) -> None:
        packages = {"Python": "3.11.2", "torch": "2.12.0"}
        for facts_of_b, name, seen in (
            ({"packages": packages}, "versions", "torch 2.13.0 (a), 2.12.0 (b)"),
            ({"variables": {"COVEY_FLAT_BYTES": "1"}}, "variables", "b has its own COVEY_FLAT"),
            ({"cores": 1}, "cores", "more ranks than cores on b"),
            ({"groups": {"cpus": 2.0}}, "cores", "2 of 4 cores by the quota"),
            ({"groups": {"memory": 300 << 20}}, "memory", "b: 300 MiB left of 300 MiB"),
            ({"limits": {**_FACTS["limits"], "NPROC": 10}}, "limits", "b: RLIMIT_NPROC leaves 10"),
            ({"names": {"a": ["10.9.9.9"]}}, "names", "on b a is 10.9.9.9, no address of a"),
            ({"names": {"a": ["127.0.0.9"]}}, "names", "on b a is 127.0.0.9, no address of a"),
            ({"plugins": {**_FACTS["plugins"], "tcp": "/x (made for Covey 0)"}}, "plug-ins", "/x"),
        ):
            with self.subTest(name, seen=seen):
                self.expect(found_of(**facts_of_b), name, "warning", seen)

    def test_each_fact_that_changes_no_job(self) -> None:
        for facts_of_b, name, seen in (
            ({"kernel": "6.1.0-18-amd64"}, "kernel", "before Linux 6.15 on b"),
            ({"pidfd": False}, "kernel", "no pidfd on b"),
            ({"shm": 64 << 20}, "/dev/shm", "64 MiB free (b); Covey does not use it"),
            ({"gpus": ["H100, 550", "H100, 550"]}, "GPUs", "2 x H100, 550 (b)"),
            ({"names": {"b": ["127.0.1.1"]}}, "names", "own names that are loopback: b is 127.0"),
            ({"names": {"a": "no such name"}}, "names", "b does not resolve a (no such name)"),
            ({"plugins": {**_FACTS["plugins"], "mpi": "/x"}}, "plug-ins", "tcp, mpi (b)"),
            ({"operations": False}, "plug-ins", "compiles its operations at its first import on b"),
            ({"rdma": ["m0: RoCE, 25"]}, "RDMA", "none (a), m0: RoCE, 25 (b): all ranks go by TCP"),
        ):
            with self.subTest(name, seen=seen):
                self.expect(found_of(**facts_of_b), name, "note", seen)

    def test_hosts_that_a_job_may_lose(self) -> None:
        found = found_of()
        self.assertIn("which reaches coveyrun", checks.of(found)[-1].seen)
        for ranks, seen in (({"a": 2, "b": 2}, "runs on b, without"), ({"a": 2, "b": 3}, "3 of 5")):
            found.here, found.ranks = "b", ranks
            self.expect(found, "losses", "note", seen)

    def test_devices_that_a_job_would_not_use(self) -> None:
        found = found_of()
        for one in found.facts.values():
            one.update(rdma=["mlx5_0: InfiniBand, 100 Gb/sec"], plugins={**one["plugins"]})
        self.expect(found, "RDMA", "warning", "no libcovey_ucx.so on a, b", "covey build ucx")
        for one in found.facts.values():
            one["plugins"]["ucx"] = "/x/libcovey_ucx.so"
        self.assertEqual(self.not_ok(found), [])
        found.facts["b"]["limits"] = {**_FACTS["limits"], "MEMLOCK": 8 << 20}
        self.expect(found, "RDMA", "warning", "RLIMIT_MEMLOCK is 8388608 on b", "ulimit -l")
        found = found_of()
        for one in found.facts.values():
            one.update(gpus=["H100, 550"], packages={"torch": "2.13.0+cpu"})
        self.expect(found, "GPUs", "warning", "the build for CPUs on a, b", "with CUDA")

    def test_ports_of_rdma(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            for device, state, layer in (
                ("mlx5_0", "4: ACTIVE", "InfiniBand"),
                ("mlx5_1", "1: DOWN", "InfiniBand"),
                ("mlx5_2", "4: ACTIVE", "Ethernet"),
            ):
                port = pathlib.Path(folder, device, "ports", "1")
                port.mkdir(parents=True)
                for name, text in (("state", state), ("link_layer", layer), ("rate", "25 Gb/sec")):
                    port.joinpath(name).write_text(f"{text}\n", encoding="ascii")
            found = ["mlx5_0: InfiniBand, 25 Gb/sec", "mlx5_2: RoCE, 25 Gb/sec"]
            self.assertEqual(facts.rdma_ports(folder), found)
            self.assertEqual(facts.rdma_ports(f"{folder}/none"), [])

    def test_clocks_are_apart_only_for_certain(self) -> None:
        for apart, seen in (((2.0, 3.0), "b at least 2 s ahead"), ((-9.0, -4.0), "4 s behind")):
            found = found_of()
            found.apart["b"] = apart
            self.expect(found, "clocks", "note", seen)

    def test_ways_that_are_closed_and_packets_that_are_lost(self) -> None:
        found = found_of()
        found.pairs["b", "a"] = {"why": "no answer within 3 s", "where": ["10.0.0.1", 7]}
        self.expect(found, "ports", "failed", "b cannot reach a at 10.0.0.1:7 (no ans", "firewall")
        self.assertIn("1 of 2 ways between hosts are open", [it.seen for it in checks.of(found)])
        for fits, seen, step in (
            (1400, "a to b: packets of 1500 bytes are lost on the way, those of 1400", "to 1400"),
            (0, "smaller ones too", "look at the MTU of eth0 on a and eth0 on b"),
        ):
            found = found_of()
            found.pairs["a", "b"].update(passed=0, fits=fits, bytes_per_s=0.0)
            self.expect(found, "packets", "failed", seen, step)
        found = found_of()
        found.pairs["a", "b"].update(passed=1000, bytes_per_s=0.0)
        self.expect(found, "speed", "warning", "a to b took 1000 B in 3 s")
        found = found_of()
        found.pairs["a", "b"]["source"] = "10.1.0.1"
        self.expect(found, "network", "warning", "a reaches b from 10.1.0.1, not from 10.0.0.1")

    def test_a_host_that_is_not_there_leaves_the_checks_of_the_others(self) -> None:
        found = found_of()
        found.failed["c"] = "ssh: Connection refused; does sshd run there?"
        found.ranks["c"] = 1
        self.expect(found, "hosts", "failed", "c: ssh: Connection refused", "does sshd run there?")
        found.failed["c"] = "ssh failed and says nothing"
        self.expect(found, "hosts", "failed", "says nothing", "`ssh -v c true`")

    def test_authentication_alone_is_said_to_protect_no_data(self) -> None:
        found = found_of()
        found.plan = dataclasses.replace(found.plan, security="auth")
        self.expect(found, "security", "warning", "in the clear", "--network-security")

    def test_words_of_a_host_steer_no_terminal(self) -> None:
        found = found_of(kernel="6.18.1\x1b[2J")
        self.assertNotIn("\x1b", "\n".join(table.lines(checks.of(found))))

    def test_of_many_closed_ways_the_first_are_shown(self) -> None:
        found = found_of()
        closed = {"why": "refused", "where": ["10.0.0.1", 7]}
        found.pairs.update({("b", str(number)): closed for number in range(50)})
        shown = self.not_ok(found)
        self.assertEqual(len(shown), 21)
        self.assertIn("so are 30 other ways", shown[-1].seen)

    def test_words(self) -> None:
        self.assertEqual(by_value({"a": "1", "b": "1"}), "1")
        many = by_value({**{str(n): "1" for n in range(20)}, "x": "2"})
        self.assertEqual(many, "1 (0, 1, 2, 3, 4, 5, 6 and 13 more), 2 (x)")
        sizes = [in_bytes(number) for number in (1, 1536, 1 << 20, 5 << 40)]
        self.assertEqual(sizes, ["1 B", "1.5 KiB", "1 MiB", "5 TiB"])


class GroupsTest(unittest.TestCase):
    def limits(self, groups: str, files: Dict[str, str]) -> Dict[str, float]:
        with tempfile.TemporaryDirectory() as folder:
            for name, text in {"groups": groups, **files}.items():
                path = pathlib.Path(folder, name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="ascii")
            return cgroups.limits(f"{folder}/fs", f"{folder}/groups")

    def test_version_two(self) -> None:
        files = {
            "fs/job/step/memory.max": "max\n",
            "fs/job/memory.max": "1000\n",
            "fs/job/memory.current": "400\n",
            "fs/memory.max": "2000\n",
            "fs/job/step/pids.max": "30\n",
            "fs/job/step/pids.current": "5\n",
            "fs/job/cpu.max": "150000 100000\n",
        }
        wanted = {"memory": 1000, "memory_used": 400, "pids": 30, "pids_used": 5, "cpus": 1.5}
        self.assertEqual(self.limits("0::/job/step\n", files), wanted)

    def test_version_one(self) -> None:
        files = {
            "fs/memory/job/memory.limit_in_bytes": "1000\n",
            "fs/memory/job/memory.usage_in_bytes": "1\n",
            "fs/memory/memory.limit_in_bytes": "9223372036854771712\n",
            "fs/cpu,cpuacct/x": "",
            "fs/cpu/cpu.cfs_quota_us": "-1\n",
            "fs/cpu/cpu.cfs_period_us": "100000\n",
            "fs/pids/pids.max": "max\n",
        }
        groups = "5:memory:/job\n3:cpu,cpuacct:/\n2:pids:/\n"
        self.assertEqual(self.limits(groups, files), {"memory": 1000, "memory_used": 1})


class PassageTest(unittest.TestCase):
    @contextlib.contextmanager
    def server(self, answer: bytes) -> Iterator[Tuple[str, int]]:
        """Reads a token, says `answer`, and takes nothing more."""
        with socket.create_server(("127.0.0.1", 0)) as listener:
            # The system may take less than the data before it is read.
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            done = threading.Event()

            def serve() -> None:
                listener.accept()[0].close()  # Of the trial of the port.
                with listener.accept()[0] as came:
                    came.recv(4)
                    came.sendall(answer)
                    done.wait(LIMIT_S)

            thread = threading.Thread(target=serve)
            thread.start()
            try:
                yield listener.getsockname()
            finally:
                done.set()
                thread.join()

    def test_data_pass(self) -> None:
        with contextlib.closing(passage.Sink("127.0.0.1", "word")) as sink:
            (one,) = passage.outcomes([("127.0.0.1", sink.port)], "word")
        self.assertEqual((one["why"], one["passed"]), ("", passage.DATA_BYTES))
        self.assertEqual((one["source"], one["packet"]), ("127.0.0.1", 65535))
        self.assertGreater(one["bytes_per_s"], 0)

    def test_a_stranger_is_sent_away(self) -> None:
        with contextlib.closing(passage.Sink("127.0.0.1", "word")) as sink:
            (one,) = passage.outcomes([("127.0.0.1", sink.port)], "beep")
        self.assertEqual(one["why"], "something else answers there")

    def test_a_reader_that_is_slow_is_no_hole(self) -> None:
        with self.server(b".") as where:
            (one,) = passage.outcomes([where], "word")
        self.assertFalse(passage.is_hole(one))
        self.assertTrue(0 < one["passed"] < passage.DATA_BYTES, one)

    def test_another_server_and_a_closed_port(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as closed:
            gone = closed.getsockname()
        with self.server(b"HTTP/1.1") as where:
            found = passage.outcomes([where, gone], "word")
        whys = [one["why"] for one in found]
        self.assertEqual(whys, ["something else answers there", "connection refused"])


class FactsTest(unittest.TestCase):
    def test_names(self) -> None:
        found = facts.resolved(["localhost", "nowhere.invalid"])
        self.assertIn("127.0.0.1", found["localhost"])
        self.assertIsInstance(found["nowhere.invalid"], str)


class CommandTest(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.ssh, _ = fake_ssh.write(pathlib.Path(folder.name))

    def doctor(self, *words: str, **env: str) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-m", "covey.cli", "doctor", "--ssh", str(self.ssh), *words]
        options = {"env": environment(**env), "timeout": LIMIT_S, "stdin": subprocess.DEVNULL}
        return subprocess.run(command, capture_output=True, text=True, check=False, **options)

    def failed(self, said: "subprocess.CompletedProcess[str]") -> List[str]:
        self.assertEqual((said.returncode, said.stderr), (1, ""), said.stdout)
        self.assertIn("A job would not start", said.stdout.splitlines()[-1])
        return [line for line in said.stdout.splitlines() if line.startswith("failed ")]

    def test_hosts_of_which_all_is_well(self) -> None:
        said = self.doctor("-H", "a:1,noisy:1")
        self.assertEqual((said.returncode, said.stderr), (0, ""), said.stdout)
        self.assertIn("ports      2 of 2 ways between hosts are open", said.stdout)
        self.assertIn("a and noisy are one machine", said.stdout)
        self.assertEqual(said.stdout.splitlines()[-1], "A job would start.")

    def test_this_host_alone(self) -> None:
        said = self.doctor(COVEY_SECRET_FILE="/x")  # No rank gets it.
        self.assertNotIn("COVEY_SECRET_FILE", said.stdout)
        self.assertEqual((said.returncode, said.stderr, "ports" in said.stdout), (0, "", False))

    def test_each_host_that_fails_is_named_as_by_coveyrun(self) -> None:
        lines = self.failed(self.doctor("-H", "unknown,locked,shut,bare,empty,old,a,b"))
        for line, text in zip(lines, (
            "unknown: ssh: Could not resolve hostname unknown: Name or service not known: is the",
            "locked: root@locked: Permission denied (publickey,password).: `ssh locked true` has",
            "shut: ssh: connect to host shut port 22: Connection refused: does sshd run there?",
            f"bare: there is no {sys.executable}: --remote-python PATH says another",
            "empty: the agent ended with exit code 1: /x/python: No module named covey: install",
            "old: Covey's version is 0.0.9 there and ",
        )):  # fmt: skip
            self.assertIn(text, line)
        self.assertEqual(len(lines), 6)
        (line,) = self.failed(self.doctor("-H", "silent", "--start-timeout", "1"))
        self.assertIn("silent: no answer within 1 s (--start-timeout)", line)

    def test_limits_and_variables_of_a_host(self) -> None:
        (line,) = self.failed(self.doctor("-H", "a:1,narrow:1,own:1"))
        self.assertIn("narrow: RLIMIT_NOFILE is 64, and a job needs 66", line)
        said = self.doctor("-H", "a:1,own:1", COVEY_LEASE="8s").stdout
        self.assertIn("own has its own COVEY_FLAT_BYTES=1KiB", said)
        self.assertIn("ranks get COVEY_LEASE=8s", said)
        (line,) = self.failed(self.doctor("-H", "a:1,b:1", COVEY_LEESE="8s"))
        self.assertIn("COVEY_LEESE is not a setting of Covey; the nearest is COVEY_LEASE", line)

    def test_json_has_all(self) -> None:
        said = json.loads(self.doctor("-H", "a:2,shut:1", "--json").stdout)
        self.assertIs(said["would_start"], False)
        self.assertEqual((list(said["hosts"]), said["hosts"]["a"]["ranks"]), (["a"], 2))
        states = {check["state"] for check in said["checks"]}
        self.assertLessEqual({"ok", "failed"}, states)

    def test_mistakes_in_the_command(self) -> None:
        for words, expected in (
            (["-H", "a:x"], "a: x is not a number of slots"),
            (["-H", "a", "-np", "2"], "-np 2: -H has only 1 slot (a:1)"),
            (["-H", "a", "--hostfile", "f"], "-H and --hostfile: say one of them"),
            (["--hostfile", "/nowhere/f"], "--hostfile /nowhere/f: No such file"),
            (["-H", "a", "--ssh", "/nowhere/ssh"], "cannot start /nowhere/ssh: No such"),
            (["--hots", "a"], "unknown option --hots"),
        ):
            with self.subTest(words=words):
                said = self.doctor(*words)
                self.assertEqual((said.returncode, said.stdout), (2, ""), said.stderr)
                self.assertIn(f"covey doctor: {expected}", said.stderr.replace("-H/--hosts: ", ""))


if __name__ == "__main__":
    unittest.main()
