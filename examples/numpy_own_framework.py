"""A training without a framework, by one of five methods: logistic regression in NumPy.

    coveyrun -np 2 --method local:local_steps=4 python numpy_own_framework.py

`covey.numpy.Trainer` is also the template for another framework: frameworks/README.md.
"""

import numpy

import covey
import covey.numpy

covey.init()
source = numpy.random.default_rng(covey.rank())  # every rank has data of its own
inputs = source.standard_normal((512, 8))
wanted = (inputs.sum(axis=1) > 0).astype(float)
weight, bias = numpy.zeros(8), numpy.zeros(1)


def gradients():
    errors = 1 / (1 + numpy.exp(-(inputs @ weight + bias))) - wanted
    return [inputs.T @ errors / len(errors), errors.mean(keepdims=True)]


def update(parameters, gradients):
    for parameter, gradient in zip(parameters, gradients):
        parameter -= 0.5 * gradient


with covey.numpy.Trainer([weight, bias], update) as trainer:
    for _ in range(100):
        trainer.step(gradients())
    trainer.finish()  # now all ranks have the same model
right = ((inputs @ weight + bias > 0) == (wanted > 0)).mean()
print(f"rank {covey.rank()} of {covey.size()}: {right:.1%} right, weight {weight.sum():.6f}")
