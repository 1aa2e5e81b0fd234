"""Goal: hosts of tools/cluster are apart as machines are, faults do what they say, and nothing is
left behind. Method: the command itself; programs in the hosts report what they see."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import pathlib
import pwd
import re
import resource
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest
from typing import Callable, Dict, Iterator, List, Optional

import cluster_programs as programs

_ROOT = pathlib.Path(__file__).resolve().parents[1]
_CLUSTER = str(_ROOT / "tools" / "cluster")
_LIMIT_S = 120
_SKIPPED = 77


def cluster(*arguments: str, env: Optional[Dict[str, str]] = None,
            before: Optional[List[str]] = None, **options) -> "subprocess.CompletedProcess[str]":
    """Runs tools/cluster; `before` is what starts it."""
    command = [*(before or [sys.executable]), _CLUSTER, *arguments]
    return subprocess.run(command, timeout=_LIMIT_S, capture_output=True, text=True, check=False,
                          env=env or os.environ, **options)


@functools.lru_cache(maxsize=None)
def means() -> Dict[str, str]:
    """What `check` says: the reason why a means is missing, or an empty text."""
    said = cluster("check")
    found = {}
    for line in said.stdout.splitlines():
        name, _, rest = line.partition(":")
        found[name] = "" if rest.strip().startswith("yes") else rest.strip()
    if said.returncode != 0 and said.returncode != _SKIPPED:
        raise AssertionError(said.stdout + said.stderr)
    if said.returncode == _SKIPPED:
        found["cluster"] = said.stdout.strip()
    return found


def need(*names: str) -> None:
    """Skips the test where `check` says no to a means."""
    for name in ("cluster", *names):
        if means().get(name):
            raise unittest.SkipTest(f"tools/cluster check: {name}: {means()[name]}")


def until(condition: Callable[[], bool], what: str) -> None:
    """Waits for an event that nothing signals."""
    limit = time.monotonic() + _LIMIT_S
    while not condition():
        if time.monotonic() > limit:
            raise AssertionError(f"not within {_LIMIT_S} s: {what}")
        time.sleep(0.01)


def processes_of(namespaces: List[str]) -> List[int]:
    """Live processes of this machine in these network namespaces."""
    found = []
    for entry in os.listdir("/proc"):
        with contextlib.suppress(OSError):
            if entry.isdigit() and os.readlink(f"/proc/{entry}/ns/net") in namespaces:
                found.append(int(entry))
    return found


def state_of(pid: int) -> str:
    """A letter, as ps shows it."""
    stat = pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    return stat.rpartition(")")[2].split()[0]


class Case(unittest.TestCase):
    """Clusters of a folder that must be empty in the end."""

    env: Dict[str, str]

    @classmethod
    def setUpClass(cls) -> None:
        folder = tempfile.mkdtemp(prefix="covey")
        cls.addClassCleanup(shutil.rmtree, folder)
        cls.env = {**os.environ, "XDG_RUNTIME_DIR": folder}
        cls.states = pathlib.Path(folder) / f"covey-cluster-{os.getuid()}"

    def setUp(self) -> None:
        need()

    def do(self, *arguments: str, status: int = 0, **options) -> str:
        """The output of tools/cluster, which must end with `status`."""
        ran = cluster(*arguments, env=self.env, **options)
        self.assertEqual(ran.returncode, status, f"{arguments}: {ran.stdout}{ran.stderr}")
        return ran.stdout + ran.stderr

    def python(self, host: str, program: str, *arguments: str, **options) -> str:
        return self.do("exec", host, sys.executable, "-c", program, *arguments, **options)

    @contextlib.contextmanager
    def running(self, *arguments: str) -> Iterator["subprocess.Popen[str]"]:
        """tools/cluster beside the test, ended by SIGKILL."""
        with subprocess.Popen([sys.executable, _CLUSTER, *arguments], env=self.env, text=True,
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL) as process:
            try:
                yield process
            finally:
                process.kill()

    def program(self, host: str, text: str) -> "contextlib.AbstractContextManager":
        return self.running("exec", host, sys.executable, "-c", text)

    def listed(self) -> Dict[str, dict]:
        (found,) = json.loads(self.do("list", "--json"))
        return {host["name"]: host for host in found["hosts"]}


class HostsTest(Case):
    """One cluster for tests that leave it as it was."""

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        if means().get("cluster"):
            return  # Each test is skipped.
        flags = ["--no-ssh"] * bool(means()["ssh"]) + ["--rate", "1gbit"] * (not means()["--rate"])
        made = cluster("up", "2", *flags, env=cls.env)
        assert made.returncode == 0, made.stderr
        cls.addClassCleanup(cluster, "down", env=cls.env)

    def test_hosts_are_apart(self) -> None:
        look = "hostname; cat /proc/sys/kernel/random/boot_id; ls /dev/shm; ls /sys/class/net"
        self.do("exec", "a", "touch", "/dev/shm/of-a")
        seen = [self.do("exec", host, "sh", "-c", look).split() for host in "ab"]
        here = pathlib.Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        self.assertEqual([seen[0][0], seen[1][0]], ["a", "b"])
        self.assertEqual(len({seen[0][1], seen[1][1], here}), 3)
        self.assertIn("of-a", seen[0])
        self.assertNotIn("of-a", seen[1])
        self.assertFalse(os.path.exists("/dev/shm/of-a"))
        for kind in ("net", "mnt", "uts", "ipc", "pid"):
            found = {os.readlink(f"/proc/self/ns/{kind}")}
            found |= {self.do("exec", host, "readlink", f"/proc/self/ns/{kind}").strip()
                      for host in "ab"}
            self.assertEqual(len(found), 3, kind)

    def test_hosts_reach_each_other_by_name_and_use_cubic(self) -> None:
        with self.program("b", programs.SERVER) as server:
            port = server.stdout.readline().strip()
            self.assertIn("cubic", self.python("a", programs.CONNECT, "b", port, str(_LIMIT_S)))
            self.assertEqual(server.stdout.readline(), "10.77.0.1\n")

    def test_exec_has_folder_environment_input_and_status_of_the_caller(self) -> None:
        look = 'pwd; echo "$LAB_CLUSTER_HOSTS $FROM_HERE"; cat; exit 7'
        with tempfile.TemporaryDirectory() as folder:
            ran = cluster("exec", "b", "sh", "-c", look, env={**self.env, "FROM_HERE": "here"},
                          cwd=folder, input="line\n")
            self.assertEqual(ran.stdout.splitlines(),
                             [os.path.realpath(folder), "a,b here", "line"])
        self.assertEqual(ran.returncode, 7)
        self.do("exec", "a", "no-such-program", status=127)

    def test_exec_passes_signals_on(self) -> None:
        with self.running("exec", "a", "sh", "-c", "echo ready; exec sleep 1000") as process:
            self.assertEqual(process.stdout.readline(), "ready\n")
            process.terminate()
            self.assertEqual(process.wait(_LIMIT_S), 128 + signal.SIGTERM)

    def test_exec_on_all_names_the_host_of_each_line(self) -> None:
        said = self.do("exec", "all", "sh", "-c", "hostname; printf end; [ $(hostname) = a ]",
                       status=1)
        self.assertEqual(sorted(said.splitlines()), ["[a] a", "[a] end", "[b] b", "[b] end"])

    def test_ssh_needs_no_flag(self) -> None:
        need("ssh")
        self.assertEqual(self.do("exec", "a", "ssh", "b", "hostname").strip(), "b")
        self.assertEqual(self.do("exec", "b", "ssh", "a", "hostname; exit 3", status=3), "a\n")
        config = str(self.states / "default" / "ssh_config")
        said = self.do("exec", "a", "ssh", "-F", config, "b", "echo $LAB_CLUSTER_HOSTS")
        self.assertEqual(said, "a,b\n")

    def test_a_frozen_host_goes_on_when_it_is_thawed(self) -> None:
        with self.program("b", programs.ECHO) as echo:
            self.assertEqual(echo.stdout.readline(), "ready\n")
            init = self.listed()["b"]["pid"]
            inside = set(processes_of([os.readlink(f"/proc/{init}/ns/net")])) - {init}
            in_host = {pid for pid in inside if os.readlink(f"/proc/{pid}/ns/pid")
                       == os.readlink(f"/proc/{init}/ns/pid")}
            self.assertTrue(in_host)
            self.do("fault", "freeze", "b")
            until(lambda: {state_of(pid) for pid in in_host} == {"T"}, "all are stopped")
            self.assertEqual(self.listed()["b"]["state"], ["frozen"])
            self.assertIn("fault thaw b", self.do("exec", "b", "true", status=1))
            echo.stdin.write("line\n")
            echo.stdin.flush()
            self.do("fault", "thaw", "b")
            self.assertEqual(echo.stdout.readline(), "line\n")

    def test_an_unplugged_host_is_not_reached(self) -> None:
        carrier = ["exec", "b", "cat", "/sys/class/net/eth0/carrier"]
        with self.program("b", programs.SERVER) as server:
            port = server.stdout.readline().strip()
            self.do("fault", "unplug", "b")
            self.assertEqual(self.listed()["b"]["state"], ["unplugged"])
            self.assertEqual(self.do(*carrier), "0\n")
            self.python("a", programs.CONNECT, "b", port, "0.2", status=1)
            self.do("fault", "plug", "b")
            self.assertEqual(self.do(*carrier), "1\n")
            self.python("a", programs.CONNECT, "b", port, str(_LIMIT_S))

    def test_a_cut_one_way_drops_only_that_way(self) -> None:
        need("--loss, cut")
        listen = functools.partial(self.program, text=programs.RECEIVER)
        with listen("a") as at_a, listen("b") as at_b:
            port_a, port_b = (at.stdout.readline().strip() for at in (at_a, at_b))
            self.do("fault", "cut", "a", "--to", "b", "--one-way")
            self.assertEqual(self.listed()["a"]["state"], ["cut to b"])
            self.python("a", programs.SEND, "b", port_b, "lost")
            self.python("b", programs.SEND, "a", port_a, "arrives")
            self.assertEqual(at_a.stdout.readline(), "arrives\n")
            self.do("fault", "heal", "a")
            self.python("a", programs.SEND, "b", port_b, "first")
            self.assertEqual(at_b.stdout.readline(), "first\n")

    def test_links_have_the_rate(self) -> None:
        need("--rate")
        tools = "PATH=/usr/sbin:/sbin:$PATH; tc qdisc show dev eth0; tc class show dev eth0"
        show = ["exec", "a", "sh", "-c", tools]
        self.assertRegex(self.do(*show), "(tbf|htb)(.|\n)* rate 1Gbit")
        self.do("fault", "slow", "a", "--rate", "10mbit")
        self.assertEqual(self.listed()["a"]["state"], ["slow 10mbit"])
        self.assertIn(" rate 10Mbit", self.do(*show))
        self.do("fault", "heal", "all")
        self.assertIn(" rate 1Gbit", self.do(*show))

    def test_refusals_name_the_cause_and_the_next_step(self) -> None:
        for arguments, text in (
            (["up", "2", "--no-ssh"], "cluster default exists: tools/cluster down default"),
            (["up", "--name", "x"], "the number of hosts is 1 to 26"),
            (["up", "3", "--name", "x", "--hosts", "a,b"], "names 2 hosts, not 3"),
            (["up", "2", "--name", "../x"], "no name of a cluster"),
            (["up", "2", "--name", "x", "--rate", "fast"], "no rate such as"),
            (["up", "2", "--name", "x", "--loss", "1"], "no loss such as"),
            (["up", "2", "--name", "x", "--delay", "5"], "no delay such as"),
            (["exec", "z", "true"], "its hosts are a, b"),
            (["exec", "a"], "exec needs a command"),
            (["run", "2"], "run needs a command"),
            (["fault", "kill", "z"], "its hosts are a, b"),
            (["fault", "cut", "a"], "needs --to"),
            (["fault", "cut", "a", "--to", "a"], "not cut from itself"),
            (["fault", "thaw", "a"], "not frozen"),
            (["down", "other"], "there is no cluster other: there are default"),
        ):
            self.assertIn(text, self.do(*arguments, status=1), arguments)
        self.assertEqual([path.name for path in self.states.iterdir()], ["default"])

    def test_the_folder_of_another_user_is_refused(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            os.mkdir(f"{folder}/covey-cluster-{os.getuid()}")
            os.chmod(f"{folder}/covey-cluster-{os.getuid()}", 0o777)
            refused = cluster("list", env={**self.env, "XDG_RUNTIME_DIR": folder})
            self.assertEqual(refused.returncode, 1)
            self.assertIn("open to other users", refused.stderr)


class LifeTest(Case):
    """Clusters from their beginning to their end."""

    def setUp(self) -> None:
        super().setUp()
        self.addCleanup(cluster, "down", env=self.env)

    def test_down_leaves_nothing(self) -> None:
        before = [socket.if_nameindex(), pathlib.Path("/proc/self/mountinfo").read_bytes()]
        self.do("up", "--hosts", "east,west", "--no-ssh", "--mtu", "9000", "--shm", "1m")
        inits = [host["pid"] for host in self.listed().values()]
        self.assertEqual(list(self.listed()), ["east", "west"])
        namespaces = [os.readlink(f"/proc/{pid}/ns/net") for pid in inits]
        self.assertEqual(self.do("exec", "east", "cat", "/sys/class/net/eth0/mtu"), "9000\n")
        self.assertIn("1024", self.do("exec", "west", "df", "-k", "/dev/shm"))
        self.do("exec", "west", "sh", "-c", "sleep 1000 >/dev/null 2>&1 &")
        self.assertGreater(len(processes_of(namespaces)), 2)
        self.do("fault", "kill", "east")
        self.assertEqual(self.listed()["east"]["state"], ["dead"])
        self.assertIn("east is dead", self.do("exec", "east", "true", status=1))
        self.do("down")
        self.assertEqual(processes_of(namespaces), [])
        self.assertEqual(list(self.states.iterdir()), [])
        after = [socket.if_nameindex(), pathlib.Path("/proc/self/mountinfo").read_bytes()]
        self.assertEqual(after, before)

    def test_run_ends_with_its_command_and_its_status(self) -> None:
        said = self.do("run", "2", "--no-ssh", "--", "sh", "-c",
                       "hostname; echo $LAB_CLUSTER_HOSTS; exit 5", status=5)
        self.assertEqual(said.split(), ["a", "a,b"])
        self.assertEqual(list(self.states.iterdir()), [])

    def test_a_killed_run_leaves_nothing(self) -> None:
        with self.running("run", "2", "--no-ssh", "--", "sh", "-c",
                          "trap '' TERM; sleep 1000 & echo ready; wait") as process:
            self.assertEqual(process.stdout.readline(), "ready\n")
            inits = [host["pid"] for host in self.listed().values()]
            namespaces = [os.readlink(f"/proc/{pid}/ns/net") for pid in inits]
            process.kill()
            self.assertEqual(process.stdout.read(), "")  # All that could write have ended.
        until(lambda: not processes_of(namespaces), "its processes have ended")
        until(lambda: not list(self.states.iterdir()), "its folder is gone")

    def test_an_up_that_fails_leaves_nothing(self) -> None:
        said = self.do("up", "2", "--no-ssh", status=1, preexec_fn=lambda: resource.setrlimit(
            resource.RLIMIT_FSIZE, (0, 0)))
        self.assertIn("File too large", said)
        self.assertEqual(list(self.states.iterdir()), [])

    def test_packets_are_late_by_the_delay(self) -> None:
        need("--delay")
        self.do("up", "2", "--no-ssh", "--delay", "20ms")
        with self.program("b", programs.SERVER) as server:
            port = server.stdout.readline().strip()
            took = self.python("a", programs.CONNECT, "b", port, str(_LIMIT_S)).split()[1]
        self.assertGreaterEqual(float(took), 0.04)

    def test_the_transcript_of_the_guide_is_true(self) -> None:
        need("--rate", "--delay", "--loss, cut", "ssh")
        guide = (_ROOT / "examples" / "guide" / "clusters.md").read_text(encoding="utf-8")
        (transcript,) = re.findall(r"^```text\n(\$ tools/cluster(?:.|\n)*?)^```", guide, re.M)
        seen = ""
        for command in re.findall(r"^\$ (tools/cluster .*)$", transcript, re.M):
            seen += f"$ {command}\n{self.do(*shlex.split(command)[1:])}"

        def without_pids(text: str) -> str:
            return re.sub(r"  \d+  |  PID +", "  PID  ", text)

        self.assertEqual(without_pids(seen), without_pids(transcript))

    def test_all_packets_can_be_lost(self) -> None:
        need("--loss, cut")
        self.do("up", "2", "--no-ssh", "--loss", "100%")
        with self.program("b", programs.SERVER) as server:
            port = server.stdout.readline().strip()
            self.python("a", programs.CONNECT, "b", port, "0.2", status=1)

    def test_without_namespaces_it_says_so(self) -> None:
        forbid = ("echo 0 >/proc/sys/user/max_user_namespaces && exec setpriv --bounding-set -all "
                  '--inh-caps -all --ambient-caps -all "$@"')
        before = ["unshare", "--user", "--map-root-user", "sh", "-c", forbid, "sh"]
        if subprocess.run([*before, "true"], capture_output=True, check=False).returncode != 0:
            self.skipTest("unshare or setpriv cannot take the rights away")
        for arguments in (["check"], ["up", "2", "--no-ssh"], ["run", "2", "--", "true"]):
            ran = cluster(*arguments, env=self.env, before=[*before, sys.executable])
            self.assertEqual(ran.returncode, _SKIPPED, ran.stdout + ran.stderr)
            self.assertIn("no namespaces can be made here", ran.stdout + ran.stderr)
            self.assertEqual(len((ran.stdout + ran.stderr).splitlines()), 1)

    def test_a_user_without_root_may_have_one(self) -> None:
        if os.getuid() != 0 or shutil.which("setpriv") is None:
            self.skipTest("it starts as root and becomes the user nobody by setpriv")
        user = pwd.getpwnam("nobody")
        before = ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups",
                  "/usr/bin/python3"]
        folder = tempfile.mkdtemp(prefix="covey")
        self.addCleanup(shutil.rmtree, folder)
        os.chown(folder, user.pw_uid, user.pw_gid)
        env = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "XDG_RUNTIME_DIR": folder}
        checked = cluster("check", env=env, before=before, cwd="/")
        if checked.returncode != 0:
            self.skipTest(f"nobody: {checked.stdout}{checked.stderr}")
        command = ["sh", "-c", "hostname; id -u; ls /sys/class/net; exit 3"]
        ran = cluster("run", "2", "--no-ssh", "--", *command, env=env, before=before, cwd="/")
        self.assertEqual(ran.stdout.split(), ["a", str(user.pw_uid), "eth0", "lo"], ran.stderr)
        self.assertEqual(ran.returncode, 3)
        self.assertEqual(os.listdir(f"{folder}/covey-cluster-{user.pw_uid}"), [])


if __name__ == "__main__":
    unittest.main()
