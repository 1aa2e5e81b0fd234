"""Drawn scripts (drawn_scripts.py) by covey.numpy.Trainer."""

from __future__ import annotations

import unittest
from typing import Any, Dict, List

import numpy
from drawn_scripts import End, Script, Training, check, draw, draw_finishes, draw_saves, run_script
from ranks import also

import covey
import covey.numpy


def update(parameters: List[Any], gradients: List[Any]) -> None:
    for parameter, gradient in zip(parameters, gradients):
        parameter -= 0.125 * gradient


class NumpyTraining(Training):
    def __init__(self, method: str) -> None:
        begin = [numpy.zeros((3, 4), "float32"), numpy.zeros(5, "float32")]
        self.trainer = covey.numpy.Trainer(begin, update, method=method)
        self.saved: Dict[str, Any] = {}

    def step(self, number: int) -> None:
        source = numpy.random.default_rng([covey.rank(), number])
        at = self.trainer.parameters
        self.trainer.step([it - source.standard_normal(it.shape).astype("float32") for it in at])

    @property
    def version(self) -> int:
        return self.trainer.version

    def finish(self, strict: bool) -> None:
        self.trainer.finish(strict=strict)

    def consensus(self) -> None:
        covey.consensus(self.trainer)

    def save(self, path: str) -> None:
        self.trainer.settle()
        self.saved[path] = self.trainer.state_dict()

    def load(self, path: str) -> None:
        self.trainer.load_state_dict(self.saved[path])

    def parameters(self) -> List[Any]:
        return self.trainer.parameters


def run(script: Script, folder: str) -> List[End]:
    return run_script(NumpyTraining(script.method), script, folder)


class NumpyScriptsTest(unittest.TestCase):
    def test_all_ranks_end_alike(self) -> None:
        for seed in (*range(3), *also(*range(3, 100))):
            check(self, run, seed, draw(seed))

    def test_finishes_in_a_row_end_alike(self) -> None:
        for seed in (*range(3), *also(*range(3, 100))):
            check(self, run, seed, draw_finishes(seed))

    def test_what_was_saved_is_there_again(self) -> None:
        for seed in (*range(4), *also(*range(4, 100))):
            check(self, run, seed, draw_saves(seed))


if __name__ == "__main__":
    unittest.main()
