"""Goal: `coveyrun -H` starts and ends jobs on real hosts by ssh, and leaves nothing on any of them,
whatever happens. Method: hosts of tools/cluster, their ssh, and their faults; the programs of the
ranks are plain Python."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import pathlib
import queue
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import unittest
from typing import Dict, Iterator, List, Optional, Tuple

import cluster_programs as programs
from cluster_test import _CLUSTER, _LIMIT_S, _ROOT, Case, cluster, means, need, until

_LAUNCH = "import sys; from covey.cli import coveyrun_main; sys.exit(coveyrun_main())"
_MARK = "COVEYRUN_ON_HOSTS"


def _carried() -> Dict[str, str]:
    """The environment of a launcher in a host, which imports what this process can."""
    env = {name: text for name, text in os.environ.items() if not name.startswith("COVEY_")}
    paths = [os.path.abspath(path) for path in sys.path if path]
    return {**env, "PYTHONPATH": os.pathsep.join(paths), "PYTHONDONTWRITEBYTECODE": "1"}


def has_tcp() -> bool:
    """Whether ranks of several hosts can reach each other without a plug-in of the site's."""
    found = importlib.util.find_spec("covey")
    folders = list(found.submodule_search_locations or []) if found else []
    return any(pathlib.Path(folder, "libcovey_tcp.so").exists() for folder in folders)


class Job:
    """coveyrun on a host, beside the test. Use as a context manager."""

    def __init__(
        self, arguments: List[str], env: Dict[str, str], cwd: Optional[str], host: str = "a"
    ) -> None:
        command = [sys.executable, _CLUSTER, "exec", host, sys.executable, "-c", _LAUNCH]
        self.process = subprocess.Popen(
            [*command, *arguments], env=env, cwd=cwd, text=True, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.lines: List[str] = []
        self._came: "queue.Queue[str]" = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._came.put(line.rstrip("\n"))

    def wait_for(self, pattern: str, count: int = 1) -> List[re.Match]:
        """Until so many lines match."""
        while True:
            found = [match for line in self.lines for match in [re.search(pattern, line)] if match]
            if len(found) >= count:
                return found
            try:
                self.lines.append(self._came.get(timeout=_LIMIT_S))
            except queue.Empty:
                raise AssertionError(f"no {pattern} in {self.lines}") from None

    def so_far(self) -> List[str]:
        """The lines that have come, without waiting."""
        while not self._came.empty():
            self.lines.append(self._came.get())
        return self.lines

    def finish(self) -> Tuple[int, str]:
        """Its exit code, and all that it has printed."""
        try:
            code = self.process.wait(_LIMIT_S)
        except subprocess.TimeoutExpired:
            raise AssertionError("it does not end:\n" + "\n".join(self.so_far())) from None
        self._reader.join(_LIMIT_S)
        return code, "\n".join(self.so_far())

    def __enter__(self) -> Job:
        return self

    def __exit__(self, *exception: object) -> None:
        self.process.kill()
        self.process.wait()
        self._reader.join(_LIMIT_S)
        assert self.process.stdout is not None
        self.process.stdout.close()


class Hosts(Case):
    """A cluster for each class, with coveyrun on a."""

    HOSTS = "3"

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        if means().get("cluster") or means()["ssh"]:
            return  # Each test is skipped.
        cls.env = {**_carried(), "XDG_RUNTIME_DIR": cls.env["XDG_RUNTIME_DIR"]}
        made = cluster("up", cls.HOSTS, env=cls.env)
        assert made.returncode == 0, made.stderr
        cls.addClassCleanup(cluster, "down", env=cls.env)

    def setUp(self) -> None:
        need("ssh")

    @contextlib.contextmanager
    def job(
        self, *arguments: str, cwd: Optional[str] = None, host: str = "a", **more: str
    ) -> Iterator[Job]:
        """coveyrun with a variable by which its processes are known; they must be gone then."""
        with Job(list(arguments), {**self.env, _MARK: self.id(), **more}, cwd, host) as job:
            yield job
        until(lambda: not self.left(), "no process of the job is left on any host")

    def run_job(self, *arguments: str, **options: str) -> Tuple[int, str]:
        with self.job(*arguments, **options) as job:
            return job.finish()

    def left(self) -> List[int]:
        """The processes of the test's job, on all hosts; zombies are none."""
        found = []
        wanted = f"{_MARK}={self.id()}".encode()
        for entry in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError):
                environ = pathlib.Path(f"/proc/{entry}/environ").read_bytes().split(b"\0")
                if wanted in environ:
                    found.append(int(entry))
        return found

    def python_of(self, *code: str) -> List[str]:
        return [sys.executable, "-c", *code]


class JobsTest(Hosts):
    """Jobs that leave the cluster as it was."""

    def test_ranks_have_a_place_a_book_and_listeners_that_accept(self) -> None:
        code, said = self.run_job("-H", "a:2,b:1,c:2", *self.python_of(programs.PLACE))
        self.assertEqual(code, 0, said)
        wanted = ["[0] a 0 0/2", "[1] a 0 1/2", "[2] b 2 0/1", "[3] c 3 0/2", "[4] c 3 1/2"]
        self.assertEqual(sorted(said.splitlines()), wanted)

    def test_the_first_failure_ends_the_job_and_is_named_with_its_host(self) -> None:
        code, said = self.run_job("-H", "a:1,b:2,c:1", *self.python_of(programs.FAIL, "2", "7"))
        self.assertEqual(code, 7, said)
        self.assertRegex(said, r"coveyrun: rank 2 on b \(pid \d+\) failed first: exit code 7")
        self.assertIn("ranks 0, 1 and 3 ended by the launcher", said)

    def test_folder_and_environment_are_carried_and_the_host_keeps_its_own(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            show = "import os, socket; e = os.environ; print(os.getcwd(), e['LR'], e['FROM_X'],"
            show += " socket.gethostname(), 'SSH_CONNECTION' in e, e.get('XDG_RUNTIME_DIR'))"
            words = ["-H", "b,c", "-x", "FROM_X=1 2", *self.python_of(show)]
            code, said = self.run_job(*words, cwd=folder, LR="0.1")
            where = os.path.realpath(folder)
        wanted = [f"[{rank}] {where} 0.1 1 2 {host} True None" for rank, host in enumerate("bc")]
        self.assertEqual((code, sorted(said.splitlines())), (0, wanted))

    def test_a_folder_that_a_host_has_not_is_named(self) -> None:
        self.do("exec", "a", "mkdir", "-p", "/dev/shm/here")
        with self.job("-H", "a,b,c", "true", cwd="/") as job:
            self.assertEqual(job.finish()[0], 0)
        go = "cd /dev/shm/here && exec " + " ".join([sys.executable, "-c", f"'{_LAUNCH}'"])
        said = self.do("exec", "a", "sh", "-c", f"{go} -H a,b,c true", status=2)
        for host in "bc":
            self.assertIn(f"coveyrun: {host}: cannot enter the working folder /dev/shm/here", said)
        self.assertEqual(len(said.splitlines()), 2)

    def test_mistakes_name_host_and_reason(self) -> None:
        for words, expected in (
            (["-H", "nowhere,b"], "nowhere: ssh: Could not resolve hostname nowhere"),
            (["-H", "b", "--ssh-port", "9"], "b: ssh: connect to host b port 9: Connection ref"),
            (["-H", "b", "--remote-python", "/x/python"], "b: there is no /x/python"),
            (["-H", "a,b", "--network", "10.9.0.0/16"], "--network 10.9.0.0/16: none of a: eth0"),
            (["-H", "b", "--ssh-args", "-o IdentityFile=/no -F /dev/null"], "b: Host key verif"),
        ):
            with self.subTest(words=words):
                code, said = self.run_job(*words, "true")
                self.assertEqual(code, 2, said)
                self.assertIn(f"coveyrun: {expected}", said)

    def test_a_host_behind_a_firewall_is_named_before_a_rank_starts(self) -> None:
        need("--loss, cut")
        self.do("fault", "cut", "b", "--to", "c")
        try:
            code, said = self.run_job("-H", "a,b,c", *self.python_of("print('started')"))
        finally:
            self.do("fault", "heal", "all")
        self.assertEqual((code, len(said.splitlines())), (2, 2), said)
        self.assertRegex(said, r"coveyrun: b cannot reach c at 10\.77\.0\.3:\d+ \(no answer within")
        self.assertRegex(said, r"coveyrun: c cannot reach b at 10\.77\.0\.2:\d+ .*--network")

    def test_the_transcript_of_the_guide_is_true(self) -> None:
        guide = (_ROOT / "examples" / "guide" / "clusters.md").read_text(encoding="utf-8")
        (transcript,) = re.findall(r"^```text\n\$ cat place.py\n((?:.|\n)*?)^```", guide, re.M)
        script, *runs = re.split(r"^\$ coveyrun ", transcript, flags=re.M)
        self.assertGreater(len(runs), 1)
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "place.py").write_text(script, encoding="utf-8")
            for run in runs:
                words, *wanted = run.splitlines()
                command = [sys.executable if it == "python" else it for it in shlex.split(words)]
                said = self.run_job(*command, cwd=folder)[1]
                said = re.sub(r"pid \d+", "pid 4711", said)
                self.assertEqual(sorted(said.splitlines()), sorted(wanted))

    def test_a_ctrl_c_ends_all(self) -> None:
        with self.job("-H", "a:2,b:1,c:1", *self.python_of(programs.WAIT)) as job:
            job.wait_for(r"^\[\d\] up", 4)
            job.process.send_signal(signal.SIGINT)
            code, said = job.finish()
        self.assertEqual(code, 128 + signal.SIGINT, said)
        self.assertRegex(said, "interrupted; where the ranks are")

    def test_a_killed_launcher_leaves_nothing_on_any_host(self) -> None:
        with self.job("-H", "a:2,b:1,c:1", *self.python_of(programs.WAIT)) as job:
            job.wait_for(r"^\[\d\] up", 4)
            (head,) = [pid for pid in self.left() if b"coveyrun_main" in _command(pid)
                       and b"exec" not in _command(pid)]
            os.kill(head, signal.SIGKILL)
            self.assertEqual(job.finish()[0], 128 + signal.SIGKILL)

    @unittest.skipUnless(has_tcp(), "libcovey_tcp.so is not there")
    def test_ranks_of_several_hosts_sum_up(self) -> None:
        code, said = self.run_job("-H", "a:2,b:1,c:1", *self.python_of(programs.SUM))
        self.assertEqual((code, sorted(said.splitlines())), (0, [f"[{r}] 10" for r in range(4)]))


def _command(pid: int) -> bytes:
    return pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()


class Faults(Hosts):
    """Hosts that are lost while ranks run."""

    def lose(self, fault: str, why: str) -> None:
        words = ["-H", "a:1,b:1,c:2", *self.python_of(programs.WAIT)]
        with self.job(*words, COVEY_LEASE="2s") as job:
            job.wait_for(r"^\[\d\] up", 4)
            self.do("fault", fault, "c")
            code, said = job.finish()
            self.assertEqual(code, 1, said)
            self.assertRegex(said, f"host c is lost, and with it ranks 2 and 3: {why}")
            self.assertIn("ranks 0 and 1 ended by the launcher", said)
            if fault == "freeze":
                self.do("fault", "thaw", "c")


class FaultsTest(Faults):
    def test_a_frozen_host(self) -> None:
        self.lose("freeze", "(nothing was heard of it|ssh ended)")

    def test_the_end_of_a_host(self) -> None:
        self.addCleanup(cluster, "up", self.HOSTS, env=self.env)
        self.addCleanup(cluster, "down", env=self.env)
        self.lose("kill", "ssh ended with exit code 255")


if __name__ == "__main__":
    unittest.main()
