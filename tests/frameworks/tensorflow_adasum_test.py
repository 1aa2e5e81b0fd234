"""Goal: under TensorFlow op=Adasum is the paper's sum, of any number of ranks, alone, grouped, of a
tape's gradients and of optimizers' updates, eagerly and in a tf.function.

Method: a slow reference in NumPy of float64, whose inputs follow from seed and rank.
"""

from __future__ import annotations

import os
import tempfile
import unittest
from typing import Any, Dict, List

from adasum_reference import whole
from ranks import SEED, SharedPool, also
from tensorflows import IS_RANK, set_up

if IS_RANK:
    import keras
    import numpy
    import tensorflow as tf

    import covey
    import covey.tensorflow as hvd

    TOLERANCE = {tf.float64: 1e-12, tf.float32: 1e-5, tf.float16: 2e-3, tf.bfloat16: 2e-2}

SHAPES = ((3, 5), (), (17,), (0,), (2, 3, 4), (1000,))
pool = SharedPool(__file__)


def setUpModule() -> None:
    set_up(pool)


# ---- On the ranks ------------------------------------------------------------------------------


def given(rank: int, shape: Any, dtype: Any, seed: int = 0) -> Any:
    own = numpy.random.default_rng([SEED, seed, rank + 1]).normal(size=shape)
    common = numpy.random.default_rng([SEED, seed, 0]).normal(size=shape)
    return tf.cast(tf.constant(own + common), dtype)


def wanted(shape: Any, dtype: Any, seed: int = 0, ranks: Any = None) -> Any:
    every = range(hvd.size()) if ranks is None else ranks
    return whole([tf.cast(given(r, shape, dtype, seed), tf.float64).numpy() for r in every])


def check(result: Any, expected: Any, dtype: Any) -> None:
    assert result.dtype == dtype and result.shape == expected.shape, result
    tol = TOLERANCE[dtype]
    got = tf.cast(result, tf.float64).numpy()
    numpy.testing.assert_allclose(got, expected, rtol=tol, atol=tol)


def alone(way: Any, dtype: Any) -> None:
    for name in ("one", *([None] if dtype == tf.float32 else [])):
        named = name or "unnamed"

        def run(*tensors: Any) -> Any:
            return [
                hvd.allreduce(it, op=hvd.Adasum, name=name and f"{name}.{i}")
                for i, it in enumerate(tensors)
            ]

        results = way(run)(*(given(hvd.rank(), shape, dtype) for shape in SHAPES))
        for shape, result in zip(SHAPES, results):
            check(result, wanted(shape, dtype), dtype)
            flat = tf.reshape(result, [1, -1])
            everyone = hvd.allgather(flat, name=f"{named}.{shape}").numpy()
            assert all(row.tobytes() == everyone[0].tobytes() for row in everyone)


def grouped(way: Any) -> None:
    dtypes = list(TOLERANCE)
    many = [given(hvd.rank(), s, dtypes[i % 4], i) for i, s in enumerate(SHAPES * 2)]
    results = way(lambda *its: hvd.grouped_allreduce(list(its), op=hvd.Adasum, name="many"))(*many)
    for i, (one, result) in enumerate(zip(many, results)):
        check(result, wanted(one.shape, one.dtype, i), one.dtype)
    scaled = way(
        lambda it: hvd.allreduce(
            it, op=hvd.Adasum, prescale_factor=3.0, postscale_factor=0.5, name="scaled"
        )
    )(many[4])
    numpy.testing.assert_allclose(scaled, results[4] * 1.5, rtol=1e-5)


def special() -> None:
    """Equal ones give that, orthogonal ones their sum, zeros nothing; a part of the ranks; small
    on the wire; no gradient."""
    same = tf.constant([1.0, -2.0, 4.0])
    numpy.testing.assert_allclose(hvd.allreduce(same, op=hvd.Adasum), same)
    own = (hvd.rank() + 1.0) * tf.one_hot(hvd.rank(), hvd.size())
    total = hvd.allreduce(own, op=hvd.Adasum)
    numpy.testing.assert_allclose(total, numpy.arange(1.0, hvd.size() + 1))
    assert not hvd.allreduce(tf.zeros([3]), op=hvd.Adasum).numpy().any()
    small = hvd.allreduce(same, op=hvd.Adasum, compression=hvd.Compression.fp16)
    assert small.dtype == tf.float32 and numpy.allclose(small, same, rtol=1e-3)
    members = hvd.ProcessSet(range(1, hvd.size()))
    if members.included():
        mine = given(hvd.rank(), (9,), tf.float64)
        result = hvd.allreduce(mine, op=hvd.Adasum, process_set=members)
        check(result, wanted((9,), tf.float64, ranks=members.ranks), tf.float64)
    variable = tf.Variable(same)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(hvd.allreduce(variable, op=hvd.Adasum))
    try:
        tape.gradient(loss, variable)
        raise AssertionError("it has no gradient")
    except NotImplementedError as error:
        assert "op=Average and op=Sum only" in str(error), error


def of_a_tape() -> None:
    variables = [tf.Variable(tf.zeros([4, 2])), tf.Variable(tf.zeros([3]))]
    gradients = [given(hvd.rank(), it.shape, tf.float32, i) for i, it in enumerate(variables)]

    @tf.function
    def run() -> Any:
        with tf.GradientTape() as tape:
            pairs = zip(variables, gradients)
            loss = tf.add_n([tf.reduce_sum(it * gradient) for it, gradient in pairs])
        return hvd.DistributedGradientTape(tape, op=hvd.Adasum).gradient(loss, variables)

    for i, result in enumerate(run()):
        check(result, wanted(variables[i].shape, tf.float32, i), tf.float32)


def tensors() -> None:
    for way in (lambda function: function, tf.function):
        for dtype in TOLERANCE if way is not tf.function or also(1) else [tf.float32, tf.bfloat16]:
            alone(way, dtype)
        grouped(way)
    if hvd.size() > 1:
        special()
    of_a_tape()


def refusals() -> Dict[str, str]:
    x = tf.ones([4])
    odd = hvd.rank() == 0

    def said(call: Any) -> str:
        try:
            call()
        except Exception as error:  # pylint: disable=broad-except  # AutoGraph has one of its own.
            return f"{type(error).__name__}: {error}"
        return "nothing"

    def adasum(it: Any, **options: Any) -> Any:
        return hvd.allreduce(it, op=hvd.Adasum, **options)

    unknown = tf.function(adasum, input_signature=[tf.TensorSpec([None])])
    sgd = keras.optimizers.SGD(0.1)
    found = {
        "int": said(lambda: adasum(tf.ones([3], tf.int32))),
        "shape unknown": said(lambda: unknown(x)),
        "scatter": said(lambda: hvd.reducescatter(x, op=hvd.Adasum)),
        "factor": said(lambda: adasum(x, prescale_factor=0.0)),
        "slices": said(lambda: adasum(tf.IndexedSlices(x, tf.range(4)))),
        "method": said(lambda: hvd.DistributedOptimizer(sgd, op=hvd.Adasum, method="local")),
        "of 1": said(
            lambda: hvd.DistributedOptimizer(
                tf.compat.v1.train.GradientDescentOptimizer(0.1), op=hvd.Adasum
            )
        ),
    }
    factor = {"postscale_factor": 2.0 if odd else 3.0}
    for word, call in (("eager", adasum), ("graph", tf.function(adasum))):
        longer = tf.ones([4 if odd else 5])
        found[f"shapes {word}"] = said(lambda: call(longer, name="s"))
        wider = tf.ones([4], tf.float32 if odd else tf.float64)
        found[f"dtypes {word}"] = said(lambda: call(wider, name="d"))
        found[f"factors {word}"] = said(lambda: call(x, name="f", **factor))
    variable = keras.Variable([1.0])
    mixed = hvd.DistributedOptimizer(
        keras.optimizers.SGD(0.1), op=hvd.Adasum if odd else hvd.Average, method="allreduce"
    )
    found["op"] = said(lambda: mixed.apply([tf.ones([1])], [variable]))
    if "Mismatch" not in found["op"]:
        found["op"] += " of " + str(type(mixed.trainer))
    numpy.testing.assert_allclose(adasum(x), x)  # All is well afterwards.
    return found


def optimizer_of(options: Any) -> Any:
    return hvd.DistributedOptimizer(
        keras.optimizers.SGD(0.02, momentum=0.9), op=hvd.Adasum, method="allreduce", **options
    )


def drawn(rank: int, step: int) -> List[Any]:
    source = numpy.random.default_rng([SEED, 7, rank, step + 1])
    common = numpy.random.default_rng([SEED, 8, step + 1])
    return [
        (source.normal(size=shape) + common.normal(size=shape)).astype("float32")
        for shape in ((3, 4), (5,))
    ]


def updates(in_function: bool, options: Dict[str, str], tol: float) -> None:
    """A step is Adasum of all ranks' updates, which the reference does one after the other."""
    if "compression" in options:
        options = {"compression": getattr(hvd.Compression, options["compression"])}
    optimizer = optimizer_of(options)
    begin = drawn(hvd.rank(), -1)  # The model of rank 0 is what all begin with.
    variables = [keras.Variable(it) for it in begin]
    everyone = [[keras.Variable(it) for it in drawn(0, -1)] for _ in range(hvd.size())]
    plain = [keras.optimizers.SGD(0.02, momentum=0.9) for _ in everyone]

    def step(*gradients: Any) -> None:
        optimizer.apply(list(gradients), variables)

    call = tf.function(step) if in_function else step
    for number in range(4):
        call(*map(tf.constant, drawn(hvd.rank(), number)))
        before = [[it.numpy() for it in one] for one in everyone]
        for rank, (one, opt) in enumerate(zip(everyone, plain)):
            opt.apply([tf.constant(it) for it in drawn(rank, number)], one)
        for i, mine in enumerate(variables):
            changes = [
                (one[i].numpy() - old[i]).astype("float64") for one, old in zip(everyone, before)
            ]
            expected = before[0][i] + whole(changes)
            numpy.testing.assert_allclose(mine.numpy(), expected, rtol=tol, atol=tol)
            for one in everyone:
                one[i].assign(mine.numpy())
    assert optimizer.version == 4
    optimizer.finish()
    rows = hvd.allgather(tf.reshape(variables[0].value, [1, -1]), name="rows").numpy()
    assert all(row.tobytes() == rows[0].tobytes() for row in rows)
    with covey.consensus(optimizer) as mean:
        assert mean.distance == 0
    assert covey.stats()["training"]["steps"] == 4
    optimizer.close()


def by_fit(folder: str) -> List[List[float]]:
    """Weights in the end: as it is, and from a checkpoint in the midst; saved as a model."""
    inputs = numpy.random.default_rng([SEED, hvd.rank()]).normal(size=(32, 3)).astype("float32")
    found = []
    for name in ("whole", "parts", "parts"):
        keras.utils.set_random_seed(5)
        model = keras.Sequential([keras.Input([3]), keras.layers.Dense(1)])
        model.compile(optimizer_of({}), "mse")
        is_second = len(found) == 2
        path = os.path.join(folder, name)
        if is_second:
            assert covey.load(path, model).steps == 4
        for epoch in range(int(is_second), 1 if len(found) == 1 else 2):
            rows = slice(16 * epoch, 16 * epoch + 16)
            given_ = inputs[rows]
            model.fit(given_, given_.sum(1), batch_size=4, shuffle=False, verbose=0)
        covey.save(path, model)
        found.append(numpy.concatenate([it.ravel() for it in model.get_weights()]).tolist())
        again = type(model.optimizer).from_config(model.optimizer.get_config())
        assert again.get_config()["op"] == int(hvd.Adasum)
        model.optimizer.close()
    return found


# ---- The tests ---------------------------------------------------------------------------------


class AdasumTest(unittest.TestCase):
    def test_of_tensors(self) -> None:
        for size in (3, *also(1, 2, 4, 5)):
            with self.subTest(size=size):
                pool(size).call(tensors)

    def test_of_updates(self) -> None:
        for in_function in (False, True):
            pool(3).call(updates, in_function, {}, 1e-5)
        pool(3).call(updates, True, {"compression": "fp16"}, 1e-2)

    def test_in_fit_and_from_a_checkpoint(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            for whole_, first, second in pool(2).call(by_fit, folder):
                self.assertEqual(whole_, second)
                self.assertNotEqual(whole_, first)

    def test_refusals(self) -> None:
        for found in pool(3).call(refusals):
            self.assertIn("floating-point numbers in shapes", found["int"])
            self.assertIn("not of int32", found["int"])
            self.assertIn("not of float32", found["shape unknown"])
            self.assertIn("and covey.tensorflow only", found["scatter"])
            self.assertIn("must not be 0", found["factor"])
            self.assertIn("goes by Average or Sum", found["slices"])
            self.assertIn("use method='allreduce'", found["method"])
            self.assertIn("an optimizer of TensorFlow 1", found["of 1"])
            for way in ("eager", "graph"):
                self.assertIn("FailedPrecondition", found[f"shapes {way}"])
                self.assertIn("rank 0 has [4], ranks 1, 2 have [5]", found[f"shapes {way}"])
                self.assertRegex(found[f"dtypes {way}"], "(?s)FailedPrecondition.*float32.*float64")
                self.assertIn("FailedPrecondition", found[f"factors {way}"])
            self.assertRegex(found["op"], "rank 0 has op=Adasum, rank 1 another op")


if __name__ == "__main__":
    unittest.main()
