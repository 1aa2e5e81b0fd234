"""What the tests with real processes share: a launcher under test and its output as it comes.

Nothing here sleeps to synchronise: tests wait for lines and for processes to go, with a hard limit
that only a hang reaches.
"""

from __future__ import annotations

import importlib.util
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from typing import Any, Dict, List, Optional, Sequence, Tuple

import fake_ssh
import warm

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
LIMIT_S = 60.0
# `tools/test --hosts N`: the ranks of a job on so many hosts, which reach each other by TCP.
HOSTS = int(os.environ.get("TEST_HOSTS") or 1)
_ssh = tempfile.TemporaryDirectory()  # With the program in ssh's place.
# The control plane of jobs of several launchers, where the machine that built this has gRPC.
PLUGIN_FOLDER = str(pathlib.Path(__file__).absolute().parents[2] / "ops" / "control")
PLUGIN = os.path.exists(os.path.join(PLUGIN_FOLDER, "libcovey_grpc.so"))
WHY_NO_PLUGIN = "libcovey_grpc.so was not built: tools/setup says what it needs"
TENSORFLOW = importlib.util.find_spec("tensorflow") is not None
WHY_NO_TENSORFLOW = "no TensorFlow here: tools/setup --with tensorflow"
# Where Bazel has compiled covey.tensorflow's operations; by hand the first import does so.
_OPERATIONS = pathlib.Path(__file__).absolute().parents[1] / "tensorflow_operations"
# Of jobs: drawn, as a secret has to be.
SECRET = "9e7d24f0c1b85a3362d4f1a07bc8e9554f0d3a1c67b29e8840f5d6c7ab1392e4"
OTHER_SECRET = "0b1f6e93d75ac2484c9de2570fa3861b6bd8207e34f19ac59702ee4d51c683fa"

try:
    import covey  # noqa: F401
except ImportError:
    sys.path.insert(0, str(REPOSITORY / "frameworks"))


def also(*values: Any) -> Tuple[Any, ...]:
    """Values of a case that repeat others: `tools/test --slow` takes them too."""
    return values if os.environ.get("TEST_SLOW") == "1" else ()


_shared: Dict[str, str] = {}  # In every environment.


def preload(modules: str, once: bool = True) -> None:
    """From now on ranks that run Python are forks of a process that has imported these: `coveyrun
    --preload`, which preload_test.py shows to change nothing else. They are imported `once`:
    what the test itself starts, launchers as scripts, is a fork too (warm.py). Without it, and
    with TEST_SLOW=1, each job imports them."""
    _shared["COVEY_PRELOAD"] = modules
    if once:
        warm.import_once(modules, environment())


def with_operations() -> Dict[str, str]:
    """The variables by which a rank finds covey.tensorflow's operations."""
    found = {"COVEY_PLUGIN_PATH": str(_OPERATIONS)} if _OPERATIONS.is_dir() else {}
    return {"TF_CPP_MIN_LOG_LEVEL": "3", **found}


class Hang(AssertionError):
    """Something that had to happen did not, within the hard limit."""


def environment(**extra: str) -> Dict[str, str]:
    """This process's environment, such that a child imports what this process can."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("COVEY_")}
    env.pop("PYTHONUNBUFFERED", None)  # With it a line is written in parts, others' between them.
    env["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    env.setdefault("HOME", tempfile.gettempdir())  # Bazel takes it away, and Open MPI 5 needs one.
    # Tests that run at once may have the same process numbers, each in a namespace of its own: by
    # these Open MPI names the memory of its ranks, which would be one in /dev/shm.
    env["OMPI_MCA_btl_vader_backing_directory"] = env.get("TEST_TMPDIR", tempfile.gettempdir())
    env.update(_shared)
    env.update(extra)
    return env


def processes_with(mark: str) -> List[int]:
    """Living processes whose environment holds the mark."""
    found = []
    wanted = f"{warm.MARK}={mark}".encode()
    name_of_forks = mark[: warm.NAME_LENGTH].encode()
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/environ", "rb") as file:
                is_marked = wanted in file.read().split(b"\0")
            with open(f"/proc/{name}/stat", "rb") as file:
                before, _, after = file.read().rpartition(b")")
            is_marked = is_marked or before.partition(b"(")[2] == name_of_forks
            if is_marked and after.split()[0] not in (b"Z", b"X"):
                found.append(int(name))
        except OSError:
            continue
    return found


def holders_of_memory(inode: int) -> List[int]:
    """Processes that hold the memfd with this inode number, open or mapped."""
    found = []
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/maps", encoding="ascii", errors="replace") as maps:
                mapped = any(f" {inode} " in line and "memfd:" in line for line in maps)
            paths = [f"/proc/{name}/fd/{fd}" for fd in os.listdir(f"/proc/{name}/fd")]
            memfds = [path for path in paths if os.readlink(path).startswith("/memfd:")]
            opened = any(os.stat(path).st_ino == inode for path in memfds)
        except OSError:
            continue
        if mapped or opened:
            found.append(int(name))
    return found


def wait_until_memory_gone(inode: int, limit_s: float = LIMIT_S) -> None:
    """Waits until nobody holds this memfd: a dying process lets go of it a moment later."""
    deadline = time.monotonic() + limit_s
    while True:
        holders = holders_of_memory(inode)
        if not holders:
            return
        if time.monotonic() > deadline:
            raise Hang(f"processes {holders} still hold the memfd with inode {inode}")
        time.sleep(0.01)


def wait_for_state(pid: int, state: str, limit_s: float = LIMIT_S) -> None:
    """Waits until the process is in a state such as T, stopped."""
    deadline = time.monotonic() + limit_s
    while True:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            found = file.read().rpartition(")")[2].split()[0]
        if found == state:
            return
        if time.monotonic() > deadline:
            raise Hang(f"process {pid} is in state {found}, not {state}")
        time.sleep(0.01)


def _on_hosts(arguments: Sequence[str]) -> List[str]:
    """These arguments with the ranks on HOSTS hosts, if they name a number of ranks and no host."""
    words = list(arguments)
    at = words.index("-np") + 1 if "-np" in words[:-1] else 0
    size = int(words[at]) if at and words[at].isdecimal() else 1
    hosts = min(HOSTS, size)
    stays = ("-H", "--hostfile", "--serve", "--join", "--min-np")
    if hosts < 2 or any(word in words for word in stays):
        return words
    of_host = [(size + hosts - 1 - host) // hosts for host in range(hosts)]
    ssh, _ = fake_ssh.write(pathlib.Path(_ssh.name))
    named = ",".join(f"host{host}:{local}" for host, local in enumerate(of_host))
    return ["--ssh", str(ssh), "-H", named, *words[: at - 1], *words[at + 1 :]]


class Launched:
    """`coveyrun` started by a test. Use as a context manager: nothing it started stays behind."""

    def __init__(
        self,
        arguments: Sequence[str],
        env: Optional[Dict[str, str]] = None,
        cwd: Optional[str] = None,
        entry: str = "import sys; from covey.cli import coveyrun_main; sys.exit(coveyrun_main())",
    ) -> None:
        """Starts `coveyrun ARGUMENTS` in a session of its own."""
        self.mark = uuid.uuid4().hex
        self.lines: List[Tuple[str, str]] = []  # (stream, line)
        self._news = threading.Condition()
        self.process = subprocess.Popen(
            [sys.executable, "-c", entry, *_on_hosts(arguments)],
            env={**environment(), **(env or {}), warm.MARK: self.mark},
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        self._readers = [
            threading.Thread(target=self._read, args=item, daemon=True)
            for item in (("stdout", self.process.stdout), ("stderr", self.process.stderr))
        ]
        for reader in self._readers:
            reader.start()

    def _read(self, name: str, pipe) -> None:  # type: ignore[no-untyped-def]
        for line in pipe:
            with self._news:
                self.lines.append((name, line.decode("utf-8", "replace").rstrip("\n")))
                self._news.notify_all()

    def __enter__(self) -> Launched:
        return self

    def __exit__(self, *exception: object) -> None:
        for pid in processes_with(self.mark):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.process.wait()
        for reader in self._readers:
            reader.join()
        for pipe in (self.process.stdout, self.process.stderr):
            assert pipe is not None
            pipe.close()

    def stdout(self) -> List[str]:
        """Lines of standard output so far."""
        with self._news:
            return [line for name, line in self.lines if name == "stdout"]

    def stderr(self) -> List[str]:
        """Lines of standard error so far."""
        with self._news:
            return [line for name, line in self.lines if name == "stderr"]

    def all(self) -> List[str]:
        """Lines of both, in the order they came."""
        with self._news:
            return [line for _, line in self.lines]

    def wait_for(self, pattern: str, count: int = 1, limit_s: float = LIMIT_S) -> List[re.Match]:
        """Waits until `count` lines match. Returns the matches."""
        deadline = time.monotonic() + limit_s
        with self._news:
            while True:
                found = [m for _, line in self.lines for m in [re.search(pattern, line)] if m]
                if len(found) >= count:
                    return found
                left = deadline - time.monotonic()
                if left <= 0:
                    raise Hang(f"{len(found)} of {count} lines match {pattern!r}:\n{self.dump()}")
                self._news.wait(left)

    def dump(self) -> str:
        """Everything printed so far, for a failure message."""
        return "\n".join(f"{name}: {line}" for name, line in self.lines)

    def finish(self, limit_s: float = LIMIT_S) -> int:
        """Waits for the launcher's end and all of its output. Returns its exit code."""
        try:
            code = self.process.wait(limit_s)
        except subprocess.TimeoutExpired:
            raise Hang(f"the launcher did not end:\n{self.dump()}") from None
        for reader in self._readers:
            reader.join(limit_s)
            if reader.is_alive():
                raise Hang(f"somebody still holds the launcher's output:\n{self.dump()}")
        return code

    def wait_until_gone(self, limit_s: float = LIMIT_S) -> None:
        """Waits until no process of the job is left."""
        deadline = time.monotonic() + limit_s
        while True:
            left = processes_with(self.mark)
            if not left:
                return
            if time.monotonic() > deadline:
                raise Hang(f"processes {left} are still there:\n{self.dump()}")
            time.sleep(0.01)  # a poll: the system does not tell about other people's processes

    def send(self, number: int) -> None:
        """Sends the launcher a signal."""
        os.kill(self.process.pid, number)


def run_launcher(arguments: Sequence[str], **options: Any) -> Tuple[int, List[str], List[str]]:
    """Runs `coveyrun ARGUMENTS` to its end: (exit code, lines of stdout, lines of stderr)."""
    with Launched(arguments, **options) as launched:
        code = launched.finish()
        launched.wait_until_gone()
        return code, launched.stdout(), launched.stderr()
