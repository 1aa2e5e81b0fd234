"""Goal: covey.keras on Keras's torch backend trains by every method with the numbers of
covey.numpy.Trainer, bit for bit, without TensorFlow; consensus, save and load. Another backend is
refused. (What keras_test has is tested on both backends there.)
Method: real processes; the same gradients for both, and SGD whose rate is a power of two."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tempfile
import unittest
from typing import Any, Dict, List, Sequence, Tuple

from ranks import SEED, SharedPool, also, refusal_of
from starter import ON_TORCH
from tensorflows import IS_RANK

if IS_RANK:
    import keras
    import numpy
    import torch
    from keras_training import bytes_of, trained
    from numpy_training import RATE, STEPS, numbers, update

    import covey
    import covey.keras as hvd
    import covey.numpy

METHODS = (
    "allreduce",
    "eager:admit=all,max_wait=60s",
    "wagma:S=2,tau=3,admit=all,max_wait=60s",
    "local:H=3",
    "diloco:H=3,admit=all,max_wait=60s",
    "dpsgd",
    "allreduce:then=local@5:H=2,codec=int8",
    *also(
        "dpsgd:topology=one_peer,order=atc,warmup_steps=2",
        "eager:admit=all,max_wait=60s,warmup_steps=2,then=local@6:H=3",
    ),
)
pool = SharedPool(__file__, ON_TORCH)


def setUpModule() -> None:
    if importlib.util.find_spec("keras") is None:
        raise unittest.SkipTest("no Keras here: tools/setup --with tensorflow")
    print(f"seed {SEED}")
    unittest.addModuleCleanup(pool.close)


# ---- On the ranks ------------------------------------------------------------------------------


def compare(method: str, ways: Sequence[str]) -> List[str]:
    """Where the ways differ from NumPy, if they do; the bytes at the end, as a text."""
    wanted, found = [], []
    begin = numbers(hvd.rank(), -1, "float32")
    with covey.numpy.Trainer(begin, update, method=method) as trainer:
        for step in range(STEPS):
            trainer.step(numbers(hvd.rank(), step, "float32"))
            wanted.append(bytes_of(trainer.parameters))
        trainer.finish()
        wanted.append(bytes_of(trainer.parameters))
    for way in ways:
        got = trained(method, way)
        found += [f"{way}: step {i}" for i, pair in enumerate(zip(wanted, got)) if len({*pair}) > 1]
        found += [] if len(got) == len(wanted) else [f"{way}: {len(got)} of {len(wanted)} steps"]
    assert "tensorflow" not in sys.modules
    return [*found, wanted[-1].hex()]


def passes() -> Dict[str, str]:
    """Gradients of two calls are one step's; what is refused."""
    variables = [keras.Variable(numpy.zeros(2, "float32"))]
    said: Dict[str, str] = {}
    for is_mean in (False, True):
        optimizer = hvd.DistributedOptimizer(
            "sgd", backward_passes_per_step=2, average_aggregated_gradients=is_mean,
            method="allreduce",
        )
        optimizer.learning_rate = RATE
        variables[0].assign(numpy.zeros(2, "float32"))
        for number in (1.0, 3.0):
            optimizer.apply([torch.full((2,), number + hvd.rank())], variables)
        said[str(is_mean)] = str(numpy.asarray(variables[0]).tolist())
        other = [keras.Variable(numpy.zeros(2, "float32"))]
        said["other"] = refusal_of(lambda: optimizer.apply([torch.ones(2)], other))
        optimizer.close()
    sgd = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=1.0)
    said["torch"] = refusal_of(lambda: hvd.DistributedOptimizer(sgd))
    wrapped = hvd.DistributedOptimizer("sgd")
    said["twice"] = refusal_of(lambda: hvd.DistributedOptimizer(wrapped))
    said["op"] = refusal_of(lambda: hvd.DistributedOptimizer("sgd", op=hvd.Max))
    codec = hvd.DistributedOptimizer("sgd", compression=hvd.Compression.fp16, method="allreduce")
    said["codec"] = codec.method
    wide = keras.Variable(numpy.zeros(1, "float64"), dtype="float64")
    codec.apply([torch.full((1,), 1 / 3, dtype=torch.float64)], [wide])
    said["wide"] = f"{codec.method} {float(wide[0]) + float(codec.learning_rate) / 3:.12f}"
    codec.close()
    different = [keras.Variable(numpy.zeros(2 + hvd.rank(), "float32"))]
    gradients = [torch.ones(2 + hvd.rank())]
    said["shapes"] = refusal_of(lambda: wrapped.apply(gradients, different))
    return said


def moved(variables: List[Any]) -> List[List[float]]:
    """By three steps: how far down each of them went."""
    return [(number - numpy.asarray(it)).tolist() for number, it in zip((1.0, 5.0), variables)]


def local_updates() -> None:
    """The first variable is this rank's own; gradients are rank + 1 and twice that."""
    own, mean = float(hvd.rank() + 1), (hvd.size() + 1) / 2
    for options, scale in (
        ({}, 1 / hvd.size()),
        ({"scale_local_gradients": False}, 1.0),
        ({"gradient_predivide_factor": 4.0}, 1 / hvd.size()),
        ({"method": "local:local_steps=3"}, 1 / hvd.size()),
    ):
        variables = [keras.Variable(numpy.full(2, it, "float32")) for it in (1.0, 5.0)]
        optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(RATE, momentum=0.0), **options)
        optimizer.register_local_var(variables[0])
        for _ in range(3):
            optimizer.apply([torch.full((2,), own), torch.full((2,), 2 * own)], variables)
        optimizer.finish()
        wanted = [[3 * RATE * own * scale] * 2, [3 * RATE * 2 * mean] * 2]
        assert moved(variables) == wanted, (options, moved(variables), wanted)
        said = refusal_of(lambda: optimizer.register_local_var(variables[1]))
        assert "before the first step" in said, said
        optimizer.close()


def outside_of_the_set() -> None:
    """A rank that is not in the process set trains by itself."""
    first = hvd.add_process_set([0])
    variables = [keras.Variable(numpy.ones(2, "float32"))]
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(RATE), process_set=first)
    for _ in range(2):
        gradient = torch.full((2,), float(hvd.rank() + 1), device=variables[0].value.device)
        optimizer.apply([gradient], variables)
    optimizer.finish()
    assert moved(variables) == [[2 * RATE * (hvd.rank() + 1)] * 2], moved(variables)
    assert (optimizer.trainer is None) == (hvd.rank() != 0)
    optimizer.close()


def refusals() -> Dict[str, str]:
    said = {}
    two = {"gradient_predivide_factor": 2.0}
    said["eager"] = refusal_of(lambda: hvd.DistributedOptimizer("sgd", method="eager", **two))
    said["sum"] = refusal_of(lambda: hvd.DistributedOptimizer("sgd", op=hvd.Sum, **two))
    rounds = hvd.DistributedOptimizer("sgd", method="eager")
    said["local"] = refusal_of(lambda: rounds.register_local_var(keras.Variable(0.0)))
    partial = hvd.PartialDistributedOptimizer
    said["layers"] = refusal_of(lambda: partial("sgd", local_layers=["dense"]))
    callback = hvd.callbacks.BroadcastGlobalVariablesCallback
    said["variables"] = refusal_of(lambda: callback(0, local_variables=[1]))
    try:
        hvd.DistributedGradientTape
    except AttributeError as error:
        said["DistributedGradientTape"] = str(error)
    return said


def made(method: str) -> Any:
    """A model of one variable, which is zeros, and its optimizer."""
    model = keras.Sequential(
        [keras.Input([2]), keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")]
    )
    sgd = keras.optimizers.SGD(RATE, momentum=0.5)
    model.compile(hvd.DistributedOptimizer(sgd, method=method), "mse")
    return model


def step(model: Any, number: float) -> List[float]:
    """One with gradients that are this number and the rank; the variable."""
    gradient = torch.full((2, 1), number + hvd.rank())
    model.optimizer.apply([gradient], model.trainable_variables)
    return weights(model)


def weights(model: Any) -> List[float]:
    return numpy.asarray(model.trainable_variables[0]).ravel().tolist()


def kept(method: str, folder: str) -> Tuple[List[Any], List[Any], List[Any]]:
    """Own models and what consensus shows; a training, and the same one loaded after five steps."""
    model = made(method)
    for number in range(5):
        own = step(model, number)
    with covey.consensus(model, exact=True) as mean:
        shown = [own, weights(model), mean.distance]
    shown.append(weights(model))
    covey.save(os.path.join(folder, "last"), model, epoch=7)
    wanted = [step(model, number) for number in range(5, 9)]
    again = made(method)
    loaded = covey.load(os.path.join(folder, "last"), again)
    assert (loaded.exact, loaded["epoch"], loaded.steps) == (True, 7, 5), vars(loaded)
    found = [step(again, number) for number in range(5, 9)]
    for one in (model, again):
        one.optimizer.close()
    return shown, wanted, found


# ---- The tests ---------------------------------------------------------------------------------


class KerasTorchTest(unittest.TestCase):
    def test_passes_and_refusals(self) -> None:
        for rank, said in enumerate(pool(2).call(passes)):
            self.assertEqual(said["False"], str([-0.125 * (4 + 1)] * 2))
            self.assertEqual(said["True"], str([-0.125 * (4 + 1) / 2] * 2))
            self.assertIn("other variables than at its first step", said["other"])
            self.assertIn("optimizer must be one of Keras 3", said["torch"])
            self.assertIn("is a DistributedOptimizer already", said["twice"])
            self.assertIn("op must be Average or Sum", said["op"])
            self.assertEqual(said["codec"], "allreduce:codec=fp16", rank)
            self.assertEqual(said["wide"].replace("-0", "0"), "allreduce 0.000000000000", rank)
            self.assertIn("Mismatch: trainer", said["shapes"])

    def test_local_variables_keep_their_gradients(self) -> None:
        pool(2).call(local_updates)

    def test_a_rank_outside_of_the_process_set(self) -> None:
        pool(2).call(outside_of_the_set)

    def test_what_has_no_meaning_is_refused_by_name(self) -> None:
        wanted = {
            "eager": "gradient_predivide_factor must be 1 with the method eager",
            "sum": "needs op=Average",
            "local": "local variables do not go with the method eager",
            "layers": "local_layers must hold Keras layers",
            "variables": "local_variables must hold variables",
            "DistributedGradientTape": "needs KERAS_BACKEND=tensorflow",
        }
        for said in pool(2).call(refusals):
            self.assertEqual(list(said), list(wanted))
            for what, text in wanted.items():
                self.assertIn(text, said[what])

    def test_the_numbers_are_those_of_numpy(self) -> None:
        for size, ways in ((2, ("fit", "eagerly")), (3, ("fit",)), *also((4, ("fit",)))):
            for method in METHODS:
                with self.subTest(size=size, method=method):
                    results = pool(size).call(compare, method, ways)
                    for rank, (*differences, _) in enumerate(results):
                        self.assertEqual(differences, [], f"rank {rank}")
                    self.assertEqual(len({result[-1] for result in results}), 1)

    def test_consensus_save_and_load(self) -> None:
        for method in ("allreduce", "local:H=4", "diloco:H=5,admit=all,max_wait=60s"):
            with self.subTest(method=method), tempfile.TemporaryDirectory() as folder:
                results = pool(2).call(kept, method, folder)
                owns = [shown[0] for shown, _, _ in results]
                mean = [sum(pair) / 2 for pair in zip(*owns)]
                for (own, seen, distance, after), wanted, found in results:
                    self.assertEqual(seen, mean)
                    self.assertEqual(distance > 0, owns[0] != owns[1])
                    self.assertEqual(after, own)
                    self.assertEqual(wanted, found)

    def test_another_backend_is_refused(self) -> None:
        for backend in ("jax", "numpy"):
            done = subprocess.run(
                [sys.executable, "-c", "import covey.keras"],
                env={**os.environ, "KERAS_BACKEND": backend},
                capture_output=True,
                text=True,
                timeout=120,
                check=False,
            )
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(f"Keras runs on {backend} here: covey.keras needs", done.stderr)
            self.assertIn("KERAS_BACKEND=tensorflow or KERAS_BACKEND=torch", done.stderr)


if __name__ == "__main__":
    unittest.main()
