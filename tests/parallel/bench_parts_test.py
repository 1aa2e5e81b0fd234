"""Goal: the arithmetic and the words of `covey bench`: ratios with their intervals, the table, the
JSON, what a picture shows of several jobs, and what is said of a peer that is absent.
Method: figures made up here, whose right results are known."""

from __future__ import annotations

import json
import os
import random
import statistics
import tempfile
import unittest
from typing import Dict, List
from unittest import mock

import harness  # noqa: F401  # Makes the package importable.

from covey.bench import job, mpis, oneccl, picture, shapes, show
from covey.bench.contest import Row
from covey.bench.ratio import CONFIDENCE, median_difference, ratio_of_medians
from covey.bench.waiting import percent_of_free_pace
from covey.cli.bench_command import sizes

ABOUT = {"bench": "latency", "ranks": 2, "cores": 4, "load": 0.5}


def turns(*medians: float) -> List[List[float]]:
    """A round for each of the medians; every resample has its median too, but for a freak."""
    return [[median * 0.5, *[median] * 9, median * 2] for median in medians]


def row(label: str = "8 B", **seconds: float) -> Row:
    made = Row(label, 8, barrier_s=[2e-6, 1e-6], flag_s=[3e-7, 1e-7, 2e-7])
    for name, median in seconds.items():
        made.seconds[name] = turns(median, median)
    made.bases = {name: "covey" for name in seconds if name != "covey"}
    return made


class RatioTest(unittest.TestCase):
    def test_is_that_of_the_medians(self) -> None:
        ratio = ratio_of_medians([[1.0, 9.0, 3.0], [5.0, 5.0, 6.0]], [[2.0, 2.0], [4.0, 6.0]])
        self.assertAlmostEqual(ratio.value, 5.0 / 3.0)

    def test_no_scatter_no_interval(self) -> None:
        ratio = ratio_of_medians([[6.0] * 4] * 3, [[2.0] * 4] * 3)
        self.assertEqual(tuple(ratio), (3.0, 3.0, 3.0))

    def test_the_same_samples_have_the_same_interval(self) -> None:
        draw = random.Random(1)
        mine = [[draw.random() for _ in range(5)] for _ in range(5)]
        base = [[1 + draw.random() for _ in range(5)] for _ in range(5)]
        first = ratio_of_medians(mine, base)
        self.assertEqual(first, ratio_of_medians(mine, base))
        self.assertLess(first.low, first.value)
        self.assertLess(first.value, first.high)

    def test_a_round_is_drawn_for_both(self) -> None:
        # The machine gets ten times slower: within each round the ratio is 2 nevertheless.
        base = [[1.0] * 5, [10.0] * 5, [1.0] * 5, [10.0] * 5, [1.0] * 5]
        mine = [[2 * sample for sample in turn] for turn in base]
        self.assertEqual(tuple(ratio_of_medians(mine, base)), (2.0, 2.0, 2.0))

    def test_covers_the_truth_about_as_often_as_it_says(self) -> None:
        draw, inside, trials = random.Random(7), 0, 100
        for _ in range(trials):
            mine = [[draw.gauss(30, 3) for _ in range(5)] for _ in range(5)]
            base = [[draw.gauss(10, 1) for _ in range(5)] for _ in range(5)]
            ratio = ratio_of_medians(mine, base)
            inside += ratio.low <= 3.0 <= ratio.high
        self.assertGreater(inside / trials, CONFIDENCE - 0.15)

    def test_nothing_has_no_multiple(self) -> None:
        self.assertIsNone(ratio_of_medians([[1.0]], [[0.0]]))

    def test_a_difference_is_that_of_pairs(self) -> None:
        base = [[float(number)] for number in range(20)]  # The machine slows down meanwhile.
        mine = [[number + 0.5] for number, in base]
        self.assertEqual(tuple(median_difference(mine, base)), (0.5, 0.5, 0.5))
        mine[3] = [100.0]
        value, low, high = median_difference(mine, base)
        self.assertEqual((value, low, high), (0.5, 0.5, 0.5), "an outlier moves no median")
        self.assertIsNone(row(covey=1.0).ratio("covey"))


class ShowTest(unittest.TestCase):
    def test_table(self) -> None:
        rows = [row("8 B", covey=1e-6, gloo=3e-4), row("64 B", covey=2e-3, gloo=6e-2)]
        lines = show.table(ABOUT, {"covey": "1"}, rows)
        self.assertEqual(
            lines[2:],
            [
                "8 B; a flag 100 / 200 ns, a barrier 1.0 us",
                "  covey    0.5 us  /    1.0 us",
                "  gloo   150.0 us  /  300.0 us  300.00 [300.00, 300.00] x covey",
                "64 B; a flag 100 / 200 ns, a barrier 1.0 us",
                "  covey   1.00 ms  /   2.00 ms",
                "  gloo   30.00 ms  /  60.00 ms  30.00 [30.00, 30.00] x covey",
            ],
        )

    def test_a_busy_machine_is_told(self) -> None:
        lines = show.table({**ABOUT, "load": 2.5}, {}, [row(covey=1.0)])
        self.assertTrue(any("distrust" in line for line in lines))

    def test_json_has_every_sample(self) -> None:
        found = json.loads(show.as_json(ABOUT, [row(covey=1e-6, gloo=3e-6)]))["rows"][0]
        self.assertEqual(found["flag_us"], [0.3, 0.1, 0.2])
        gloo = found["contestants"]["gloo"]
        self.assertEqual(gloo["samples_us"], [[1.5, *[3.0] * 9, 6.0]] * 2)
        self.assertEqual((gloo["ratio"]["to"], gloo["ratio"]["value"]), ("covey", 3.0))
        self.assertNotIn("ratio", found["contestants"]["covey"])

    def test_a_picture_shows_the_peers_of_all_jobs(self) -> None:
        jobs = [row(covey=1.0, openmpi=2.0), row(covey=9.0, mpich=3.0)]
        (together,) = picture.merged(jobs)
        medians: Dict[str, float] = {name: together.median(name) for name in together.seconds}
        self.assertEqual(medians, {"covey": 1.0, "openmpi": 2.0, "mpich": 3.0})


class PartsTest(unittest.TestCase):
    def test_sizes_are_whole_elements(self) -> None:
        self.assertEqual(sizes("1,10,4KiB,2 MB"), (4, 8, 4096, 2_000_000))

    def test_shapes(self) -> None:
        small = shapes.many_small()
        self.assertEqual((len(small), 4 * statistics.mean(n for (n,) in small)), (1000, 256))

    def test_oneccl_is_absent_without_its_library_or_intel_mpi(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            with mock.patch.object(oneccl, "plugin_folders", return_value=[folder]):
                self.assertIn("covey build oneccl", mpis._oneccl())
                open(os.path.join(folder, oneccl.FILE_NAME), "x", encoding="ascii").close()
                with mock.patch.object(mpis, "_of_wheel", return_value="it is not there"):
                    self.assertEqual(mpis._oneccl(), "it goes over Intel MPI: it is not there")
                below = mpis.Mpi("intelmpi", ("mpiexec", "-n"), {"A": "1"})
                with mock.patch.object(mpis, "_of_wheel", return_value=below):
                    found = mpis._oneccl()
        self.assertEqual(found.name, "oneccl")
        self.assertEqual(found.env, {"A": "1", **oneccl.ENVIRONMENT})

    def test_every_kind_has_peers(self) -> None:
        self.assertEqual(set(job.DEFAULT_PEERS), set(job.KINDS))
        for names in job.DEFAULT_PEERS.values():
            self.assertLessEqual(set(names), set(job.PEERS))


class PaceTest(unittest.TestCase):
    def pace(self, *lengths: float) -> float:
        """The pace of a rank beside a slow one, in percent of ten steps a second."""
        free = [{"lengths": [0.1] * 20}]
        return percent_of_free_pace([{"lengths": list(lengths)}], free, wait_s=1.0)

    def test_is_that_after_the_wait(self) -> None:
        self.assertAlmostEqual(self.pace(*[0.1] * 5, 1.3, *[0.2] * 20), 50.0)

    def test_is_that_before_a_wait_that_comes_late(self) -> None:
        self.assertAlmostEqual(self.pace(*[0.1] * 30, 1.2), 100.0)
        self.assertAlmostEqual(self.pace(*[0.1] * 30, 1.2, 0.3), 100.0)

    def test_is_that_of_all_without_a_wait(self) -> None:
        self.assertAlmostEqual(self.pace(*[0.25] * 10), 40.0)


if __name__ == "__main__":
    unittest.main()
