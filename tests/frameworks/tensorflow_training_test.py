"""Goal: DistributedGradientTape and broadcast_variables train as one process with all of the data
would, eagerly and in a tf.function, with dense and sparse gradients.
Method: real processes; gradients are compared with those of all ranks' data, computed locally."""

from __future__ import annotations

import unittest
from typing import Any, List

from ranks import SEED, SharedPool
from tensorflows import IS_RANK, set_up

if IS_RANK:
    import numpy
    import tensorflow as tf

    import covey.tensorflow as hvd

pool = SharedPool(__file__)


def setUpModule() -> None:
    set_up(pool)


def batch(rank: int) -> Any:
    drawn = numpy.random.default_rng([SEED, rank])
    return tf.constant(drawn.normal(size=(8, 6)), tf.float32)


def close(actual: Any, wanted: Any, what: Any) -> None:
    assert numpy.allclose(actual, wanted, rtol=1e-4, atol=1e-6), (what, actual, wanted)


def dense_gradients() -> None:
    size, rank = hvd.size(), hvd.rank()
    drawn = numpy.random.default_rng(SEED)
    layers = [tf.Variable(drawn.normal(size=(6, 6)), dtype=tf.float32) for _ in range(4)]
    unused = tf.Variable([1.0])
    sources = {"layers": layers, "unused": unused}

    def loss_of(data: Any) -> Any:
        for layer in layers:
            data = tf.tanh(data @ layer)
        return tf.reduce_mean(data * data)

    with tf.GradientTape() as tape:
        total = tf.add_n([loss_of(batch(r)) for r in range(size)])
    sums = tape.gradient(total, layers)

    def reduced(**options: Any) -> Any:
        with hvd.DistributedGradientTape(tf.GradientTape(), **options) as distributed:
            loss = loss_of(batch(rank))
        return distributed.gradient(loss, sources)

    for options, factor in (
        ({}, 1 / size),
        ({"op": hvd.Sum}, 1.0),
        ({"gradient_predivide_factor": 2.0}, 1 / size),
        ({"num_groups": 3}, 1 / size),
        ({"groups": 9}, 1 / size),
    ):
        for run in (reduced, tf.function(reduced)):
            got = run(**options)
            assert got["unused"] is None
            for actual, wanted in zip(got["layers"], sums):
                close(actual, wanted * factor, options)
    wrapped = hvd.DistributedGradientTape(tf.GradientTape(persistent=True))
    with wrapped:
        wrapped.watch(unused)
        loss = 3.0 * unused
    assert float(wrapped.gradient(loss, unused)[0]) == 3.0
    close(wrapped.jacobian(loss, unused), [[3.0]], "the wrapped tape's")


def sparse_gradients() -> None:
    size, rank = hvd.size(), hvd.rank()
    table = tf.Variable(tf.zeros([5, 2]))
    wanted = numpy.zeros((5, 2), numpy.float32)
    for r in range(size):
        for row in (0, r, r):
            wanted[row] += (r + 1) / size

    def reduced(**options: Any) -> Any:
        with hvd.DistributedGradientTape(tf.GradientTape(), **options) as tape:
            loss = tf.reduce_sum(tf.gather(table, [0, rank, rank])) * (rank + 1.0)
        return tape.gradient(loss, table)

    for run in (reduced, tf.function(reduced)):
        rows = run()
        assert isinstance(rows, tf.IndexedSlices)
        close(tf.convert_to_tensor(rows), wanted, "rows")
        dense = run(sparse_as_dense=True)
        assert not isinstance(dense, tf.IndexedSlices)
        close(dense, wanted, "dense")


def slices_in_a_group() -> None:
    """Are gathered, between dense tensors that are added; what cannot be gathered is named."""
    size, rank = hvd.size(), hvd.rank()
    slices = tf.IndexedSlices(tf.fill([1, 2], rank + 1.0), tf.constant([rank]), tf.constant([9, 2]))
    first, rows, last = hvd.grouped_allreduce(
        [tf.ones(3), slices, tf.constant(rank)], op=hvd.Sum, name="mixed"
    )
    close(first, numpy.full(3, float(size)), "first")
    assert int(last) == sum(range(size))
    assert rows.indices.numpy().tolist() == list(range(size))
    close(rows.values, [[r + 1.0] * 2 for r in range(size)], "rows")
    try:
        hvd.grouped_allreduce([slices], op=hvd.Max, name="mixed")
    except NotImplementedError as error:
        assert "'mixed.0'" in str(error), error
    else:
        raise AssertionError("taken")


def gradients_of_a_graph() -> None:
    """A session that asks for the gradient alone reduces it on every rank, the root's or not."""
    for root in range(hvd.size()):
        with tf.Graph().as_default():
            given = tf.ones([5])
            gradient = tf.gradients(hvd.broadcast(given, root), given)[0]
            with tf.compat.v1.Session() as session:
                close(session.run(gradient), [float(hvd.rank() == root)] * 5, f"root {root}")


def keras_training() -> List[float]:
    """A model that differs at first is the same on all ranks in the end; its weights."""
    rank = hvd.rank()
    tf.keras.utils.set_random_seed(rank)
    model = tf.keras.Sequential(
        [tf.keras.Input([6]), tf.keras.layers.Dense(16, "tanh"), tf.keras.layers.Dense(1)]
    )
    optimizer = tf.keras.optimizers.Adam(0.01)
    optimizer.build(model.trainable_variables)
    hvd.broadcast_variables(model.variables, root_rank=hvd.size() - 1)
    hvd.broadcast_variables(optimizer.variables, root_rank=0)
    data = batch(rank)
    wanted = tf.reduce_sum(data, 1, keepdims=True)

    @tf.function
    def step() -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(data) - wanted))
        sources = model.trainable_variables
        gradients = hvd.DistributedGradientTape(tape).gradient(loss, sources)
        optimizer.apply_gradients(zip(gradients, sources))
        return loss

    losses = [float(step()) for _ in range(20)]
    assert losses[-1] < losses[0], losses
    return [float(x) for weight in model.get_weights() for x in weight.flatten()]


def wrong_options() -> List[str]:
    texts = []
    for options in (
        {"op": hvd.Max},
        {"groups": [["weights"]]},
        {"num_groups": -1},
        {"gradient_predivide_factor": 0.0},
        {"gradient_predivide_factor": 2.0, "op": hvd.Sum},
    ):
        try:
            hvd.DistributedGradientTape(tf.GradientTape(), **options)
            texts.append("")
        except ValueError as error:
            texts.append(str(error))
    return texts


def cut() -> Any:
    from covey.tensorflow.reduction import BUCKET_BYTES, FIRST_BUCKET_BYTES, buckets

    half = FIRST_BUCKET_BYTES // 2
    return [
        buckets([]),
        buckets([BUCKET_BYTES * 2, half, half, half]),
        buckets([1] * 5, 2),
        buckets([1] * 2, 5),
    ]


class TrainingTest(unittest.TestCase):
    def test_dense_gradients(self) -> None:
        for size in (3, 2):
            pool(size).call(dense_gradients, timeout=120)

    def test_sparse_gradients(self) -> None:
        pool(2).call(sparse_gradients, timeout=120)

    def test_gradients_of_a_graph(self) -> None:
        pool(2).call(gradients_of_a_graph, timeout=120)

    def test_slices_in_a_group(self) -> None:
        pool(2).call(slices_in_a_group, timeout=120)

    def test_a_keras_model_stays_equal(self) -> None:
        first, second = pool(2).call(keras_training, timeout=120)
        self.assertEqual(first, second)

    def test_wrong_options_are_refused(self) -> None:
        for text in pool(2).call(wrong_options)[0]:
            self.assertTrue(text)

    def test_buckets_begin_with_what_backward_computes_first(self) -> None:
        self.assertEqual(
            pool(2).call(cut)[0],
            [[], [[3, 2], [1, 0]], [[4, 3], [2, 1, 0]], [[1], [0]]],
        )


if __name__ == "__main__":
    unittest.main()
