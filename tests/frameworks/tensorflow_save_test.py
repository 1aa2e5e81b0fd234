"""Goal: ``covey.save`` and ``covey.load`` of a Keras model: a training that was loaded goes on as
the saved one, bit for bit; with another method it begins with the means; a checkpoint that does not
fit is refused on every rank.
Method: real processes; gradients are drawn from the seed. Momenta and BatchNorm's statistics differ
from rank to rank where the method lets them."""

from __future__ import annotations

import json
import os
import tempfile
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

EXACT = ("allreduce", "local:H=3", "dpsgd", "eager:admit=all,max_wait=60s",
         "diloco:H=3,admit=all,max_wait=60s", "wagma:S=2,tau=3,admit=all,max_wait=60s")

pool = SharedPool(__file__)


def setUpModule() -> None:
    set_up(pool)


# ---- On the ranks ------------------------------------------------------------------------------


def made(method: str, width: int = 5) -> Any:
    keras.utils.set_random_seed(SEED % 1000)
    layers = [keras.layers.Dense(width), keras.layers.BatchNormalization(), keras.layers.Dense(1)]
    model = keras.Sequential([keras.Input([6]), *layers])
    sgd = keras.optimizers.SGD(0.125, momentum=0.5)
    model.compile(hvd.DistributedOptimizer(sgd, method=method), "mse")
    return model


def train(model: Any, first: int, last: int) -> None:
    for step in range(first, last):
        source = numpy.random.default_rng([SEED, hvd.rank(), step])
        shapes = [it.shape for it in model.trainable_variables]
        gradients = [tf.constant(source.standard_normal(it), tf.float32) for it in shapes]
        model.optimizer.apply(gradients, model.trainable_variables)
        for number, it in enumerate(model.non_trainable_variables):
            it.assign(it + source.standard_normal(it.shape) * number)
    covey.barrier()


def flat(variables: Any) -> List[float]:
    return [float(one) for it in variables for one in numpy.asarray(it, "float64").ravel()]


def all_of(model: Any) -> List[List[float]]:
    lists = (model.trainable_variables, model.non_trainable_variables, model.optimizer.variables)
    return [flat(it) for it in lists]


def goes_on(method: str, folder: str) -> Dict[str, Any]:
    """Where a training is after five steps and four more: saved, and loaded."""
    path, model = os.path.join(folder, method[:6]), made(method)
    train(model, 0, 5)
    covey.save(path, model, epoch=7, name=f"rank {hvd.rank()}")
    saved = all_of(model)
    train(model, 5, 9)
    model.optimizer.finish()
    went = all_of(model)
    model.optimizer.close()
    other = made(method)
    loaded = covey.load(path, other)
    taken = all_of(other)
    train(other, 5, 9)
    other.optimizer.finish()
    found = all_of(other)
    other.optimizer.close()
    said = [loaded.exact, loaded.steps, loaded["epoch"], loaded["name"]]
    return {"saved": saved, "taken": taken, "went": went, "found": found, "said": said}


def saves(method: str, folder: str) -> List[List[float]]:
    model = made(method)
    train(model, 0, 5)
    covey.save(os.path.join(folder, "one"), model, epoch=7)
    seen = all_of(model)
    model.optimizer.finish()
    return seen


def loads(method: str, folder: str) -> Any:
    model = made(method)
    loaded = covey.load(os.path.join(folder, "one"), model)
    taken = all_of(model)
    train(model, 5, 7)
    model.optimizer.finish()
    return taken, loaded.exact, loaded.steps, loaded.reset


def saves_though_late(folder: str) -> Dict[str, Any]:
    """Rank 1 does fewer steps than rank 0, which waits for no other."""
    path, method = os.path.join(folder, "late"), "eager:admit=solo,max_wait=60s"
    model = made(method)
    train(model, 0, 5 if hvd.rank() == 0 else 2)
    covey.save(path, model)
    saved = model.optimizer.version
    model.optimizer.close()
    other = made(method)
    loaded = covey.load(path, other)
    versions = [saved, loaded.version, other.optimizer.version]
    train(other, 0, 3)
    other.optimizer.finish(strict=True)
    versions.append(other.optimizer.version)
    ends = flat(other.trainable_variables)
    other.optimizer.close()
    return {"steps": loaded.steps, "versions": versions, "ends": ends}


def refused(folder: str) -> List[str]:
    model = made("allreduce")
    untrained = refusal_of(lambda: covey.save(os.path.join(folder, "two"), model))
    train(model, 0, 1)
    late = refusal_of(lambda: covey.load(os.path.join(folder, "one"), model))
    kept = refusal_of(lambda: covey.save(os.path.join(folder, "two"), model, layer=model))
    other = made("allreduce", width=4)
    wide = refusal_of(lambda: covey.load(os.path.join(folder, "one"), other))
    none = refusal_of(lambda: covey.load(os.path.join(folder, "none"), other))
    return [untrained, late, kept, wide, none]


class TensorflowSaveTest(unittest.TestCase):
    def setUp(self) -> None:
        made_here = tempfile.TemporaryDirectory()
        self.addCleanup(made_here.cleanup)
        self.folder = made_here.name

    def test_a_loaded_training_goes_on_as_the_saved_one(self) -> None:
        for method in EXACT:
            with self.subTest(method=method):
                for rank, seen in enumerate(pool(2).call(goes_on, method, self.folder)):
                    self.assertEqual(seen["said"], [True, 5, 7, f"rank {rank}"])
                    self.assertEqual(seen["taken"], seen["saved"])
                    self.assertEqual(seen["found"], seen["went"])

    def test_in_pairs_each_rank_takes_up_its_own_model(self) -> None:
        for rank, seen in enumerate(pool(2).call(goes_on, "adpsgd", self.folder)):
            self.assertEqual(seen["said"], [True, 5, 7, f"rank {rank}"])
            self.assertEqual(seen["taken"], seen["saved"])

    def test_a_late_rank_goes_on_from_the_step_of_the_others(self) -> None:
        first, second = pool(2).call(saves_though_late, self.folder)
        self.assertEqual(first, second)
        self.assertEqual(first["steps"], 5)
        saved, *loaded, _ = first["versions"]
        self.assertEqual(loaded, [saved, saved])

    def test_another_method_begins_with_the_means(self) -> None:
        saved = pool(2).call(saves, "local:H=9", self.folder)
        means = [[(a + b) / 2 for a, b in zip(*parts)] for parts in zip(*saved)]
        for taken, exact, steps, reset in pool(2).call(loads, "allreduce", self.folder):
            self.assertEqual((exact, steps), (False, 5))
            self.assertIn("local", reset[0])
            self.assertIn("models: the mean of all ranks', on all", reset)
            for part, mean in zip((taken[0], taken[2]), (means[0], means[2])):
                for one, other in zip(part, mean):
                    self.assertAlmostEqual(one, other, places=6)
        with open(os.path.join(self.folder, "one", "manifest.json"), encoding="utf-8") as file:
            self.assertEqual(json.load(file)["own"], ["parameters", "buffers", "optimizer"])

    def test_what_does_not_fit_is_refused(self) -> None:
        pool(2).call(saves, "allreduce", self.folder)
        for untrained, late, kept, wide, none in pool(2).call(refused, self.folder):
            self.assertIn("has not done a step", untrained)
            self.assertIn("before the first step", late)
            self.assertIn("layer: a checkpoint of Keras holds numbers", kept)
            self.assertRegex(wide, "of another model, or optimizer: variable 0 is .*5.* and .*4")
            self.assertIn("there is no checkpoint", none)


if __name__ == "__main__":
    unittest.main()
