"""Jobs that are watched while they train, for the tests of ranks that are stopped or killed.

A rank keeps a Report in the job's folder and trains until there is a file `end`.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import random
import signal
import tempfile
import time
from typing import Any, Callable, Iterator, List, Tuple

from ranks import SEED, Pool

import covey

LIMIT_S = 180.0  # On a busy machine a rank takes a minute to import torch.


class Report:
    """What a rank writes down."""

    def __init__(self, folder: str, rank: int) -> None:
        self._end = pathlib.Path(folder) / "end"
        self._go = pathlib.Path(folder) / "go"
        self._file = open(pathlib.Path(folder) / str(rank), "wb", buffering=0)

    @property
    def goes_on(self) -> bool:
        """Whether to train on."""
        return not self._end.exists()

    def wait_to_go(self) -> None:
        """Until the test says ``let_go()``."""
        while not self._go.exists():
            time.sleep(0.001)  # A poll, as the test's are.

    def write(self, version: int, overdue: int = 0) -> None:
        """After every step; ``overdue``: so many ranks are not waited for."""
        os.pwrite(self._file.fileno(), b"%12d %3d" % (version, overdue), 0)


def finish(optimizer: Any) -> str:
    """Until all have come, or one is known to be dead: then what was said of it."""
    while True:
        try:
            optimizer.finish(strict=True)
            return ""
        except covey.Timeout as missing:
            assert "max_wait" in str(missing), missing
        except covey.Aborted as aborted:
            return str(aborted)


class Watched:
    """A job whose ranks train until told and write their versions down: ``train_until`` of the
    test in ``file``, called with a folder and ``args``."""

    def __init__(self, size: int, file: str, train_until: Callable[..., Any], *args: Any) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.pool = Pool(size, file)
        self.pool.send(train_until, self.folder.name, *args)

    def __enter__(self) -> Watched:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.pool.processes:
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
        self.pool.close()
        self.folder.cleanup()

    def version(self, rank: int) -> int:
        return self._report(rank)[0]

    def _report(self, rank: int) -> Tuple[int, int]:
        """Its version, and how many ranks were overdue then."""
        try:
            words = (pathlib.Path(self.folder.name) / str(rank)).read_bytes().split()
        except FileNotFoundError:
            words = []
        return (int(words[0]), int(words[1])) if words else (0, 0)

    def wait_for_version(self, rank: int, version: int) -> None:
        self._wait_until(
            lambda: self.version(rank) >= version, f"rank {rank} to be at version {version}"
        )

    def wait_until_none_is_overdue(self, rank: int) -> None:
        """As that rank has it."""
        self._wait_until(
            lambda: self._report(rank)[1] == 0, f"nobody to be overdue at rank {rank}"
        )

    def wait_for(self, file: str) -> None:
        """Until a rank has made it in the job's folder."""
        path = pathlib.Path(self.folder.name) / file
        self._wait_until(path.exists, f"the file {file!r}")

    def _wait_until(self, done: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + LIMIT_S
        while not done():
            if time.monotonic() > deadline:
                raise AssertionError(
                    f"seed {SEED}: waited for {what}; "
                    f"they are at {[self._report(r) for r in range(self.pool.size)]}; "
                    + "; ".join(self.pool.says(r) for r in range(self.pool.size))
                )
            time.sleep(0.001)  # A poll: the ranks go on by themselves.

    def wait_for_all(self, version: int) -> None:
        for rank in range(self.pool.size):
            self.wait_for_version(rank, version)

    @contextlib.contextmanager
    def stopped(self, rank: int, rng: random.Random) -> Iterator[int]:
        """Within it that rank is stopped, anywhere in a step: at the version that it is given."""
        time.sleep(rng.uniform(0, 0.02))
        self.pool.processes[rank].send_signal(signal.SIGSTOP)
        self.wait_until_stopped(rank)
        yield self.version(rank)
        self.go_on(rank)

    def go_on(self, rank: int) -> None:
        """It is not stopped any more."""
        self.pool.processes[rank].send_signal(signal.SIGCONT)

    def let_go(self) -> None:
        """Ranks that wait for it go on."""
        (pathlib.Path(self.folder.name) / "go").touch()

    def kill(self, rank: int, rng: random.Random) -> None:
        """Anywhere in a step."""
        time.sleep(rng.uniform(0, 0.05))
        self.pool.processes[rank].kill()
        self.pool.processes[rank].wait()

    def wait_until_stopped(self, rank: int) -> None:
        deadline = time.monotonic() + LIMIT_S
        path = f"/proc/{self.pool.processes[rank].pid}/stat"
        while pathlib.Path(path).read_text().rpartition(")")[2].split()[0] != "T":
            if time.monotonic() > deadline:
                raise AssertionError(f"rank {rank} does not stop")
            time.sleep(0.001)  # A poll: the system tells only its parent.

    def others_go_on(self, rank: int, versions: int = 50) -> None:
        """Each other rank does so many versions from now on."""
        others = [r for r in range(self.pool.size) if r != rank]
        begin = {r: self.version(r) for r in others}
        for other in others:
            self.wait_for_version(other, begin[other] + versions)

    def end(self, may_end: bool = False) -> List[Any]:
        (pathlib.Path(self.folder.name) / "end").touch()
        return self.pool.collect(may_end=may_end)
