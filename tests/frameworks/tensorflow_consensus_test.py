"""Goal: ``covey.consensus`` of a Keras model has the mean of the models that ranks have, by each
kind of method, also in a callback of fit(), and leaves nothing behind.
Method: real processes; the mean is computed anew from models that ``allgather_object`` brings."""

from __future__ import annotations

import unittest
from typing import Any, Dict, List

from ranks import SEED, SharedPool, refusal_of
from tensorflows import IS_RANK, set_up

import covey

if IS_RANK:
    import keras
    import numpy
    import tensorflow as tf

    import covey.tensorflow as hvd

pool = SharedPool(__file__)


def setUpModule() -> None:
    set_up(pool)


# ---- On the ranks ------------------------------------------------------------------------------


def made(method: str) -> Any:
    keras.utils.set_random_seed(SEED % 1000)
    model = keras.Sequential([keras.Input([6]), keras.layers.Dense(5), keras.layers.Dense(1)])
    sgd = keras.optimizers.SGD(0.015625)  # No seed of data makes it diverge.
    model.compile(hvd.DistributedOptimizer(sgd, method=method), "mse")
    return model


def flat(model: Any) -> Any:
    return numpy.concatenate([it.numpy().astype("float64").ravel() for it in model.variables])


def drawn(model: Any, step: int) -> List[Any]:
    source = numpy.random.default_rng([SEED, hvd.rank(), step])
    shapes = [it.shape for it in model.trainable_variables]
    return [tf.constant(source.standard_normal(shape), tf.float32) for shape in shapes]


def looks(method: str, steps: int, exact: bool) -> Dict[str, Any]:
    """The consensus as a rank sees it after some steps, and its model after ``finish()``."""
    model = made(method)
    for step in range(steps):
        model.optimizer.apply(drawn(model, step), model.trainable_variables)
        covey.barrier()
    kept = flat(model)
    models = covey.allgather_object(kept)
    with covey.consensus(model, exact=exact, timeout=60) as found:
        shown = flat(model)
        covey.barrier()
    after = flat(model)
    model.optimizer.finish()
    seen = {"kept": kept, "models": models, "shown": shown, "after": after,
            "finished": flat(model), "found": vars(found)}
    model.optimizer.close()
    return seen


def in_a_callback(method: str) -> List[Any]:
    """By epoch: how far the models are apart, and the evaluation of their mean."""
    model, seen = made(method), []
    source = numpy.random.default_rng([SEED, hvd.rank()])
    inputs = source.standard_normal((64, 6)).astype("float32")

    class Look(keras.callbacks.Callback):
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            with covey.consensus(self.model, exact=True) as found:
                error = self.model.evaluate(numpy.eye(6), numpy.ones((6, 1)), verbose=0)
                seen.append((found.distance, float(error)))

    model.fit(inputs, inputs.sum(1, keepdims=True), batch_size=8, epochs=2, verbose=0,
              callbacks=[Look()])
    return seen


def refused() -> List[str]:
    def look(model: Any) -> None:
        with covey.consensus(model) as found:
            raise covey.InvalidArgument(str(found.missing))

    model = made("local:H=4")
    untrained = refusal_of(lambda: look(model))
    plain = keras.Sequential([keras.Input([6]), keras.layers.Dense(1)])
    plain.compile("sgd", "mse")
    alone = refusal_of(lambda: look(plain))
    return [untrained, alone]


class TensorflowConsensusTest(unittest.TestCase):
    def check_mean(self, seen: Dict[str, Any], wanted: Any) -> None:
        squares = [float(((model - wanted) ** 2).sum()) for model in seen["models"]]
        distance = (sum(squares) / len(squares) / float((wanted**2).sum())) ** 0.5
        self.assertLess(float(abs(seen["shown"] - wanted).max()), 1e-6)
        self.assertAlmostEqual(seen["found"]["distance"], distance, places=6)
        self.assertEqual(seen["found"]["missing"], {})
        self.assertEqual(seen["after"].tolist(), seen["kept"].tolist())

    def test_models_that_each_rank_trains_on(self) -> None:
        for method in ("local:H=9", "dpsgd"):
            with self.subTest(method=method):
                for exact in (True, False):
                    for seen in pool(2).call(looks, method, 4, exact):
                        self.check_mean(seen, sum(seen["models"]) / 2)
                        self.assertGreater(seen["found"]["distance"], 0.0)

    def test_replicas_are_shown_as_they_are(self) -> None:
        for method in ("allreduce", "eager:admit=all,max_wait=60s",
                       "wagma:S=2,tau=3,admit=all,max_wait=60s"):
            with self.subTest(method=method):
                for seen in pool(2).call(looks, method, 6, False):
                    self.check_mean(seen, seen["kept"])
                    self.assertEqual(seen["found"]["distance"], 0.0)

    def test_in_pairs_it_is_what_finish_would_leave(self) -> None:
        for seen in pool(2).call(looks, "adpsgd", 5, True):
            self.assertLess(float(abs(seen["shown"] - seen["finished"]).max()), 1e-6)
        for seen in pool(2).call(looks, "adpsgd", 5, False):
            self.assertEqual(sorted(seen["found"]["ages"]), [0, 1])

    def test_in_a_callback_all_ranks_evaluate_one_model(self) -> None:
        first, second = pool(2).call(in_a_callback, "local:H=100")
        self.assertEqual(first, second)
        self.assertEqual(len(first), 2)
        for distance, _ in first:
            self.assertGreater(distance, 0.0)

    def test_wrong_calls(self) -> None:
        for untrained, alone in pool(2).call(refused):
            self.assertIn("InvalidArgument: consensus: this model has not done a step", untrained)
            self.assertIn("InvalidArgument: consensus: no DistributedOptimizer trains", alone)


if __name__ == "__main__":
    unittest.main()
