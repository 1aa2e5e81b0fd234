"""Methods that do not wait for all ranks: a rank that is stopped or killed holds up nobody, and
what it has published counts once.

Versions are counted, not seconds; when a rank is stopped is drawn, from a seed that is printed.
"""

from __future__ import annotations

import random
import unittest
from typing import Dict, List, Tuple

from ranks import SEED, Pool, ranks_may_die, with_majority
from watched import Report, Watched, finish
from whole_numbers import Trainer, sum_of

import covey
import covey.torch as hvd


def setUpModule() -> None:
    print(f"seed {SEED}")


def train_until(folder: str, method: str) -> Tuple[int, Dict[int, str], List[float], str]:
    """Writes its version down after every step; ends when there is a file `end`."""
    trainer = Trainer(method)
    report = Report(folder, hvd.rank())
    while report.goes_on:
        trainer.step()
        report.write(trainer.optimizer.version)
    error = finish(trainer.optimizer)
    return trainer.steps, trainer.seen, trainer.parameter.tolist(), error


def end_without_finish(steps: int) -> Tuple[int, List[float]]:
    """An unchanged script; ranks do different numbers of steps."""
    trainer = Trainer("eager:admit=solo,log=200")
    for _ in range(steps + 3 * hvd.rank()):
        trainer.step()
    stats = covey.stats()
    assert stats["round_versions"] == trainer.optimizer.version, stats
    assert stats["round_fresh"] + stats["round_late"] <= stats["round_versions"], stats
    assert stats["round_waited_ns"] > 0, stats
    assert stats["blocked_ns"] >= stats["round_waited_ns"], stats
    hvd.shutdown()
    return trainer.steps, trainer.parameter.tolist()


def end_several() -> List[List[float]]:
    """Each rank makes them in the same order, and garbage of its own between them."""
    trainers, garbage = [], []
    for _ in range(8):
        garbage.append([object() for _ in range(1000 * hvd.rank() + 7)])
        trainers.append(Trainer("eager:admit=solo,log=20,max_wait=3600s"))
    for trainer in trainers:
        trainer.step()
    hvd.shutdown()
    return [trainer.parameter.tolist() for trainer in trainers]


class RoundFaultsTest(unittest.TestCase):
    def check_histories(self, histories: List[Dict[int, str]]) -> None:
        """Equal parameters at equal version, and all have come to the same last one."""
        for history in histories[1:]:
            self.assertEqual(history, histories[0], f"seed {SEED}")

    def test_a_stopped_rank_holds_up_nobody_and_catches_up(self) -> None:
        for size, stopped in with_majority((2, 0), (3, 2), (4, 1)):
            rng = random.Random(SEED + size)
            with self.subTest(size=size), Watched(
                size, __file__, train_until, "eager:admit=solo,log=16384"
            ) as job:
                job.wait_for_all(3)
                for _ in range(5):
                    with job.stopped(stopped, rng) as behind:
                        job.others_go_on(stopped)
                        self.assertLessEqual(job.version(stopped), behind)
                    job.wait_for_version(stopped, behind + 40)
                results = job.end()
                self.check_histories([seen for _, seen, _, _ in results])
                self.assertEqual(results[0][2], sum_of([steps for steps, _, _, _ in results]))

    def test_a_stopped_rank_is_waited_for_once(self) -> None:
        """Also where all are wanted; when it goes on it catches up and nothing is lost."""
        rng = random.Random(SEED)
        for stopped in (0, 2):
            method = "eager:admit=all,max_wait=200ms,log=16384"
            with self.subTest(stopped=stopped), Watched(3, __file__, train_until, method) as job:
                job.wait_for_all(3)
                for _ in range(2):
                    with job.stopped(stopped, rng) as behind:
                        job.others_go_on(stopped, 200)
                        self.assertLessEqual(job.version(stopped), behind)
                    job.wait_for_version(stopped, behind + 190)
                results = job.end()
                self.check_histories([seen for _, seen, _, _ in results])
                self.assertEqual(results[0][2], sum_of([steps for steps, _, _, _ in results]))
                other = (stopped + 1) % 3
                self.assertIn(f"rank {stopped} was missing", job.pool.stderr(other))

    @ranks_may_die
    def test_a_killed_rank_holds_up_nobody(self) -> None:
        for size, killed in ((2, 1), (3, 0)):
            rng = random.Random(SEED - size)
            with self.subTest(size=size), Watched(
                size, __file__, train_until, "eager:admit=solo,log=16384"
            ) as job:
                job.wait_for_all(3)
                job.kill(killed, rng)
                job.others_go_on(killed)
                results = [result for result in job.end(may_end=True) if result is not None]
                self.assertEqual(len(results), size - 1)
                self.check_histories([seen for _, seen, _, _ in results])
                for _, _, _, error in results:
                    self.assertEqual(error, "")  # finish() is of those that live.

    def test_a_script_that_does_not_finish_is_flushed(self) -> None:
        with Pool(3, __file__) as pool:
            results = pool.call(end_without_finish, 5)
            for _, parameter in results:
                self.assertEqual(parameter, sum_of([steps for steps, _ in results]))
            self.assertIn("ends without optimizer.finish(): all gradients count", pool.stderr(0))

    def test_several_are_flushed_in_one_order(self) -> None:
        """Else ranks wait for each other for max_wait, which here is for ever."""
        with Pool(3, __file__) as pool:
            for parameters in pool.call(end_several):
                self.assertEqual(parameters, [sum_of([1, 1, 1])] * 8)

    @ranks_may_die
    def test_a_death_ends_the_wait_for_all(self) -> None:
        with Watched(3, __file__, train_until, "eager:admit=all") as job:
            job.wait_for_all(3)
            job.kill(1, random.Random(SEED))
            job.others_go_on(1)
            results = [result for result in job.end(may_end=True) if result is not None]
            self.check_histories([seen for _, seen, _, _ in results])
