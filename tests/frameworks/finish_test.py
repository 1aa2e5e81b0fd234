"""finish() of ranks that do not all come at once: nobody waits in it for longer than max_wait, and
who is missing is named. The others go on, and who comes when they have left ends with what they
have. With strict=True it raises, and called again it ends with equal replicas.

Method: files say who may go on; rank 1 gives up before rank 2 comes, and rank 0 begins after that.
"""

from __future__ import annotations

import pathlib
import time
import unittest
from typing import Callable, List, Tuple

import trainings
from even_net import make, step
from ranks import SEED, on_one_host
from watched import Watched
from whole_numbers import digest

import covey
import covey.torch as hvd

METHODS = (
    "eager:admit=solo,max_wait=300ms",
    "allreduce:max_wait=300ms",
    "local:H=2,max_wait=300ms",
    "wagma:S=2,tau=4,max_wait=300ms",
)


LATE = (
    ("eager:admit=solo,max_wait=300ms", 4),
    ("eager:admit=solo,max_wait=300ms,log=2,max_staleness=1000", 40),  # Out of the log.
    ("allreduce:max_wait=300ms", 4),
    ("local:H=2,max_wait=300ms", 4),
    ("wagma:S=2,tau=4,max_wait=300ms", 4),
    ("wagma:S=2,tau=4,max_wait=300ms", 30),
    ("adpsgd:max_wait=300ms", 4),
)


TWO = (
    "eager:admit=solo,max_wait=300ms",
    "allreduce:max_wait=300ms",
    "local:H=2,max_wait=300ms",
    "wagma:S=2,tau=4,max_wait=300ms",
)


LAST = 12  # The step with which rounds of gradients end.

# Ranks, the method after it, and whether the last rank has been in finish() before; else it is
# overdue there.
ENDS = (
    (3, f"eager@{LAST}:admit=all,max_wait=300ms", True),
    (3, f"adpsgd@{LAST}:max_wait=300ms", True),
    (3, f"allreduce@{LAST}", True),
    (2, f"eager@{LAST}:admit=all,max_wait=300ms", True),
    (2, f"allreduce@{LAST}", True),
    (2, f"wagma@{LAST}:max_wait=300ms", True),
    (2, f"wagma@{LAST}:max_wait=300ms", False),
)


def setUpModule() -> None:
    print(f"seed {SEED}")


def finish(folder: str, method: str) -> Tuple[List[str], str]:
    """What finish() said while others were missing, and the digest of the parameters."""
    net, optimizer = make(method)
    for _ in range(4):
        step(net, optimizer, 1.0 + hvd.rank())
    said: List[str] = []

    def mark(what: str) -> None:
        (pathlib.Path(folder) / what).touch()

    def wait_for(what: str) -> None:
        while not (pathlib.Path(folder) / what).exists():
            time.sleep(0.001)  # A poll, as the others' is.

    def try_to_end() -> bool:
        try:
            optimizer.finish(strict=True)
            return True
        except covey.Timeout as missing:
            said.append(str(missing))
            return False

    if hvd.rank() == 1:
        assert not try_to_end()  # Rank 2 comes only when rank 1 has given up.
        mark("1 has given up")
        wait_for("0 has given up")
    else:
        wait_for("1 has given up")
        if hvd.rank() == 0:
            assert not try_to_end()  # Rank 1 is elsewhere.
            mark("0 has given up")
    while not try_to_end():
        pass
    return said, digest([net.wide, net.small])


def leave(folder: str, method: str, steps: int) -> str:
    """The digest of the parameters, once finish() has ended; rank 2 does 4 steps, and finishes when
    the others have left."""
    rank = hvd.rank()
    net, optimizer = make(method)
    for _ in range(4 if rank == 2 else steps):
        step(net, optimizer, 1.0 + rank)
    left = [pathlib.Path(folder) / f"{other} has left" for other in range(2)]
    while rank == 2 and not all(file.exists() for file in left):
        time.sleep(0.001)  # A poll.
    optimizer.finish()
    model = digest([net.wide, net.small])
    if rank != 2:
        covey.shutdown()
        left[rank].touch()
    return model


def train_on(folder: str, method: str) -> Tuple[str, int]:
    """The digest of the parameters and the version after a finish() of all; rank 2 has come late
    to the one before, when the others had gone on from it."""
    net, optimizer = make(method)
    step(net, optimizer, 1.0)
    met = [pathlib.Path(folder) / f"{other} has gone on" for other in range(2)]
    while hvd.rank() == 2 and not all(file.exists() for file in met):
        time.sleep(0.001)  # A poll.
    optimizer.finish()
    for _ in range(3):
        step(net, optimizer, 1.0)
    if hvd.rank() != 2:
        met[hvd.rank()].touch()
    while True:
        try:
            optimizer.finish(strict=True)
            return digest([net.wide, net.small]), optimizer.version
        except covey.Timeout:
            pass


def come_late(folder: str, late: int) -> List[Tuple[str, int, str, int]]:
    """By method and by how many steps rank ``late`` does after the other has ended finish(): the
    digest of the parameters after its own, and the version. Its step before that one's finish() is
    of a version that has ended."""
    ends = []
    is_late = hvd.rank() == late

    def take_turns(what: str, mine: bool) -> None:
        file = pathlib.Path(folder) / what
        if mine:
            file.touch()
        while not file.exists():
            time.sleep(0.001)  # A poll.

    for method, after in [(method, after) for method in TWO for after in (0, 2)]:
        net, optimizer = make(method)
        for _ in range(4 if is_late else 6):
            step(net, optimizer, 1.0 + hvd.rank())
        take_turns(f"{method} {after} ahead", not is_late)
        if is_late:
            step(net, optimizer, 1.0 + hvd.rank())
        take_turns(f"{method} {after} published", is_late)
        if not is_late:
            optimizer.finish()
        take_turns(f"{method} {after} ended", not is_late)
        if is_late:
            for _ in range(after):
                step(net, optimizer, 1.0 + hvd.rank())
            optimizer.finish()
        ends.append((method, after, digest([net.wide, net.small]), optimizer.version))
        take_turns(f"{method} {after} late", is_late)
    return ends


def part_ways(folder: str) -> str:
    """The digest of the parameters after finish() of dpsgd, to which rank 1 comes late."""
    net, optimizer = make("dpsgd:max_wait=300ms")
    for _ in range(4):
        step(net, optimizer, 1.0 + hvd.rank())
    left = pathlib.Path(folder) / "0 has left"
    while hvd.rank() == 1 and not left.exists():
        time.sleep(0.001)  # A poll.
    optimizer.finish()
    model = digest([net.wide, net.small])
    if hvd.rank() == 0:
        covey.shutdown()
        left.touch()
    return model


def end_rounds(folder: str, method: str, was_there: bool) -> Tuple[str, int, str]:
    """The digest of the parameters, the version and the trainer, after a finish() of all. The last
    rank is far behind when it comes to the end of the rounds, where the others have been."""
    rank, late = hvd.rank(), hvd.size() - 1
    net, optimizer = make(method)

    def wait_for(what: str) -> None:
        while not (pathlib.Path(folder) / what).exists():
            time.sleep(0.001)  # A poll.

    def tries(call: Callable[[], None]) -> bool:
        try:
            call()
            return True
        except covey.Timeout:
            return False

    def train() -> None:
        step(net, optimizer, 1.0 + rank)

    train()
    if rank == late:
        assert not was_there or not tries(lambda: optimizer.finish(strict=True))
        (pathlib.Path(folder) / "late").touch()
        for other in range(late):
            wait_for(f"{other} has ended")
        has_crossed = False
    else:
        wait_for("late")
        while optimizer.version < LAST - 1:
            train()
        # Of two that are there the first is at the last version in finish().
        if rank == late - 1:
            train()
        waits = rank == late - 1 and "then=allreduce" in method  # Whose finish() waits for all.
        has_crossed = not waits and tries(optimizer.finish)
        (pathlib.Path(folder) / f"{rank} has ended").touch()
    while not has_crossed:
        has_crossed = tries(optimizer.finish)
    (pathlib.Path(folder) / f"{rank} goes on").touch()
    for other in range(hvd.size()):
        wait_for(f"{other} goes on")
    for _ in range(3):
        train()
    while not tries(lambda: optimizer.finish(strict=True)):
        pass
    by = trainings.by(optimizer)
    return digest([net.wide, net.small]), optimizer.version, by


class LateTest(unittest.TestCase):
    def test_of_two_either_ends_with_what_the_other_has(self) -> None:
        for late in range(2):
            with Watched(2, __file__, come_late, late) as job:
                ends = job.pool.collect()
                for one, other in zip(*ends):
                    self.assertEqual(one, other, f"rank {late} is late")
                said = job.pool.stderr(late)
                self.assertIn("what it has done since is dropped", said)
                self.assertIn("until they train on its steps are dropped", said)

    @on_one_host("between hosts a model handed in for a mean is not taken back")
    def test_who_comes_when_the_rounds_have_ended_goes_on_with_the_others(self) -> None:
        """From the state that they have left there, of the version with which the rounds end."""
        gradients = "eager:admit=all,max_wait=300ms,log=2,max_staleness=1000"
        for size, after, was_there in ENDS:
            method = f"{gradients},then={after}"
            with self.subTest(after, size=size, was_there=was_there), Watched(
                size, __file__, end_rounds, method, was_there
            ) as job:
                ends = job.pool.collect()
                self.assertEqual(len(set(ends)), 1, ends)
                self.assertIn(f"a snapshot of version {LAST}", job.pool.stderr(size - 1))

    def test_without_a_mean_each_keeps_its_own(self) -> None:
        with Watched(2, __file__, part_ways) as job:
            job.pool.collect()
            for rank in range(2):
                self.assertIn("this rank keeps its own model", job.pool.stderr(rank))

    @on_one_host("between hosts a snapshot ends with the process that has it")
    def test_who_comes_when_the_others_have_left_ends_with_what_they_have(self) -> None:
        for method, steps in LATE:
            with self.subTest(method, steps=steps), Watched(
                3, __file__, leave, method, steps
            ) as job:
                models = job.pool.collect()
                self.assertRegex(job.pool.stderr(0), r"warning: finish\(\) .* for rank (1, )?2: ")
                self.assertRegex(job.pool.stderr(1), r"warning: finish\(\) .* for rank (0, )?2: ")
                if not method.startswith("adpsgd"):  # Whose mean is of what it sees then.
                    self.assertEqual(len(set(models)), 1, models)

    def test_training_goes_on_with_all_of_them(self) -> None:
        for method in METHODS:
            with self.subTest(method), Watched(3, __file__, train_on, method) as job:
                ends = job.pool.collect()
                self.assertEqual(len(set(ends)), 1, ends)


class FinishTest(unittest.TestCase):
    def test_nobody_waits_for_one_that_has_given_up(self) -> None:
        for method in METHODS:
            with self.subTest(method), Watched(3, __file__, finish, method) as job:
                results = job.pool.collect()
                self.assertRegex(results[1][0][0], r"rank (0, )?2")
                self.assertIn("rank 1", results[0][0][0])
                self.assertEqual(len({replica for _, replica in results}), 1, results)


if __name__ == "__main__":
    unittest.main()
