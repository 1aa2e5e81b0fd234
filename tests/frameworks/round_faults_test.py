"""Methods that do not wait for all ranks: a rank that is stopped or killed holds up nobody, and
what it has published counts once.

Versions are counted, not seconds; when a rank is stopped is drawn, from a seed that is printed.
"""

from __future__ import annotations

import os
import pathlib
import random
import signal
import tempfile
import time
import unittest
from typing import Any, Dict, List, Tuple

from ranks import SEED, Pool
from whole_numbers import Trainer, sum_of

import covey
import covey.torch as hvd

LIMIT_S = 60.0


def setUpModule() -> None:
    print(f"seed {SEED}")


def train_until(folder: str, method: str) -> Tuple[int, Dict[int, str], List[float], str]:
    """Writes its version down after every step; ends when there is a file `end`."""
    trainer = Trainer(method)
    place = pathlib.Path(folder)
    report = open(place / str(hvd.rank()), "wb", buffering=0)
    while not (place / "end").exists():
        trainer.step()
        os.pwrite(report.fileno(), b"%12d" % trainer.optimizer.version, 0)
    error = finish(trainer)
    return trainer.steps, trainer.seen, trainer.parameter.tolist(), error


def finish(trainer: Trainer) -> str:
    """Until all have come, or one is known to be dead."""
    while True:
        try:
            trainer.optimizer.finish()
            return ""
        except covey.Timeout as missing:
            assert "(max_wait) for rank" in str(missing), missing
        except covey.Aborted as aborted:
            return str(aborted)


class Watched:
    """A job that trains until told, whose ranks write their versions down."""

    def __init__(self, size: int, method: str) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.pool = Pool(size, __file__)
        self.pool.send(train_until, self.folder.name, method)

    def __enter__(self) -> Watched:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.pool.processes:
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
        self.pool.close()
        self.folder.cleanup()

    def version(self, rank: int) -> int:
        try:
            return int((pathlib.Path(self.folder.name) / str(rank)).read_bytes() or 0)
        except FileNotFoundError:
            return 0

    def wait_for_version(self, rank: int, version: int) -> None:
        deadline = time.monotonic() + LIMIT_S
        while self.version(rank) < version:
            if time.monotonic() > deadline:
                raise AssertionError(
                    f"seed {SEED}: rank {rank} is at version {self.version(rank)}, not {version}: "
                    + self.pool.stderr(rank)
                )
            time.sleep(0.001)  # A poll: the ranks go on by themselves.

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


class RoundFaultsTest(unittest.TestCase):
    def check_histories(self, histories: List[Dict[int, str]]) -> None:
        """Equal parameters at equal version, and all have come to the same last one."""
        for history in histories[1:]:
            self.assertEqual(history, histories[0], f"seed {SEED}")

    def test_a_stopped_rank_holds_up_nobody_and_catches_up(self) -> None:
        for size, stopped in ((2, 0), (3, 2), (4, 1)):
            rng = random.Random(SEED + size)
            with self.subTest(size=size), Watched(size, "eager:admit=solo,log=16384") as job:
                for rank in range(size):
                    job.wait_for_version(rank, 3)
                for _ in range(5):
                    time.sleep(rng.uniform(0, 0.02))  # Anywhere in a step.
                    job.pool.processes[stopped].send_signal(signal.SIGSTOP)
                    job.wait_until_stopped(stopped)
                    behind = job.version(stopped)
                    job.others_go_on(stopped)
                    self.assertLessEqual(job.version(stopped), behind)
                    job.pool.processes[stopped].send_signal(signal.SIGCONT)
                    job.wait_for_version(stopped, behind + 40)
                results = job.end()
                self.check_histories([seen for _, seen, _, _ in results])
                self.assertEqual(results[0][2], sum_of([steps for steps, _, _, _ in results]))

    def test_a_stopped_rank_is_waited_for_once(self) -> None:
        """Also where all are wanted; when it goes on it catches up and nothing is lost."""
        rng = random.Random(SEED)
        for stopped in (0, 2):
            method = "eager:admit=all,max_wait=200ms,log=16384"
            with self.subTest(stopped=stopped), Watched(3, method) as job:
                for rank in range(3):
                    job.wait_for_version(rank, 3)
                for _ in range(2):
                    time.sleep(rng.uniform(0, 0.02))  # Anywhere in a step.
                    job.pool.processes[stopped].send_signal(signal.SIGSTOP)
                    job.wait_until_stopped(stopped)
                    behind = job.version(stopped)
                    job.others_go_on(stopped, 200)
                    self.assertLessEqual(job.version(stopped), behind)
                    job.pool.processes[stopped].send_signal(signal.SIGCONT)
                    job.wait_for_version(stopped, behind + 190)
                results = job.end()
                self.check_histories([seen for _, seen, _, _ in results])
                self.assertEqual(results[0][2], sum_of([steps for steps, _, _, _ in results]))
                other = (stopped + 1) % 3
                self.assertIn(f"rank {stopped} was missing", job.pool.stderr(other))

    def test_a_killed_rank_holds_up_nobody(self) -> None:
        for size, killed in ((2, 1), (3, 0)):
            rng = random.Random(SEED - size)
            with self.subTest(size=size), Watched(size, "eager:admit=solo,log=16384") as job:
                for rank in range(size):
                    job.wait_for_version(rank, 3)
                time.sleep(rng.uniform(0, 0.05))  # Anywhere in a step.
                job.pool.processes[killed].kill()
                job.pool.processes[killed].wait()
                job.others_go_on(killed)
                results = [result for result in job.end(may_end=True) if result is not None]
                self.assertEqual(len(results), size - 1)
                self.check_histories([seen for _, seen, _, _ in results])
                for _, _, _, error in results:
                    self.assertIn(f"rank {killed}", error)

    def test_a_death_ends_the_wait_for_all(self) -> None:
        with Watched(3, "eager:admit=all") as job:
            for rank in range(3):
                job.wait_for_version(rank, 3)
            job.pool.processes[1].kill()
            job.pool.processes[1].wait()
            job.others_go_on(1)
            results = [result for result in job.end(may_end=True) if result is not None]
            self.check_histories([seen for _, seen, _, _ in results])
