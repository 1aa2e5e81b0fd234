"""Imbalance on demand: the schedule is a pure function of seed, step and rank with the distribution
it names; what is slept is that schedule, at the end of step(); wrong texts are refused by what
there is.

Method: golden values; statistics of many draws; ranks whose sleep is replaced.
"""

from __future__ import annotations

import math
import statistics
import time
import unittest
from typing import Any, List

import torch
from ranks import SEED, Pool

import covey
import covey.torch as hvd
from covey.inject import KINDS, Injector, drawn, parse

STEPS, SIZE = 400, 8


def setUpModule() -> None:
    print(f"seed {SEED}")


def seconds(text: str, steps: int = STEPS) -> List[List[float]]:
    return drawn(parse(text), steps, SIZE)


# ---- On the ranks ------------------------------------------------------------------------------


def slept(method: str) -> List[float]:
    """Seconds slept after each step, without sleeping."""
    sleeps: List[float] = []
    time.sleep = sleeps.append  # type: ignore[assignment]
    parameter = torch.nn.Parameter(torch.zeros(3))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([parameter], lr=1.0), method=method)
    after_step = []
    for step in range(6):
        optimizer.zero_grad()
        (parameter * step).sum().backward()
        optimizer.step()
        after_step.append(sum(sleeps))
        sleeps.clear()
    optimizer.finish()
    return after_step


def refusal() -> str:
    parameter = torch.nn.Parameter(torch.zeros(3))
    try:
        hvd.DistributedOptimizer(torch.optim.SGD([parameter], lr=1.0))
    except covey.InvalidArgument as error:
        return str(error)
    return ""


# ---- Here --------------------------------------------------------------------------------------


class ScheduleTest(unittest.TestCase):
    def test_golden(self) -> None:
        for text, wanted in (
            ("delay:320ms@2,seed=7", [[0.32, 0, 0, 0, 0.32, 0, 0, 0],
                                      [0.32, 0, 0, 0, 0, 0, 0.32, 0]]),
            ("delay:20ms@rank3", [[0, 0, 0, 0.02, 0, 0, 0, 0]] * 2),
            ("delay:20ms", [[0.02] * 8] * 2),
            ("skew:0ms-7ms", [[0, 0.001, 0.002, 0.003, 0.004, 0.005, 0.006, 0.007]] * 2),
            ("rotate:50ms-400ms", [[0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4],
                                   [0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.05]]),
            ("random:0ms-200ms", [[0.041053, 0.014088, 0.030498, 0.109187, 0.186045, 0.174619,
                                   0.01859, 0.012142]]),
            ("lognormal:550ms:0.55:3s", [[0.626737, 1.007299, 0.207105, 0.769814, 1.526701,
                                          0.397484, 0.551422, 0.361032]]),
            ("pareto:350ms:1.6", [[0.054044, 0.016349, 0.03813, 0.223283, 1.498189, 0.92174,
                                   0.022004, 0.013972]]),
            ("pause:5s:1@rank2", [[0.0] * 8, [0, 0, 5.0, 0, 0, 0, 0, 0]]),
            ("delay:10ms@0.25+delay:1ms@all", [[0.001, 0.011, 0.001, 0.001, 0.001, 0.001, 0.001,
                                                0.011]]),
        ):
            found = [[round(s, 6) for s in row] for row in seconds(text, len(wanted))]
            self.assertEqual(found, wanted, text)

    def test_any_step_is_known_without_those_before(self) -> None:
        for text in ("delay:1ms@2", "lognormal:5ms:1", "random:0ms-9ms"):
            rows = seconds(text)
            again = [parse(text).delay(STEPS - 1, rank, SIZE).seconds for rank in range(SIZE)]
            self.assertEqual(rows[-1], again)
            self.assertNotEqual(rows, seconds(f"{text},seed=2"))
            self.assertEqual(rows, seconds(f"{text},seed=1"))

    def test_random_ranks_are_so_many_and_each_as_often(self) -> None:
        for who, count in (("1", 1), ("2", 2), ("0.25", 2), ("0.01", 1), ("8", 8), ("99", 8)):
            rows = [[delay > 0 for delay in row] for row in seconds(f"delay:1ms@{who}")]
            self.assertEqual({sum(row) for row in rows}, {count}, who)
            often = [sum(row[rank] for row in rows) for rank in range(SIZE)]
            expected = STEPS * count / SIZE
            for times in often:  # five standard deviations of a fixed seed: never by chance
                self.assertLess(abs(times - expected), 5 * math.sqrt(expected) + 1, often)

    def test_distributions(self) -> None:
        flat = [s for row in seconds("lognormal:550ms:0.55") for s in row]
        self.assertAlmostEqual(statistics.median(flat), 0.55, delta=0.03)
        self.assertAlmostEqual(statistics.stdev(map(math.log, flat)), 0.55, delta=0.02)
        flat = [s for row in seconds("pareto:350ms:1.6") for s in row]
        self.assertAlmostEqual(statistics.median(flat), 0.35 * (2 ** (1 / 1.6) - 1), delta=0.02)
        self.assertEqual(max(s for row in seconds("pareto:350ms:0.3:2s") for s in row), 2.0)
        flat = [s for row in seconds("random:50ms-150ms") for s in row]
        self.assertAlmostEqual(statistics.mean(flat), 0.1, delta=0.002)
        self.assertTrue(min(flat) >= 0.05 and max(flat) < 0.15)

    def test_what_is_slow_for_good_is_the_same_rank_in_each_step(self) -> None:
        schedule = parse("slow:10x@1")
        rows = {tuple(schedule.delay(t, r, SIZE).times for r in range(SIZE)) for t in range(50)}
        self.assertEqual(len(rows), 1)
        self.assertEqual(sorted(rows.pop()), [0.0] * 7 + [9.0])

    def test_wrong_texts_are_refused_with_what_there_is(self) -> None:
        for text, words in (
            ("dealy:3ms", f"(did you mean delay?); there are: {', '.join(KINDS)}"),
            ("delay", "is not delay:TIME@WHO, such as delay:320ms@2"),
            ("delay:3", "'3' is no time such as 320ms"),
            ("delay:2h", "'2h' is no time"),
            ("delay:4000s", "more than an hour"),
            ("delay:3ms@x", "write @2, @0.25, @rank3 or @all"),
            ("delay:3ms@0", "write @2"),
            ("delay:3ms@1.5", "write @2"),
            ("delay:3ms,seed=x", "is not seed=N"),
            ("delay:3ms,speed=2", "is not seed=N"),
            ("random:9ms-3ms", "the smaller time comes first"),
            ("slow:0.5x", "no factor above 1"),
            ("slow:10", "no factor above 1"),
            ("skew:3ms@2", "skew is of every rank"),
            ("pause:3ms", "is not pause:TIME:STEP@WHO"),
            ("pause:3ms:x", "is not pause:TIME:STEP@WHO"),
            ("lognormal:5ms:0", "no number above 0"),
            ("delay:3ms+", "there is nothing ''"),
            ("", "there is nothing ''"),
        ):
            with self.assertRaises(covey.InvalidArgument, msg=text) as caught:
                parse(text)
            self.assertIn(words, str(caught.exception))


class InjectorTest(unittest.TestCase):
    def test_a_slow_rank_takes_so_much_longer_for_its_own_work(self) -> None:
        now = [0.0]

        def sleep(length: float) -> None:
            now[0] += length

        injector = Injector(parse("slow:4x@rank0+delay:1s@rank0"), 0, 1, lambda: now[0], sleep)
        for step, work in enumerate((5.0, 2.0, 3.0)):
            now[0] += work
            own = injector.work_s()
            now[0] += 100  # in step(), waiting for others: not its work
            before = now[0]
            injector.end_step(step, own)
            # Nobody knows when the first step began.
            self.assertEqual(now[0] - before, 1 + (0 if step == 0 else 3 * work))


class JobTest(unittest.TestCase):
    def test_each_rank_sleeps_what_was_drawn_after_each_step(self) -> None:
        text = "delay:320ms@2+random:1ms-5ms,seed=3"
        wanted = drawn(parse(text), 6, 3)
        with Pool(3, __file__, env={"COVEY_INJECT": text}) as ranks:
            for method in ("allreduce", "eager:admit=all", "local:H=2"):
                found: Any = list(zip(*ranks.call(slept, method)))
                self.assertEqual([list(row) for row in found], wanted, method)

    def test_a_wrong_text_is_refused(self) -> None:
        with Pool(1, __file__, env={"COVEY_INJECT": "dealy:3ms"}) as ranks:
            self.assertIn("did you mean delay?", ranks.call(refusal)[0])


if __name__ == "__main__":
    unittest.main()
