"""A training of NumPy arrays for tests: parameters and gradients drawn from the seed, and plain SGD
whose learning rate is a power of two."""

from __future__ import annotations

from typing import Any, List

import numpy
from ranks import SEED

RATE = 0.125
SHAPES = ((7, 5), (3,), (), (0, 2), (40, 50))
STEPS = 11


def numbers(rank: int, step: int, dtype: str) -> List[Any]:
    source = numpy.random.default_rng([SEED, rank, step + 1])
    return [source.standard_normal(shape).astype(dtype) for shape in SHAPES]


def update(parameters: List[Any], gradients: List[Any]) -> None:
    for parameter, gradient in zip(parameters, gradients):
        parameter -= parameter.dtype.type(RATE) * gradient
