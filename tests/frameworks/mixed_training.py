"""A training by ranks of several frameworks, with the numbers of one of NumPy alone: what
mixed_test.py and mixed_codec_test.py share."""

from __future__ import annotations

import os
import unittest
from typing import Any, Callable, Dict, List, Tuple

from ranks import SharedPool, also

if "TEST_INIT" in os.environ:  # On a rank.
    if os.environ.get("TEST_TORCH_FIRST"):
        import torch  # noqa: F811
    import keras
    import torch
    from keras_training import by_apply, by_fit, bytes_of
    from numpy_training import RATE, STEPS, numbers

    import covey
    import covey.numpy
    import covey.tensorflow
    import covey.torch

MIXES = (("torch", "tensorflow"), ("tensorflow", "torch", "numpy"), *also(
    ("numpy", "torch"), ("numpy", "fit"), ("fit", "torch", "torch")
))
"""Frameworks by rank."""


# ---- On the ranks ------------------------------------------------------------------------------


def by_torch(method: str, **options: Any) -> List[bytes]:
    """The parameters after each step and after finish()."""
    given = numbers(covey.rank(), -1, "float32")
    parameters = [torch.nn.Parameter(torch.tensor(it)) for it in given]
    sgd = torch.optim.SGD(parameters, lr=RATE)
    optimizer = covey.torch.DistributedOptimizer(sgd, method=method, **options)
    seen = []
    for step in range(STEPS):
        optimizer.zero_grad()
        gradients = [torch.tensor(it) for it in numbers(covey.rank(), step, "float32")]
        sum((a * b).sum() for a, b in zip(parameters, gradients)).backward()
        optimizer.step()
        seen.append(bytes_of([it.detach() for it in parameters]))
    assert optimizer.version == STEPS
    optimizer.finish()
    seen.append(bytes_of([it.detach() for it in parameters]))
    optimizer._covey_trainer.close()
    return seen


def by_keras(method: str, train: Callable[[Any], List[bytes]]) -> List[bytes]:
    sgd = keras.optimizers.SGD(RATE)
    optimizer = covey.tensorflow.DistributedOptimizer(sgd, method=method)
    seen = train(optimizer)
    assert optimizer.version == STEPS
    optimizer.close()
    return seen


def update(parameters: List[Any], gradients: List[Any], hypers: Tuple[float, ...]) -> None:
    for parameter, gradient in zip(parameters, gradients):
        parameter -= parameter.dtype.type(hypers[0]) * gradient


def by_numpy(method: str) -> List[bytes]:
    begin, seen = numbers(covey.rank(), -1, "float32"), []
    with covey.numpy.Trainer(begin, update, method=method, num_hypers=1) as trainer:
        for step in range(STEPS):
            trainer.step(numbers(covey.rank(), step, "float32"), hypers=[RATE])
            seen.append(bytes_of(trainer.parameters))
        trainer.finish()
        seen.append(bytes_of(trainer.parameters))
    return seen


def trained(frameworks: Tuple[str, ...], method: str) -> List[bytes]:
    """By rank r as ``frameworks[r]`` says."""
    ways: Dict[str, Callable[[str], List[bytes]]] = {
        "torch": by_torch,
        "numpy": by_numpy,
        "tensorflow": lambda text: by_keras(text, lambda it: by_apply(it, True)),
        "fit": lambda text: by_keras(text, by_fit),
    }
    return ways[frameworks[covey.rank()]](method)


# ---- In the test -------------------------------------------------------------------------------


def check_the_numbers(
    test: unittest.TestCase, pool: SharedPool, function: Any, mix: Tuple[str, ...], method: str
) -> None:
    """Those of each step are NumPy's, and all ranks end with one model. ``function``: trained, by
    which ranks find it in the test's module."""
    wanted = pool(len(mix)).call(function, ("numpy",) * len(mix), method)
    found = pool(len(mix)).call(function, mix, method)
    for rank, (one, other) in enumerate(zip(wanted, found)):
        test.assertEqual(len(one), len(other))
        for step, pair in enumerate(zip(one, other)):
            test.assertEqual(*pair, f"rank {rank}, step {step}")
    test.assertEqual(len({seen[-1] for seen in found}), 1)
