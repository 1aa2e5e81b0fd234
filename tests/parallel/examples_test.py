"""Goal: every example runs as its README says. Method: coveyrun with few steps, and alone."""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

from harness import LIMIT_S, REPOSITORY, also, environment, preload, run_launcher

preload("torch")

EXAMPLES = REPOSITORY / "examples"
TRAIN = str(EXAMPLES / "fashion_mnist" / "train.py")
FEW = ["--epochs", "2", "--max-steps", "5", "--batch-size", "16"]


class MinimalTest(unittest.TestCase):
    def test_two_ranks_learn_the_same_weights(self) -> None:
        script = str(EXAMPLES / "pytorch_minimal.py")
        code, out, err = run_launcher(["-np", "2", sys.executable, script])
        self.assertEqual(code, 0, err)
        self.assertEqual(len(out), 2, out)
        weights = {line.rpartition("weight ")[2] for line in out}
        self.assertEqual(len(weights), 1, out)
        self.assertAlmostEqual(float(weights.pop()), 8.0, places=2)

    def test_without_a_framework_by_each_method_it_has(self) -> None:
        script = str(EXAMPLES / "numpy_own_framework.py")
        methods = ("allreduce", "local:local_steps=4", "dpsgd:topology=ring", "eager", "diloco:H=5")
        for method in methods:
            with self.subTest(method=method):
                command = ["-np", "3", "--method", method, sys.executable, script]
                code, out, err = run_launcher(command)
                self.assertEqual(code, 0, err)
                self.assertEqual(len({line.rpartition("weight ")[2] for line in out}), 1, out)
                for line in out:
                    self.assertGreater(float(line.split(": ")[1].split("%")[0]), 90, out)

    def test_a_late_worker_of_diloco_has_part_in_the_same_model(self) -> None:
        script = [str(EXAMPLES / "diloco.py"), "--steps", "50", "--batch-size", "2"]
        late = ["--inject", "delay:10ms@rank2"]
        code, out, err = run_launcher(["-np", "3", *late, sys.executable, *script])
        self.assertEqual(code, 0, err)
        ends = [line for line in out if "weights" in line]
        self.assertEqual(len(ends), 3, out)
        self.assertEqual(len({line.rpartition("weights ")[2] for line in ends}), 1, out)


class ResumeTest(unittest.TestCase):
    def test_it_goes_on_where_it_was(self) -> None:
        script = str(EXAMPLES / "resume.py")
        for method in ("local:H=8", *also("allreduce")):
            with self.subTest(method), tempfile.TemporaryDirectory() as folder:
                weights = []
                for name, steps in (("whole", "25"), ("parts", "13"), ("parts", "25")):
                    command = [sys.executable, script, f"{folder}/{name}", "--steps", steps]
                    code, out, err = run_launcher(["-np", "2", "--method", method, *command])
                    self.assertEqual(code, 0, err)
                    weights.append(out[0].rpartition("weight ")[2])
                self.assertEqual(weights[0], weights[2])
                self.assertNotEqual(weights[0], weights[1])


class FashionMnistTest(unittest.TestCase):
    def check(self, lines: list, ranks: int, folder: str) -> None:
        epochs = [line for line in lines if "epoch " in line]
        self.assertEqual(len(epochs), 2, lines)
        for line in epochs:
            self.assertRegex(line, r"loss [\d.]+ .*accuracy [\d.]+% .*images/s .*waiting")
        rows = [line for line in lines if re.search(r"[0-9a-f]{8} equal$", line)]
        self.assertEqual(len(rows), ranks, lines)
        picture = pathlib.Path(folder, "fashion_mnist.png")
        try:
            import matplotlib  # noqa: F401
        except ImportError:
            return
        self.assertEqual(picture.read_bytes()[1:4], b"PNG")

    def test_four_ranks(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, TRAIN, *FEW, "--out", folder]
            code, out, err = run_launcher(["-np", "4", *command])
            self.assertEqual(code, 0, err)
            self.assertTrue(all(line.startswith("[0] ") for line in out), out)
            self.check(out, 4, folder)

    def test_alone(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            out = subprocess.check_output(
                [sys.executable, TRAIN, *FEW, "--out", folder],
                env=environment(),
                timeout=LIMIT_S,
                text=True,
            )
            self.check(out.splitlines(), 1, folder)

    def test_a_race(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            few = ["--epochs", "2", "--max-steps", "6", "--late", "1", "--out", folder]
            out = subprocess.check_output(
                [sys.executable, str(EXAMPLES / "fashion_mnist" / "race.py"), *few],
                env=environment(),
                timeout=2 * LIMIT_S,
                text=True,
            ).splitlines()
            self.assertEqual(len([line for line in out if "epoch " in line and "/2" in line]), 4)
            title = out.index("method     accuracy  seconds  waited s  replicas")
            rows = [re.split(r"  +", line) for line in out[title + 1 : title + 3]]
            self.assertEqual([row[0] for row in rows], ["allreduce", "eager"])
            for row in rows:
                self.assertRegex(row[4], r"^equal, [0-9a-f]{8}$")
            workers = [line.split() for line in out if re.match(r" +\d( +[\d.]+){4}$", line)]
            self.assertEqual([row[0] for row in workers], ["0", "1", "2", "3"])
            self.assertIn("With --method eager the same script", out[-3])
            self.assertRegex(out[-1], r"^After \d+ s allreduce was (at|in) ")
            self.assertIn("accuracy", pathlib.Path(folder, "eager.log").read_text())

    def test_a_race_that_fails_says_why(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run(
                [sys.executable, str(EXAMPLES / "fashion_mnist" / "race.py"), "--out", folder,
                 "--data", os.devnull],
                env=environment(),
                timeout=LIMIT_S,
                capture_output=True,
                text=True,
                check=False,
            )
            self.assertEqual(done.returncode, 1)
            self.assertIn("has no train-images-idx3-ubyte.gz", done.stderr)
            self.assertIn("allreduce ended with code 1", done.stderr)

    def test_a_wrong_folder_is_said_in_one_line(self) -> None:
        result = subprocess.run(
            [sys.executable, TRAIN, "--data", os.devnull],
            env=environment(),
            timeout=LIMIT_S,
            capture_output=True,
            text=True,
            check=False,
        )
        self.assertEqual(result.stderr, "/dev/null has no train-images-idx3-ubyte.gz\n")


if __name__ == "__main__":
    unittest.main()
