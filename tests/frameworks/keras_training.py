"""Trainings by covey.keras.DistributedOptimizer for tests, with gradients drawn from the seed:
the same as numpy_training.py has them. Imported by ranks only."""

from __future__ import annotations

from typing import Any, List

import keras
import numpy
from numpy_training import RATE, SHAPES, STEPS, numbers

import covey.keras as hvd


def bytes_of(variables: List[Any]) -> bytes:
    return b"".join(numpy.asarray(it).tobytes() for it in variables)


class Given(keras.Model):
    """A model whose gradient is its input: the sum of the products of both."""

    def __init__(self) -> None:
        super().__init__()
        begin = numbers(hvd.rank(), -1, "float32")
        self.numbers = [
            self.add_weight(shape=it.shape, initializer=keras.initializers.Zeros()) for it in begin
        ]
        for variable, value in zip(self.numbers, begin):
            variable.assign(value)

    def call(self, inputs: Any) -> Any:
        total, at = keras.ops.zeros([1]), 0
        for variable, shape in zip(self.numbers, SHAPES):
            count = int(numpy.prod(shape))
            part = keras.ops.reshape(inputs[0, at : at + count], shape)
            total += keras.ops.sum(part * variable)
            at += count
        return total


class Look(keras.callbacks.Callback):
    """Keeps the variables after each step."""

    def __init__(self, seen: List[bytes]) -> None:
        super().__init__()
        self.seen = seen

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.seen.append(bytes_of(self.model.numbers))


def by_fit(optimizer: Any, steps: int = STEPS) -> List[bytes]:
    """The variables after each step, and at the end of fit(), which finishes."""
    model, seen = Given(), []
    model.compile(optimizer, loss=lambda wanted, given: given)
    drawn = [numbers(hvd.rank(), step, "float32") for step in range(steps)]
    inputs = numpy.stack([numpy.concatenate([it.ravel() for it in step]) for step in drawn])
    model.fit(
        inputs, numpy.zeros([steps, 1]), batch_size=1, shuffle=False, verbose=0,
        callbacks=[Look(seen)],
    )
    seen.append(bytes_of(model.numbers))
    return seen


def by_apply(optimizer: Any, in_function: bool, steps: int = STEPS) -> List[bytes]:
    """The same of a loop with given gradients, and finish()."""
    variables = [keras.Variable(it) for it in numbers(hvd.rank(), -1, "float32")]
    seen = []

    def step(gradients: Any) -> None:
        optimizer.apply(gradients, variables)

    run = step
    if in_function:
        import tensorflow as tf

        run = tf.function(step)
    for number in range(steps):
        run(list(map(keras.ops.convert_to_tensor, numbers(hvd.rank(), number, "float32"))))
        seen.append(bytes_of(variables))
    optimizer.finish()
    seen.append(bytes_of(variables))
    return seen


def trained(method: str, way: str, momentum: float = 0.0, **options: Any) -> List[bytes]:
    """The variables after each step by SGD, and after finish()."""
    sgd = keras.optimizers.SGD(RATE, momentum=momentum)
    optimizer = hvd.DistributedOptimizer(sgd, method=method, **options)
    if way == "fit":
        seen = by_fit(optimizer)
    else:
        seen = by_apply(optimizer, way == "function")
    optimizer.close()
    return seen
