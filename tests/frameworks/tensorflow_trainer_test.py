"""Goal: covey.tensorflow.DistributedOptimizer trains by every method with the numbers of
covey.numpy.Trainer, bit for bit, with 2, 3 and 4 ranks: eagerly, in a tf.function and in fit.
Method: real processes; the same gradients for both, and SGD whose learning rate is a power of two.
numpy_trainer_test compares torch with NumPy, by more methods.
"""

from __future__ import annotations

import unittest
from typing import List, Sequence

from ranks import SharedPool, also
from tensorflows import IS_RANK, set_up

if IS_RANK:
    from keras_training import bytes_of, trained
    from numpy_training import STEPS, numbers, update

    import covey.numpy
    import covey.tensorflow as hvd

BY_PARTNERS = ("wagma:S=2,tau=3,admit=all,max_wait=60s", "dpsgd")
"""With 4 ranks there are two groups, and ranks that are no neighbors."""
METHODS = (
    *BY_PARTNERS,
    "allreduce",
    "eager:admit=all,max_wait=60s",
    "local:H=3",
    "diloco:H=3,admit=all,max_wait=60s",
    "allreduce:then=local@5:H=2,codec=int8",
    *also(
        "dpsgd:topology=one_peer,order=atc,warmup_steps=2",
        "local:H=2,warmup_steps=3,then=allreduce@7",
        "eager:admit=all,max_wait=60s,warmup_steps=2,then=local@6:H=3",
        "wagma:S=2,tau=3,admit=all,max_wait=60s,warmup_steps=2,then=allreduce@8",
    ),
)
pool = SharedPool(__file__)


def setUpModule() -> None:
    set_up(pool)


# ---- On the ranks ------------------------------------------------------------------------------


def by_numpy(method: str) -> List[bytes]:
    """The parameters after each step and after finish()."""
    seen = []
    begin = numbers(hvd.rank(), -1, "float32")
    with covey.numpy.Trainer(begin, update, method=method) as trainer:
        for step in range(STEPS):
            trainer.step(numbers(hvd.rank(), step, "float32"))
            seen.append(bytes_of(trainer.parameters))
        trainer.finish()
        seen.append(bytes_of(trainer.parameters))
    return seen


def compare(method: str, ways: Sequence[str]) -> List[str]:
    """Where the ways differ from NumPy, if they do; the bytes at the end, as a text."""
    wanted, found = by_numpy(method), []
    for way in ways:
        got = trained(method, way)
        found += [f"{way}: step {i}" for i, pair in enumerate(zip(wanted, got)) if len({*pair}) > 1]
        found += [] if len(got) == len(wanted) else [f"{way}: {len(got)} of {len(wanted)} steps"]
    return [*found, wanted[-1].hex()]


# ---- The tests ---------------------------------------------------------------------------------


class TensorFlowTrainerTest(unittest.TestCase):
    def check(self, results: List[List[str]]) -> None:
        for rank, (*differences, _) in enumerate(results):
            self.assertEqual(differences, [], f"rank {rank}")
        self.assertEqual(len({result[-1] for result in results}), 1, "models after finish()")

    def test_the_numbers_are_those_of_numpy(self) -> None:
        for size, ways, methods in (
            (2, ("function", "fit", *also("eagerly")), METHODS),
            (3, ("eagerly", *also("function", "fit")), also(*METHODS) or METHODS[1:5:2]),
            (4, ("function", *also("eagerly", "fit")), also(*METHODS) or BY_PARTNERS),
        ):
            for method in methods:
                with self.subTest(size=size, method=method):
                    self.check(pool(size).call(compare, method, ways))


if __name__ == "__main__":
    unittest.main()
