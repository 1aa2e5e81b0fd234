"""Drawn scripts (drawn_scripts.py) by covey.tensorflow.DistributedOptimizer."""

from __future__ import annotations

import unittest
from typing import Any, List

from drawn_scripts import End, Script, Training, check, draw, draw_finishes, draw_saves, run_script
from ranks import also
from tensorflows import IS_RANK, with_operations

if IS_RANK:
    import keras
    import numpy
    import tensorflow as tf

    import covey
    import covey.tensorflow as hvd


class KerasTraining(Training):
    def __init__(self, method: str) -> None:
        self.timeout = tf.errors.DeadlineExceededError
        self.method = method
        self.model = self.made()

    def made(self) -> Any:
        keras.utils.set_random_seed(1)
        model = keras.Sequential([keras.Input([5]), keras.layers.Dense(7), keras.layers.Dense(2)])
        sgd = keras.optimizers.SGD(0.01, momentum=0.9)
        model.compile(hvd.DistributedOptimizer(sgd, method=self.method), "mse")
        return model

    def step(self, number: int) -> None:
        source = numpy.random.default_rng([hvd.rank(), number])
        at = self.model.trainable_variables
        gradients = [it - tf.constant(source.standard_normal(it.shape), tf.float32) for it in at]
        self.model.optimizer.apply(gradients, at)

    @property
    def version(self) -> int:
        return self.model.optimizer.version

    def finish(self, strict: bool) -> None:
        self.model.optimizer.finish(strict)

    def consensus(self) -> None:
        covey.consensus(self.model)

    def save(self, path: str) -> None:
        covey.save(path, self.model)

    def load(self, path: str) -> None:
        """Into a model that has not been trained."""
        self.model.optimizer.close()
        self.model = self.made()
        covey.load(path, self.model)

    def parameters(self) -> List[Any]:
        return [numpy.asarray(it) for it in self.model.trainable_variables]


def run(script: Script, folder: str) -> List[End]:
    return run_script(KerasTraining(script.method), script, folder)


class TensorflowScriptsTest(unittest.TestCase):
    def setUp(self) -> None:
        self.env = with_operations()

    def test_all_ranks_end_alike(self) -> None:
        for seed in (*range(2), *also(*range(2, 100))):
            check(self, run, seed, draw(seed), self.env)

    def test_finishes_in_a_row_end_alike(self) -> None:
        for seed in (*range(2), *also(*range(2, 100))):
            check(self, run, seed, draw_finishes(seed), self.env)

    def test_what_was_saved_is_there_again(self) -> None:
        for seed in (*range(4), *also(*range(4, 100))):
            check(self, run, seed, draw_saves(seed), self.env)


if __name__ == "__main__":
    unittest.main()
