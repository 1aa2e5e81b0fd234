"""A user's script for a type checker: a training without a framework. See ../typing_test.py."""

from typing import Any, List, Sequence

import numpy

import covey.numpy as cn
from covey import Sum, init, rank, shutdown

init()
weight = numpy.zeros(8, numpy.float32)


def update(parameters: Sequence[Any], gradients: Sequence[Any]) -> None:
    for parameter, gradient in zip(parameters, gradients):
        parameter -= 0.1 * gradient


with cn.Trainer([weight], update, method="local", local_steps=4) as trainer:
    trainer.step([numpy.full(8, float(rank()), numpy.float32)])
    trainer.finish()
    version: int = trainer.version
mean: "numpy.ndarray[Any, Any]" = cn.allreduce(weight, op=Sum, name="mean")
both: List["numpy.ndarray[Any, Any]"] = cn.grouped_allreduce([weight, mean], name="both")
shutdown()
