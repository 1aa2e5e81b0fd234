"""Goal: covey.keras has Horovod's names, callbacks and load_model; fit() ends with equal models by
every method, and XLA is refused or turned off. On Keras's backends TensorFlow and torch.
Method: real processes, a small model whose ranks begin differently and have data of their own."""

from __future__ import annotations

import os
import tempfile
import unittest
from typing import Any, Dict, List, Tuple

from ranks import SEED, SharedPool, also, refusal_of
from starter import ON_TORCH
from tensorflows import IS_RANK, set_up

if IS_RANK:
    import keras
    import numpy
    from keras_training import bytes_of

    import covey.keras as hvd
    from covey.keras.callbacks import MetricAverageCallback

METHODS = (
    "eager:max_wait=60s", "diloco:H=3,outer_momentum=0.3,max_wait=60s", "swarm:H=2",
    *also("allreduce", "local:H=3", "wagma:S=2,tau=3,max_wait=60s", "dpsgd", "adpsgd"),
)
"""With H below about 10 the outer momentum of 0.9 makes losses swing for more than these epochs."""
SAMPLES, BATCH, RATE = 64, 8, 0.0625

pool = SharedPool(__file__)
on_torch = SharedPool(__file__, ON_TORCH)


def setUpModule() -> None:
    set_up(pool)
    unittest.addModuleCleanup(on_torch.close)


# ---- On the ranks ------------------------------------------------------------------------------


def data() -> Any:
    """Of this rank: inputs, and what is wanted."""
    drawn = numpy.random.default_rng([SEED, hvd.rank()]).normal(size=(SAMPLES, 6))
    inputs = drawn.astype("float32")
    return inputs, inputs.sum(1, keepdims=True)


def made(optimizer: Any, is_built: bool = True, **options: Any) -> Any:
    """A compiled model, which begins differently on each rank."""
    keras.utils.set_random_seed(hvd.rank())
    first = [keras.Input([6])] if is_built else []
    layers = [keras.layers.Dense(8, "tanh"), keras.layers.BatchNormalization()]
    model = keras.Sequential([*first, *layers, keras.layers.Dense(1)])
    model.compile(optimizer, "mse", **options)
    return model


def fitted(method: str, is_built: bool, options: Dict[str, Any]) -> Dict[str, Any]:
    """A training by ``fit``."""
    optimizer = hvd.DistributedOptimizer(keras.optimizers.Adam(0.01), method=method)
    model = made(optimizer, is_built, **options)
    history = model.fit(
        *data(), batch_size=BATCH, epochs=4, verbose=0, callbacks=[MetricAverageCallback()]
    )
    losses = history.history["loss"]
    answer = {
        "losses": losses,
        "trained": bytes_of(model.trainable_variables),
        "version": optimizer.version,
    }
    optimizer.close()
    return answer


class Look(keras.callbacks.Callback if IS_RANK else object):  # type: ignore[misc]
    """Keeps what a rank has at several times."""

    def __init__(self) -> None:
        super().__init__()
        self.first: List[bytes] = []
        self.ends: List[bytes] = []
        self.rates: List[float] = []

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        if not self.first and self.model.built:
            self.first.append(bytes_of(self.model.variables))

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.rates.append(float(self.model.optimizer.learning_rate))

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.ends.append(bytes_of(self.model.trainable_variables))


def with_callbacks(root: int, is_built: bool) -> Dict[str, Any]:
    """All callbacks at once, by a method whose models differ in between."""
    optimizer = hvd.DistributedOptimizer("sgd", method="local:H=100")
    model = made(optimizer, is_built, jit_compile=True)
    own = [bytes_of(model.variables) if is_built else b""]
    look = Look()
    callbacks = hvd.callbacks
    history = model.fit(
        *data(), batch_size=BATCH, epochs=4, verbose=0,
        callbacks=[
            callbacks.BroadcastGlobalVariablesCallback(root),
            callbacks.MetricAverageCallback(),
            callbacks.LearningRateWarmupCallback(RATE, warmup_epochs=1),
            callbacks.LearningRateScheduleCallback(RATE, 0.5, start_epoch=2, end_epoch=3),
            callbacks.LearningRateScheduleCallback(
                RATE, lambda epoch: 1 / (epoch + 1), start_epoch=3, staircase=False
            ),
            callbacks.FinishCallback(),
            look,
        ],
    )
    answer = {
        "own": own[0], "first": look.first[0], "ends": look.ends, "rates": look.rates,
        "history": history.history, "jit": model.jit_compile,
        "statistics": bytes_of(model.non_trainable_variables),
    }
    optimizer.close()
    return answer


def under_a_tape(root: int) -> List[str]:
    """The callback with an optimizer of Keras's: all of it is broadcast."""
    texts = []
    for is_built in (True, False):
        model = made(keras.optimizers.SGD(0.1, momentum=0.5), is_built)
        if is_built:
            model.optimizer.build(model.trainable_variables)
            model.optimizer.variables[-1].assign(numpy.full([1], float(hvd.rank())))
        seen = Look()
        callback = hvd.callbacks.BroadcastGlobalVariablesCallback(root)
        model.fit(*data(), batch_size=SAMPLES, verbose=0, callbacks=[callback, seen])
        if seen.first:  # On torch fit() builds the model before training begins.
            texts.append(seen.first[0].hex())
        else:
            texts.append(bytes_of([*model.variables, *model.optimizer.variables]).hex())
    return texts


def kernel_of(layer: Any) -> Any:
    """Its weights, as an array of its own."""
    return keras.ops.convert_to_numpy(layer.kernel).copy()


def local_layers_in_fit() -> List[Any]:
    """Whether the local layer was left alone; weights of it and of the other one."""
    rank = hvd.rank()
    layers = [
        keras.layers.Dense(2, kernel_initializer=keras.initializers.Constant(rank + 1.0), name=name)
        for name in ("own", "common")
    ]
    model = keras.Sequential([keras.Input([3]), *layers])
    optimizer = hvd.PartialDistributedOptimizer(
        keras.optimizers.SGD(0.01, momentum=0.9), local_layers=layers[0]
    )
    model.compile(optimizer, "mse")
    callback = hvd.callbacks.BroadcastGlobalVariablesCallback(
        0, local_variables=layers[0].variables
    )
    inputs = numpy.ones([4, 3], "float32")
    before = kernel_of(layers[0])
    model.fit(inputs, numpy.zeros([4, 2]), epochs=0, callbacks=[callback], verbose=0)
    is_kept = bool((kernel_of(layers[0]) == before).all())
    model.fit(inputs, numpy.zeros([4, 2]), epochs=3, callbacks=[callback], verbose=0)
    states = [it.name for it in optimizer.inner_optimizer.variables]
    assert sum("own_kernel" in name for name in states) == 1, states
    return [is_kept, *(kernel_of(layer).ravel().tolist() for layer in layers)]


def saved_and_loaded(folder: str) -> Dict[str, Any]:
    """The models of load_model, saved with a distributed optimizer and with a plain one."""
    found: Dict[str, Any] = {}
    divided = hvd.DistributedOptimizer(keras.optimizers.SGD(0.25), gradient_predivide_factor=2.0)
    again = type(divided).from_config(divided.get_config())
    found["factor"] = again.get_config()["gradient_predivide_factor"]
    for name in ("distributed", "plain"):
        inner = keras.optimizers.SGD(0.25, momentum=0.5)
        wrapped = hvd.DistributedOptimizer(inner, method="local:H=2")
        model = made(wrapped if name == "distributed" else inner)
        model.fit(*data(), batch_size=BATCH, verbose=0)
        path = os.path.join(folder, f"{name}{hvd.rank()}.keras")
        model.save(path)
        if name == "distributed":
            again = keras.models.load_model(path)
            found["again"] = (type(again.optimizer).__name__, again.optimizer._covey_method)
        loaded = hvd.load_model(path, method="allreduce")
        kept = loaded.optimizer
        found[name] = (
            type(kept).__name__,
            kept._covey_method,
            int(kept.iterations),
            float(kept.learning_rate),
            bytes_of(kept.variables) == bytes_of(model.optimizer.variables),
            bytes_of(loaded.variables) == bytes_of(model.variables),
        )
        hvd.callbacks.BroadcastGlobalVariablesCallback(0)
        loaded.fit(*data(), batch_size=BATCH, verbose=0)
        found[f"{name} after"] = bytes_of(loaded.trainable_variables)
        found[f"{name} version"] = kept.version
        kept.close()
        wrapped.close()
    return found


def saved_options(folder: str) -> List[Any]:
    """The kernel of a local layer after a step by a model: as it was made, as from_config, Keras's
    load_model and hvd.load_model make its optimizer, and by hvd.load_model with another option."""
    rank = hvd.rank()
    options = {"scale_local_gradients": False, "backward_passes_per_step": 2, "op": hvd.Sum,
               "average_aggregated_gradients": True}
    inputs, path = numpy.ones([8, 3], "float32"), os.path.join(folder, f"options{rank}.keras")
    found = []

    def stepped(model: Any, optimizer: Any) -> None:
        optimizer.register_local_var(model.layers[0].kernel)
        model.compile(optimizer, "mse")
        model.fit(inputs, numpy.zeros([8, 1]), batch_size=4, verbose=0)  # One step of two passes.
        found.append((kernel_of(model.layers[0]).tolist(), kernel_of(model.layers[1]).tolist()))
        optimizer.close()

    model = keras.Sequential([
        keras.Input([3]),
        keras.layers.Dense(2, use_bias=False, kernel_initializer="ones"),
        keras.layers.Dense(1, use_bias=False, kernel_initializer="ones"),
    ])
    first = hvd.DistributedOptimizer(keras.optimizers.SGD(0.125), method="allreduce", **options)
    model.compile(first, "mse")
    model.save(path)
    begin = model.get_weights()
    stepped(model, first)
    model.set_weights(begin)
    stepped(model, type(first).from_config(first.get_config()))
    loaded = keras.models.load_model(path)
    stepped(loaded, loaded.optimizer)
    loaded = hvd.load_model(path, method="allreduce")
    stepped(loaded, loaded.optimizer)
    loaded = hvd.load_model(path, method="allreduce", scale_local_gradients=True)
    stepped(loaded, loaded.optimizer)
    return found


def refusals(folder: str) -> Dict[str, str]:
    said: Dict[str, str] = {}
    plain = keras.Sequential([keras.Input([6]), keras.layers.Dense(1)])
    path = os.path.join(folder, f"plain{hvd.rank()}.keras")
    plain.save(path)
    said["no optimizer"] = refusal_of(lambda: hvd.load_model(path))
    said["legacy"] = refusal_of(lambda: hvd.load_model(path, legacy_opts=True))
    optimizer = hvd.DistributedOptimizer("sgd")
    model = made(optimizer, jit_compile=True)
    try:
        model.fit(*data(), verbose=0)
        said["xla"] = "nothing"
    except ValueError as error:
        said["xla"] = str(error)
    generated = made(hvd.DistributedOptimizer("sgd"))
    batches = ((data()[0][:2], data()[1][:2]) for _ in range(3))
    warm = hvd.callbacks.LearningRateWarmupCallback(0.5)
    said["steps"] = refusal_of(lambda: generated.fit(batches, verbose=0, callbacks=[warm]))
    return said


def names() -> List[str]:
    value = hvd.allreduce(float(hvd.rank()), name="value", op=hvd.Sum)
    rows = hvd.allgather(numpy.full([1, 2], hvd.rank()), name="rows")
    root = hvd.broadcast(numpy.full([2], hvd.rank()), 1, name="root")
    assert set(dir(hvd)) == set(hvd.__all__)
    if keras.backend.backend() == "tensorflow":
        import covey.tensorflow.keras

        assert covey.tensorflow.keras.allreduce is hvd.allreduce
        assert set(dir(hvd)) == set(dir(covey.tensorflow.keras))
    return [str(float(value)), *(str(numpy.asarray(it).tolist()) for it in (rows, root))]


# ---- The tests ---------------------------------------------------------------------------------


class KerasTest(unittest.TestCase):
    ranks = pool
    ways: Tuple[Tuple[bool, Dict[str, Any]], ...] = (
        (False, {}), (True, {"run_eagerly": True}), (True, {"steps_per_execution": 4})
    )

    def check(self, ends: List[Dict[str, Any]]) -> None:
        for end in ends:
            self.assertEqual(end["trained"], ends[0]["trained"])
            self.assertEqual(end["losses"], ends[0]["losses"], "averaged over the ranks")
            self.assertLess(end["losses"][-1], end["losses"][0])

    def test_fit_ends_with_one_model_by_every_method(self) -> None:
        for method in METHODS:
            with self.subTest(method=method):
                self.check(self.ranks(2).call(fitted, method, True, {}))

    def test_fit_in_other_ways(self) -> None:
        for is_built, options in self.ways:
            with self.subTest(is_built=is_built, **options):
                ends = self.ranks(2).call(fitted, "allreduce", is_built, options)
                self.check(ends)
                self.assertEqual(ends[0]["version"], 4 * SAMPLES // BATCH)

    def test_callbacks(self) -> None:
        size, steps = 3, SAMPLES // BATCH
        for is_built in (True, *also(False)):
            with self.subTest(is_built=is_built):
                ends = self.ranks(size).call(with_callbacks, 1, is_built)
                for end in ends:
                    self.assertEqual(end["ends"], ends[0]["ends"], "equal after each epoch")
                    self.assertEqual(end["history"], ends[0]["history"])
                    self.assertFalse(end["jit"])
                    if is_built:
                        self.assertEqual(end["first"], ends[1]["own"])
                rates = ends[0]["rates"]
                self.assertAlmostEqual(rates[0], RATE * (1 + 2 / steps) / size, places=6)
                self.assertAlmostEqual(rates[steps - 1], RATE, places=6)
                self.assertEqual(rates[2 * steps : 3 * steps], [RATE / 2] * steps)
                self.assertEqual(rates[3 * steps], RATE / 4)
                self.assertAlmostEqual(rates[3 * steps + 4], RATE / 4.5, places=6)
                self.assertEqual(ends[0]["history"]["lr"][2], RATE / 2)

    def test_the_broadcast_callback_with_an_optimizer_of_keras(self) -> None:
        built, unbuilt = zip(*self.ranks(2).call(under_a_tape, 1))
        self.assertEqual(built[0], built[1])
        self.assertEqual(unbuilt[0], unbuilt[1])

    def test_local_layers_in_fit(self) -> None:
        ends = self.ranks(2).call(local_layers_in_fit, timeout=180)
        (is_kept, own, common), (is_kept_1, own_1, common_1) = ends
        self.assertTrue(is_kept and is_kept_1, "the callback has broadcast it")
        self.assertEqual(common, common_1)
        self.assertNotEqual(own, own_1)

    def test_a_model_is_saved_and_loaded(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            ends = self.ranks(2).call(saved_and_loaded, folder)
        steps = SAMPLES // BATCH
        for end in ends:
            self.assertEqual(end["factor"], 2.0)
            self.assertEqual(end["again"][0], "DistributedOptimizer")
            self.assertIn("local:local_steps=2", end["again"][1])
            for name in ("distributed", "plain"):
                wanted = ("DistributedOptimizer", "allreduce", steps, 0.25, True, True)
                self.assertEqual(end[name], wanted, name)
                self.assertEqual(end[f"{name} after"], ends[0][f"{name} after"])
                self.assertEqual(end[f"{name} version"], 2 * steps)

    def test_options_are_saved_and_loaded(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            ends = self.ranks(2).call(saved_options, folder)
        for made, *again, scaled in ends:
            self.assertEqual(again, [made] * 3)
            self.assertEqual(scaled[1], made[1])
            whole, half = (1.0 - it[0][0][0] for it in (made, scaled))
            self.assertAlmostEqual(whole, 2 * half, places=5)

    def test_refusals_name_the_cause(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            for said in self.ranks(2).call(refusals, folder):
                self.assertIn("it was not compiled", said["no optimizer"])
                self.assertIn("no legacy optimizers", said["legacy"])
                self.assertIn("jit_compile=False", said["xla"])
                self.assertIn("give steps_per_epoch", said["steps"])

    def test_operations_have_the_arguments_of_horovod(self) -> None:
        for texts in self.ranks(2).call(names):
            self.assertEqual(texts, ["1.0", "[[0, 0], [1, 1]]", "[1, 1]"])


class KerasOnTorchTest(KerasTest):
    """The same, on Keras's other backend."""

    ranks = on_torch
    ways = ((False, {}), (True, {"run_eagerly": True}))

    test_refusals_name_the_cause = None  # type: ignore[assignment]  # There is no XLA.


if __name__ == "__main__":
    unittest.main()
