"""Goal: the experiments run as their README says: a run's figures are whole, it is not done again,
one of other settings is not taken for it, and the bound beside a figure is right.
Method: few steps, no timing; the bound against what can be said in closed form."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
import unittest
from typing import List

from harness import LIMIT_S, REPOSITORY, environment

FOLDER = REPOSITORY / "examples" / "experiments"
sys.path.insert(0, str(FOLDER))
from bound import seconds  # noqa: E402

FEW = ["--steps", "6", "--time-scale", "0.01", "--features", "16"]
FEW += ["--delays", "300", "--seeds", "4"]


class BoundTest(unittest.TestCase):
    def test_waiting_for_all_takes_the_longest_of_each_step(self) -> None:
        rng = random.Random(1)
        delays = [[rng.random() for _ in range(5)] for _ in range(40)]
        wanted = 40 * 2.0 + sum(max(row) for row in delays)
        self.assertAlmostEqual(seconds(delays, 2.0, needed=5), wanted)
        self.assertAlmostEqual(seconds(delays, 2.0, 1, 1), wanted)

    def test_waiting_for_nobody_takes_the_longest_of_all_steps(self) -> None:
        rng = random.Random(2)
        delays = [[rng.random() for _ in range(5)] for _ in range(40)]
        wanted = 40 * 2.0 + max(sum(row[rank] for row in delays) for rank in range(5))
        self.assertAlmostEqual(seconds(delays, 2.0, needed=1), wanted)

    def test_waiting_for_some_is_between_and_known_by_hand(self) -> None:
        delays = [[0, 3, 5], [0, 0, 0], [0, 0, 0]]
        # Ends of the steps for two of three: 1 4 6; 5 5 7; 6 6 8.
        self.assertEqual(seconds(delays, 1, needed=2), 8)
        self.assertEqual(seconds(delays, 1, needed=3), 8)
        self.assertEqual(seconds([[0, 3, 5], [0, 9, 0], [0, 0, 0]], 1, needed=2), 15)
        self.assertEqual(seconds([[0, 3, 5], [0, 9, 0], [0, 0, 0]], 1, needed=3), 17)
        self.assertEqual(seconds([[4, 0]] + [[0, 0]] * 3, 1, 1, 2), 8)
        self.assertEqual(seconds([[4, 0], [0, 0], [0, 9], [0, 0]], 1, 1, 0), 13)
        self.assertEqual(seconds([[4, 0], [0, 0], [0, 9], [0, 0]], 1, 1, 0, 3), 17)


class HyperplaneTest(unittest.TestCase):
    def run_it(self, *options: str) -> subprocess.CompletedProcess:
        return subprocess.run(
            [sys.executable, str(FOLDER / "hyperplane.py"), "--out", self.folder, *options],
            env=environment(),
            timeout=2 * LIMIT_S,
            capture_output=True,
            text=True,
            check=False,
        )

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def table(self, output: str) -> List[List[str]]:
        return [line.split() for line in output.splitlines() if line.split()[0] == "300"]

    def test_few_steps(self) -> None:
        first = self.run_it(*FEW, "--methods", "allreduce", "half")
        self.assertEqual(first.returncode, 0, first.stderr)
        done = self.run_it(*FEW)  # adds the methods that are missing
        self.assertEqual(done.returncode, 0, done.stderr)
        path = os.path.join(self.folder, "hyperplane_300ms_seed4.json")
        with open(path, encoding="utf-8") as file:
            run = json.load(file)
        self.assertEqual(run["settings"]["inject"], "delay:3000us@1,seed=4")
        names = [row[1] for row in self.table(done.stdout)]
        self.assertEqual(names[:4], ["allreduce", "solo", "half", "majority"])
        self.assertEqual(sorted(names), sorted(run["methods"]))
        self.assertEqual([row[1] for row in self.table(first.stdout)], ["allreduce", "half"])
        for name in names:
            ranks = run["results"][name]
            self.assertEqual([rank["steps"] for rank in ranks], [6] * 8, name)
            self.assertEqual(len({rank["error"] for rank in ranks}), 1, "replicas are equal")
            self.assertLess(ranks[0]["error"], 0.9, "it learns")
        for name in ("solo", "half", "majority"):
            self.assertGreaterEqual(run["results"][name][0]["versions"], 6)
        self.assertIn("published", done.stdout)

        before = os.stat(path).st_mtime_ns
        again = self.run_it(*FEW, "--show")
        self.assertEqual(self.table(again.stdout), self.table(done.stdout))
        self.assertEqual(os.stat(path).st_mtime_ns, before)
        other = self.run_it(*FEW, "--steps", "7")
        self.assertEqual((other.returncode, other.stdout.count("\n")), (1, 1))
        self.assertIn("is of other settings", other.stderr)

    def test_a_run_that_would_take_long_is_refused(self) -> None:
        done = self.run_it("--steps", "768", "--time-scale", "1")
        self.assertEqual(done.returncode, 1)
        self.assertIn("more than 90: take fewer --steps", done.stderr)
        done = self.run_it("--show")
        self.assertIn("hyperplane_200ms_seed1.json has no figures of allreduce, ", done.stderr)


if __name__ == "__main__":
    unittest.main()
