"""Goal: the state of covey.tensorflow.DistributedOptimizer beside the model: momenta where a method
goes over to another one, a rank that has fallen behind, passes that make a step, pairs.
Method: real processes; the numbers of covey.numpy.Trainer, or those of the other ranks."""

from __future__ import annotations

import unittest
from typing import Any, Dict, List

from ranks import SharedPool, also
from tensorflows import IS_RANK, set_up

if IS_RANK:
    import keras
    import numpy
    import tensorflow as tf
    from keras_training import bytes_of, trained
    from numpy_training import RATE, STEPS, numbers

    import covey.numpy
    import covey.tensorflow as hvd

MOMENTUM = 0.5
# A part in which ranks differ ends: momenta become the same on all ranks.
WITH_MOMENTUM = (
    "local:H=2,then=allreduce@4",
    "wagma:S=2,tau=3,admit=all,max_wait=60s,then=allreduce@6",
    "eager:admit=all,max_wait=60s,then=local@3:H=2,then=allreduce@7",
)
PAIRS = ("adpsgd", "swarm:H=2", "adpsgd:then=allreduce@4")

pool = SharedPool(__file__)


def setUpModule() -> None:
    set_up(pool)


# ---- On the ranks ------------------------------------------------------------------------------


def by_numpy_with_momentum(method: str) -> List[bytes]:
    """The same of SGD with momentum, as Keras has it."""
    parameters, seen = numbers(hvd.rank(), -1, "float32"), []
    momenta = [numpy.zeros_like(array) for array in parameters]
    rate, keep = numpy.float32(RATE), numpy.float32(MOMENTUM)

    def update(parameters: List[Any], gradients: List[Any]) -> None:
        for parameter, gradient, momentum in zip(parameters, gradients, momenta):
            momentum *= keep
            momentum -= gradient * rate
            parameter += momentum

    with covey.numpy.Trainer(parameters, update, method=method, state=momenta) as trainer:
        for step in range(STEPS):
            trainer.step(numbers(hvd.rank(), step, "float32"))
            seen.append(bytes_of(trainer.parameters))
        trainer.finish()
        seen.append(bytes_of(trainer.parameters))
    return seen


def compare_momentum(method: str) -> List[str]:
    """As ``compare``."""
    wanted, found = by_numpy_with_momentum(method), []
    for way in ("eagerly", "function"):
        got = trained(method, way, MOMENTUM)
        found += [f"{way}: step {i}" for i, pair in enumerate(zip(wanted, got)) if len({*pair}) > 1]
    return [*found, wanted[-1].hex()]


def with_pairs(method: str, way: str) -> List[str]:
    """The model after finish(), and whether it was changed."""
    seen = trained(method, way, MOMENTUM)
    assert len(seen) == STEPS + 1
    return [seen[-1].hex(), seen[0].hex()]


def with_adam(way: str, late: int, steps: int) -> Dict[str, Any]:
    """Keras's Adam, whose rate travels with the gradients. After the first step one rank waits
    until the others have done all, and are further than the log reaches: it goes on from the state
    of another, which waits for it elsewhere."""
    optimizer = hvd.DistributedOptimizer(
        keras.optimizers.Adam(0.5),
        method="eager:admit=solo,grace=0s,log=2,max_staleness=1000,max_wait=60s",
    )
    variables = [tf.Variable(numpy.zeros(it, "float32")) for it in ((4,), (3, 2))]

    def apply() -> None:
        optimizer.apply([tf.ones_like(it) for it in variables], variables)

    run = tf.function(apply) if way == "function" else apply
    run()
    if hvd.rank() == late:
        hvd.barrier()
    for step in range(1, 2 if hvd.rank() == late else steps):
        optimizer.learning_rate = 0.5**step
        run()
    if hvd.rank() != late:
        hvd.barrier()
    hvd.barrier()
    optimizer.finish()
    own_rate = float(optimizer.learning_rate)
    kept = [it for it in optimizer.variables if "learning_rate" not in it.path]
    answer = {
        "version": optimizer.version,
        "updates": int(optimizer.iterations),
        "bytes": bytes_of([*variables, *kept]),
        "first": float(variables[0][0]),
        "rate": own_rate,
    }
    optimizer.close()
    return answer


def passes(in_function: bool, is_mean: bool) -> List[float]:
    """Two calls make a step."""
    optimizer = hvd.DistributedOptimizer(
        keras.optimizers.SGD(1.0), backward_passes_per_step=2, average_aggregated_gradients=is_mean
    )
    variable, seen = tf.Variable([0.0]), []

    def apply(number: Any) -> None:
        optimizer.apply([tf.reshape(number + hvd.rank(), [1])], [variable])

    run = tf.function(apply) if in_function else apply
    for number in range(4):
        run(tf.constant(float(number)))
        seen.append(float(variable[0]))
    optimizer.close()
    return seen


# ---- The tests ---------------------------------------------------------------------------------


class TensorFlowStateTest(unittest.TestCase):
    def check(self, results: List[List[str]]) -> None:
        for rank, (*differences, _) in enumerate(results):
            self.assertEqual(differences, [], f"rank {rank}")
        self.assertEqual(len({result[-1] for result in results}), 1, "models after finish()")

    def test_momenta_are_averaged_where_a_method_goes_over_to_another_one(self) -> None:
        for size in (3, *also(2)):
            for method in WITH_MOMENTUM:
                with self.subTest(size=size, method=method):
                    self.check(pool(size).call(compare_momentum, method))

    def test_pairs_train_and_end_with_one_model(self) -> None:
        for method in PAIRS:
            for way in ("eagerly", "function"):
                with self.subTest(method=method, way=way):
                    ends = pool(3).call(with_pairs, method, way)
                    self.assertEqual(len({last for last, _ in ends}), 1)
                    self.assertNotEqual(*ends[0])

    def test_a_rank_that_has_fallen_behind_goes_on_from_the_state_of_another(self) -> None:
        for way in ("eagerly", "function"):
            with self.subTest(way=way):
                ends = pool(3).call(with_adam, way, 1, 9)
                for end in ends:
                    self.assertEqual(end["version"], ends[0]["version"])
                    self.assertEqual(end["updates"], end["version"])
                    self.assertEqual(end["bytes"], ends[0]["bytes"])
                    self.assertLess(end["first"], 0)
                self.assertEqual([end["rate"] for end in ends], [0.5**8, 0.5, 0.5**8])

    def test_several_passes_make_a_step(self) -> None:
        for in_function in (False, True):
            with self.subTest(in_function=in_function):
                for seen in pool(2).call(passes, in_function, False):
                    self.assertEqual(seen, [0.0, -2.0, -2.0, -8.0])
                for seen in pool(2).call(passes, in_function, True):
                    self.assertEqual(seen, [0.0, -1.0, -1.0, -4.0])


if __name__ == "__main__":
    unittest.main()
