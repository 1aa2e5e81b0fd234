"""Goal: covey.stats() reaches TensorBoard, Weights & Biases and MLflow, by names and steps of one
kind. Method: stand-ins of their packages, and TensorBoard itself where it is installed."""

from __future__ import annotations

import importlib.util
import os
import pathlib
import sys
import tempfile
import types
import unittest
from typing import Any, Dict, List, Tuple
from unittest import mock

import numpy

import covey
from covey import loggers

_HAS_KERAS = importlib.util.find_spec("keras") is not None
_HAS_TENSORBOARD = importlib.util.find_spec("tensorboard") is not None


class LoggersTest(unittest.TestCase):
    def setUp(self) -> None:
        covey.init()
        self.addCleanup(covey.shutdown)
        covey.allreduce(numpy.ones(3), name="one")
        self.seen: List[Tuple[Dict[str, float], Any]] = []

    def write(self, numbers: Dict[str, float], step: Any = None) -> None:
        self.seen.append((numbers, step))

    def check(self, log: loggers.StatsLogger) -> None:
        """It writes at steps 0 and 10, numbers by their names."""
        for step in range(11):
            log(step)
        self.assertEqual([step for _, step in self.seen], [0, 10])
        for numbers, _ in self.seen:
            self.assertTrue(all(isinstance(value, (int, float)) for value in numbers.values()))
            self.assertTrue(all(name.startswith("covey/") for name in numbers))
            self.assertEqual(len(numbers), len(covey.stats(flat=True)))

    def test_one_of_your_own(self) -> None:
        self.check(loggers.StatsLogger(self.write, every=10))
        with self.assertRaisesRegex(covey.InvalidArgument, "from 1, not 0"):
            loggers.StatsLogger(self.write, every=0)

    def test_only_the_named_rank_writes(self) -> None:
        loggers.StatsLogger(self.write, every=1, only_rank=1)(0)
        self.assertEqual(self.seen, [])
        loggers.StatsLogger(self.write, every=1, only_rank=None)(0)
        self.assertEqual(len(self.seen), 1)

    def test_weights_and_biases_by_run_and_by_package(self) -> None:
        run = types.SimpleNamespace(log=self.write)
        self.check(loggers.wandb(run, every=10))
        self.seen.clear()
        with mock.patch.dict(sys.modules, {"wandb": run}):
            self.check(loggers.wandb(every=10))

    def test_mlflow(self) -> None:
        with mock.patch.dict(
            sys.modules, {"mlflow": types.SimpleNamespace(log_metrics=self.write)}
        ):
            self.check(loggers.mlflow(every=10))

    def test_a_missing_package_is_named(self) -> None:
        for name in ("wandb", "mlflow"):
            with mock.patch.dict(sys.modules, {name: None}):
                with self.assertRaisesRegex(ModuleNotFoundError, f"pip install {name}"):
                    getattr(loggers, name)()

    def test_tensorboard_gets_a_scalar_for_each(self) -> None:
        calls: List[Tuple[str, float, int]] = []
        writer = types.SimpleNamespace(add_scalar=lambda *given: calls.append(given))
        loggers.tensorboard(writer, every=10)(10)
        self.assertEqual({step for _, _, step in calls}, {10})
        self.assertEqual({name[6:] for name, _, _ in calls}, set(covey.stats(flat=True)))

    @unittest.skipUnless(_HAS_KERAS, "Keras is not installed")
    def test_keras_s_callback_adds_them_to_the_metrics_of_an_epoch(self) -> None:
        with mock.patch.dict(os.environ, {"KERAS_BACKEND": "torch"}):
            import covey.keras as hvd
        logs = {"loss": 1.5}
        hvd.callbacks.StatsCallback().on_epoch_end(0, logs)
        hvd.callbacks.StatsCallback().on_epoch_end(0, None)
        self.assertEqual(logs.pop("loss"), 1.5)
        self.assertEqual({name[6:] for name in logs}, set(covey.stats(flat=True)))

    @unittest.skipUnless(_HAS_TENSORBOARD, "TensorBoard is not installed")
    def test_tensorboard_itself_writes_a_file(self) -> None:
        from torch.utils.tensorboard import SummaryWriter

        with tempfile.TemporaryDirectory() as folder:
            writer = SummaryWriter(folder)
            loggers.tensorboard(writer)(0)
            writer.close()
            (file,) = pathlib.Path(folder).iterdir()
            self.assertIn(b"covey/", file.read_bytes())


if __name__ == "__main__":
    unittest.main()
