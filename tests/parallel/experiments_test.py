"""Goal: the experiments run as their README says: a run's figures are whole, it is not done again,
one of other settings is not taken for it, and the bound beside a figure is right.
Method: few steps, no timing; the bound against what can be said in closed form."""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import unittest
import unittest.mock
from typing import List, Sequence

from harness import LIMIT_S, REPOSITORY, also, environment, preload

import covey
from covey.bench.bound import seconds, skipping_seconds

FOLDER = REPOSITORY / "examples" / "experiments"
sys.path.insert(0, str(FOLDER))
import latency  # noqa: E402
import paired  # noqa: E402
import paired_job  # noqa: E402
import runs  # noqa: E402
import sweep  # noqa: E402
from runs import bootstrap, save  # noqa: E402
from tasks import TASKS  # noqa: E402
from wire import sent  # noqa: E402

preload("torch")

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


    def test_who_skips_ahead_leaves_out_what_it_has_missed(self) -> None:
        # Ranks 0 and 1 make a version each second; rank 2 sleeps over those until the fourth.
        delays = [[0, 0, 3.5], [0, 0, 9], [0, 0, 9], [0, 0, 9], [0, 0, 0], [0, 5, 0]]
        self.assertEqual(skipping_seconds(delays, 1, needed=2, versions=5), 5)
        self.assertEqual(skipping_seconds(delays, 1, needed=2, versions=6), 6)
        # Rank 2 begins at 2.2, when version 2 has been made; rank 1 sleeps over version 3.
        delays = [[0, 0, 1.2], [0, 5, 0], [0, 0, 0]]
        self.assertAlmostEqual(skipping_seconds(delays, 1, needed=2, versions=3), 3.2)
        # Rank 1 wakes at 2.9, and version 3, the last that rank 0 makes, ends at 3.
        delays = [[0, 1.9], [0, 0], [9, 0], [0, 0], [0, 0]]
        self.assertAlmostEqual(skipping_seconds(delays, 1, needed=1, versions=5), 5.9)
        self.assertAlmostEqual(skipping_seconds(delays, 1, 1, 5, patience=0.09), 5.9)
        self.assertAlmostEqual(skipping_seconds(delays, 1, 1, 5, patience=0.2), 5)
        rng = random.Random(3)
        delays = [[rng.random() for _ in range(4)] for _ in range(30)]
        wanted = 30 + sum(max(row) for row in delays[:-1])
        self.assertAlmostEqual(skipping_seconds(delays, 1, needed=4, versions=30), wanted)


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
        # Adds the methods that are missing: all, or one.
        more = () if also(True) else ("--methods", "allreduce", "solo", "half")
        done = self.run_it(*FEW, *more)
        self.assertEqual(done.returncode, 0, done.stderr)
        path = os.path.join(self.folder, "hyperplane_300ms_seed4.json")
        with open(path, encoding="utf-8") as file:
            run = json.load(file)
        self.assertEqual(run["settings"]["inject"], "delay:3000us@1,seed=4")
        names = [row[1] for row in self.table(done.stdout)]
        self.assertEqual(names[:3], ["allreduce", "solo", "half"])
        self.assertEqual(sorted(names), sorted(run["methods"]))
        self.assertEqual([row[1] for row in self.table(first.stdout)], ["allreduce", "half"])
        for name in names:
            ranks = run["results"][name]
            self.assertEqual([rank["steps"] for rank in ranks], [6] * 8, name)
            self.assertEqual(len({rank["error"] for rank in ranks}), 1, "replicas are equal")
            self.assertLess(ranks[0]["error"], 0.9, "it learns")
        for name in ("solo", "half", *also("five")):
            self.assertGreaterEqual(run["results"][name][0]["versions"], 6)
        self.assertIn("published", done.stdout)

        before = os.stat(path).st_mtime_ns
        again = self.run_it(*FEW, *more, "--show")
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


class LatencyTest(unittest.TestCase):
    def test_bounds_are_what_the_skew_makes(self) -> None:
        least = latency.bounds(2.0)
        self.assertEqual(least[latency.ALL], 7.0)  # 2 x mean of 7, 6, ... 0
        self.assertEqual(least[latency.SOLO], 0.0)
        self.assertEqual(least[latency.HALF], 1.5)
        self.assertAlmostEqual(least[latency.MAJORITY], 2 * 84 / 64)

    def test_few_sums(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            few = ["--out", folder, "--times", "4", "--sizes", "64", "4096", "--skew", "0.1"]
            command = [sys.executable, str(FOLDER / "latency.py"), *few]
            out = subprocess.check_output(
                command, env=environment(), timeout=2 * LIMIT_S, text=True
            )
            with open(os.path.join(folder, "latency.json"), encoding="utf-8") as file:
                figures = json.load(file)["results"]["figures"]
            names = {one["name"] for one in figures}
            self.assertLessEqual({"allreduce", "solo", "half", "majority"}, names)
            for one in figures:
                self.assertEqual([len(rank) for rank in one["seconds"]], [4] * 8)
            self.assertRegex(out, r"(?m)^ +4 KiB ")
            before = os.stat(os.path.join(folder, "latency.json")).st_mtime_ns
            again = subprocess.check_output([*command, "--show"], env=environment(), text=True)
            self.assertIn("4 KiB", again)
            self.assertEqual(os.stat(os.path.join(folder, "latency.json")).st_mtime_ns, before)


class CommittedTest(unittest.TestCase):
    def test_each_result_says_by_what_it_was_measured(self) -> None:
        files = sorted((FOLDER / "results").glob("*.json"))
        self.assertGreater(len(files), 20)
        for path in files:
            with self.subTest(path.name):
                measured = json.loads(path.read_text(encoding="utf-8"))["measured"]
                self.assertEqual(sorted(measured), ["commit", "covey", "date", "torch"])
                self.assertRegex(measured["commit"], r"^[0-9a-f]{7,40}$")

    def test_the_hyperplane_of_the_readme_is_drawn_again(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            shutil.copytree(FOLDER / "results", folder, dirs_exist_ok=True)
            command = [sys.executable, str(FOLDER / "hyperplane.py"), "--show", "--out", folder]
            out = subprocess.check_output(command, env=environment(), timeout=LIMIT_S, text=True)
        for delay, speedup in ((200, "1.47"), (300, "1.67"), (400, "1.85")):
            self.assertRegex(out, rf"(?m)^ +{delay}  solo +[0-9.]+ +{speedup} ")
        self.assertIn("measured by commit ", out)


    def test_what_is_said_by_the_clock_is_what_the_figures_give(self) -> None:
        with unittest.mock.patch.object(paired, "bound", return_value=1.0):  # not needed, and slow
            rows = paired.rows(paired.whole("fashion"), str(FOLDER / "results"))
        row = paired.clock_row(rows)
        text = (FOLDER / "paired.md").read_text(encoding="utf-8")
        self.assertIn(f"\n{row}\n", text)
        cells = row.partition(" % |")[2]
        short = (FOLDER / "README.md").read_text(encoding="utf-8")
        self.assertIn(f"\n| by the clock, when allreduce ended |{cells}\n", short)


class PairedTest(unittest.TestCase):
    def test_the_score_at_a_moment(self) -> None:
        curve = [(1.0, 10.0), (2.0, 20.0), (4.0, 40.0)]
        for at, score in ((0.5, 10), (1, 10), (1.5, 15), (3, 30), (4, 40), (9, 40)):
            self.assertAlmostEqual(paired.score_at(curve, at), score)

    def test_figures_of_another_commit_are_not_added_to(self) -> None:
        now = {"commit": "aaaaaaa", "date": "2026-01-02", "covey": "1", "torch": "2"}
        run: dict = {"settings": {}, "results": {}}
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "run.json")

            def save_by(stamp: dict) -> None:
                with unittest.mock.patch.object(runs, "stamp", return_value=stamp):
                    save(run, path)

            save_by(now)
            save_by({**now, "date": "2026-01-03"})
            with self.assertRaisesRegex(SystemExit, "measured by commit aaaaaaa"):
                save_by({**now, "commit": "bbbbbbb"})
            with open(path, encoding="utf-8") as file:
                self.assertIn("aaaaaaa", file.read())

    def test_every_resample_of_few_is_taken(self) -> None:
        mean, low, high = bootstrap([0.0, 1.0])
        self.assertEqual((mean, low, high), (0.5, 0.0, 1.0))
        mean, low, high = bootstrap([0.3] * 5)
        self.assertAlmostEqual(low, 0.3)
        self.assertAlmostEqual(high, 0.3)
        rng = random.Random(4)
        values = [rng.gauss(0, 1) for _ in range(5)]
        mean, low, high = bootstrap(values)
        self.assertTrue(min(values) < low < mean < high < max(values), values)

    def test_verdicts(self) -> None:
        said = {(0.1, 0.2): "better", (-0.4, 0.2): "not inferior", (-0.6, 0.2): "undecided",
                (-0.4, -0.1): "worse",
                (-0.9, -0.6): "worse by more than the margin",
                (-0.9, -0.1): "worse, maybe by more than the margin"}
        for (low, high), words in said.items():
            self.assertEqual(paired.verdict(low, high, 0.5), words)

    def test_a_training_that_has_failed_is_worst(self) -> None:
        plane, images = TASKS["hyperplane"], TASKS["fashion"]
        self.assertGreater(paired.goodness(plane, 3.0), paired.goodness(plane, 4.0))
        self.assertGreater(paired.goodness(images, 4.0), paired.goodness(images, 3.0))
        self.assertGreater(paired.goodness(plane, 1e30), paired.goodness(plane, None))

    def test_tasks_are_looked_at_in_the_middle_of_local_steps(self) -> None:
        for task in TASKS.values():
            self.assertEqual(task.steps % paired.EVALUATIONS, 0)
            self.assertEqual(task.steps // paired.EVALUATIONS % 2, 1)

    def test_steps_in_equal_wall_time_fit_and_no_more_would(self) -> None:
        methods: Sequence[str] = ("eager", "wagma", "local:local_steps=8", "adpsgd")
        for task in TASKS:
            size = paired.whole(task)
            limit = paired.bound(size, "allreduce", size.steps, 1)
            for method in methods:
                steps = paired.wall_steps(size, method, 1)
                more = steps + paired.WALL_STEPS
                self.assertLessEqual(paired.bound(size, method, steps, 1), limit)
                self.assertGreater(paired.bound(size, method, more, 1), limit)
                self.assertEqual(steps // paired.EVALUATIONS % 2, 1)
            self.assertEqual(paired.wall_steps(size, paired.DDP, 1), size.steps)
            methods = also(*methods) or ("eager",)  # The other tasks have other delays.

    def test_what_is_sent(self) -> None:
        self.assertAlmostEqual(sent("wagma", 32, 96), 2 * 96 * (7 / 8 * 9 + 31 / 32) / 10)
        known = {"allreduce": 150, "ddp": 150, "eager": 150, "local:H=5": 30, "dpsgd": 200,
                 "wagma:S=2,tau=10": 105, "adpsgd": 200, "swarm:H=2": 50}
        for method, wanted in known.items():
            self.assertAlmostEqual(sent(method, 4, 100), wanted, msg=method)

    def test_a_job(self) -> None:
        methods = ["allreduce", *also("ddp")]
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, str(FOLDER / "paired.py"), "hyperplane", "--small", "--out",
                       folder]
            done = subprocess.run(
                [*command, "--jobs", str(len(methods))], env=environment(), timeout=3 * LIMIT_S,
                text=True, capture_output=True, check=False,
            )
            self.assertEqual(done.returncode, 0, done.stderr)
            path = os.path.join(folder, "paired_hyperplane_tuning.json")
            with open(path, encoding="utf-8") as file:
                results = json.load(file)["results"]
            self.assertEqual(list(results), methods)
            for runs in results.values():
                (run,) = runs
                self.assertEqual(len(run["ranks"]), 8)
                scores = {tuple(rank["scores"]) for rank in run["ranks"]}
                self.assertEqual(len(scores), 1, "all look at the same model")
                (mine,) = scores
                self.assertLess(mine[-1], 0.5 * mine[0], "it learns")
            last = {name: runs[0]["ranks"][0]["scores"][-1] for name, runs in results.items()}
            if "ddp" in last:
                self.assertAlmostEqual(last["allreduce"] / last["ddp"], 1, places=3)
            shown = subprocess.run([*command, "--show"], env=environment(), text=True,
                                   capture_output=True, check=False)
            missing = "dpsgd" if "ddp" in methods else "ddp"
            self.assertIn(f"has no figures of {missing} yet", shown.stderr)

    def test_the_mean_of_models_is_what_is_looked_at(self) -> None:
        run = paired.small("fashion").run("swarm:H=2", 0.1, 6, 1, "", False)
        with tempfile.TemporaryDirectory() as folder:
            found = covey.run(paired_job.job, ([run], folder), np=2, env=environment())[0]
        (ranks,) = found
        for rank in ranks:
            self.assertEqual(rank["scores"], ranks[0]["scores"])
            self.assertEqual(rank["seconds"], ranks[0]["seconds"])
            self.assertGreater(max(rank["distances"]), 0)


class SweepTest(unittest.TestCase):
    def test_shares_of_the_free_pace(self) -> None:
        ranks = [{"pace": 40.0}] * 7 + [{"pace": 1.0}]
        slowed = [{"pace": 20.0}] * 7 + [{"pace": 1.0}]
        self.assertEqual(sweep.shares({"m": [ranks, slowed, ranks]}), {"m": (40.0, [0.5, 1.0])})

    def test_a_run(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            methods = ("adpsgd", *also("allreduce"))
            tried = {"METHODS": methods, "FACTORS": (1, 2), "RANKS": 3}
            out = io.StringIO()
            command = ["", "--out", folder, "--seconds", "0.05"]
            with contextlib.ExitStack() as patches:
                patches.enter_context(contextlib.redirect_stdout(out))
                patches.enter_context(unittest.mock.patch.multiple(sweep, **tried))
                patches.enter_context(unittest.mock.patch.object(sys, "argv", command))
                patches.enter_context(unittest.mock.patch.dict(os.environ, environment()))
                sweep.main()
            for method in methods:
                self.assertRegex(out.getvalue(), rf"(?m)^{method} .*%$")


if __name__ == "__main__":
    unittest.main()
