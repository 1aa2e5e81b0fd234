"""Goal: layers that belong to one rank keep their gradients, SyncBatchNormalization normalizes as
one process with all of the data would, and Horovod's small functions do what their names say.
Method: real processes; results are compared with those of all ranks' data, computed locally."""

from __future__ import annotations

import unittest
from typing import Any, List

from ranks import SEED, SharedPool, on_one_host
from tensorflows import IS_RANK, set_up

if IS_RANK:
    import keras
    import numpy
    import tensorflow as tf

    import covey.tensorflow as hvd

pool = SharedPool(__file__)


def setUpModule() -> None:
    set_up(pool)


def close(actual: Any, wanted: Any, what: Any, digits: float = 1e-4) -> None:
    assert numpy.shape(actual) == numpy.shape(wanted), (what, actual, wanted)
    assert numpy.allclose(actual, wanted, rtol=digits, atol=digits), (what, actual, wanted)


# ---- SyncBatchNormalization ---------------------------------------------------------------------


def batches(shape: Any, first_rows: int) -> "List[Any]":
    """One for each rank, of different sizes and scales."""
    drawn = numpy.random.default_rng([SEED, *shape])
    return [
        drawn.normal(3.0 * r, 1.0 + r, (first_rows + 2 * r, *shape)).astype("float32")
        for r in range(hvd.size())
    ]


def pass_of(layer: Any, data: Any, mask: Any = None) -> Any:
    """Output in training, gradients of data, scale and offset of a loss that weighs the rows."""
    with tf.GradientTape() as tape:
        tape.watch(data)
        output = layer(data, training=True, mask=mask)
        loss = tf.reduce_sum(tf.sin(tf.cast(output, tf.float32)) * tf.cast(data, tf.float32))
    return output, tape.gradient(loss, [data, *layer.trainable_variables])


def normalized() -> None:
    rank = hvd.rank()
    for shape, axis, first_rows, masked in (
        ((3,), -1, 4, False),
        ((2, 3), 1, 0, False),
        ((4, 5, 3), -1, 1, False),
        ((4, 3), -1, 2, True),
    ):
        data = batches(shape, first_rows)
        masks = [numpy.arange(4)[None] < 1 + numpy.arange(len(x))[:, None] % 4 for x in data]
        begin = sum(len(x) for x in data[:rank])
        mine = slice(begin, begin + len(data[rank]))
        for way in (lambda function: function, tf.function):
            alone = keras.layers.BatchNormalization(axis=axis, momentum=0.5)
            layer = hvd.SyncBatchNormalization(axis=axis, momentum=0.5)
            for one in (alone, layer):
                one.build((None, *shape))
            whole = tf.constant(numpy.concatenate(data))
            whole_mask = tf.constant(numpy.concatenate(masks)) if masked else None
            wanted, wanted_gradients = pass_of(alone, whole, whole_mask)
            mask = tf.constant(masks[rank]) if masked else None
            got, gradients = way(lambda x: pass_of(layer, x, mask))(tf.constant(data[rank]))
            what = (shape, axis, way)
            close(got, wanted[mine], what)
            close(gradients[0], wanted_gradients[0][mine], what, 2e-3)
            for own, total in zip(gradients[1:], wanted_gradients[1:]):
                close(hvd.allreduce(own, op=hvd.Sum), total, what, 2e-3)
            for own, other in zip(layer.variables, alone.variables):
                close(own, other, (what, own.path))


def layer_of_keras() -> None:
    """Saved and loaded, of float16, in inference, and with wrong arguments."""
    rank, size = hvd.rank(), hvd.size()
    layer = hvd.SyncBatchNormalization(name="synced", epsilon=0.25, renorm=False)
    again = keras.layers.deserialize(keras.layers.serialize(layer))
    assert isinstance(again, hvd.SyncBatchNormalization)
    assert (again.name, again.epsilon) == ("synced", 0.25)
    half = hvd.SyncBatchNormalization(dtype="float16")(
        tf.fill([2, 1], tf.cast(rank, tf.float16)), training=True
    )
    spread = numpy.arange(size) - (size - 1) / 2
    wanted = spread[rank] / numpy.sqrt(numpy.mean(spread**2) + 1e-3)
    assert half.dtype == tf.float16
    close(half, [[wanted]] * 2, "float16", 1e-2)
    if rank == 0:  # alone: inference asks no other rank
        close(again(tf.ones([2, 3])), numpy.full((2, 3), 1.25**-0.5), "inference")
    model = keras.Sequential([keras.Input([3]), keras.layers.Dense(4), layer])
    model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.01)), "mse")
    model.fit(numpy.full((8, 3), 1.0 + rank), numpy.ones((8, 4)), batch_size=4, verbose=0)
    every = hvd.allgather_object([weight.tolist() for weight in layer.get_weights()])
    assert all(one == every[0] for one in every), every
    for fused in (True, None):
        try:
            hvd.SyncBatchNormalization(fused=fused)
            raise AssertionError("taken")
        except ValueError:
            pass


# ---- PartialDistributedGradientTape -------------------------------------------------------------


def partial_gradients() -> None:
    rank, size = hvd.rank(), hvd.size()
    shared, own = keras.layers.Dense(2, name="shared"), keras.layers.Dense(2, name="own")
    table = tf.Variable(tf.zeros([4, 2]))
    for layer in (shared, own):
        layer.build((None, 2))
    sources = [*own.trainable_variables, *shared.trainable_variables, table]
    data = tf.ones([3, 2])

    def reduced(**options: Any) -> Any:
        with tf.GradientTape() as tape:
            total = shared(data) + own(data) + tf.gather(table, [rank])
            loss = tf.reduce_sum(total) * (rank + 1.0)
        made = hvd.PartialDistributedGradientTape(tape, **options)
        made.register_local_source(table)
        return made.gradient(loss, sources)

    mean = 3.0 * sum(range(1, size + 1)) / size
    for way in (lambda function: function, tf.function):
        for local in (own, [own]):
            for scaled in (True, False):
                options = {"local_layers": local, "scale_local_gradients": scaled}
                got = way(lambda: reduced(**options))()
                mine = 3.0 * (rank + 1) / (size if scaled else 1)
                for gradient, wanted in zip(got, (mine, mine, mean, mean)):
                    close(gradient, numpy.full(gradient.shape, wanted), options)
                assert isinstance(got[4], tf.IndexedSlices)
                close(got[4].values, [[mine, mine]], "rows of this rank alone")
        for gradient in way(reduced)()[:4]:
            close(gradient, numpy.full(gradient.shape, mean), "no local layers")
    try:
        hvd.PartialDistributedGradientTape(tf.GradientTape(), local_layers=[table])
        raise AssertionError("a variable is no layer")
    except ValueError as error:
        assert "Keras layers" in str(error)


# ---- Small functions ----------------------------------------------------------------------------


def places() -> None:
    rank, size = hvd.rank(), hvd.size()
    last = hvd.add_process_set([size - 1])

    def run() -> Any:
        return [
            hvd.size_op(),
            hvd.rank_op(),
            hvd.local_size_op(),
            hvd.local_rank_op(),
            hvd.size_op(last.process_set_id, name="named"),
            hvd.process_set_included_op(last.process_set_id),
            hvd.process_set_included_op(),
        ]

    for way in (lambda function: function, tf.function):
        numbers = way(run)()
        assert all(number.dtype == tf.int32 for number in numbers)
        wanted = [size, rank, size, rank, 1, int(rank == size - 1), 1]
        assert [int(number) for number in numbers] == wanted, numbers
    try:
        hvd.size_op(12345)
        raise AssertionError("taken")
    except tf.errors.InvalidArgumentError as error:
        assert "process set" in str(error)


def overwritten() -> None:
    rank, size = hvd.rank(), hvd.size()
    made = [tf.Variable([1.0 * rank]), tf.Variable(rank), tf.Variable([[2.0 * rank]])]
    returned = hvd.broadcast_(made, size - 1, name="three")
    assert all(one is other for one, other in zip(returned, made))
    assert [float(tf.squeeze(one)) for one in made] == [size - 1, size - 1, 2 * (size - 1)]

    @tf.function
    def back() -> Any:
        return hvd.broadcast_(made[:1], 0)[0] + 1.0

    made[0].assign([5.0 + rank])
    close(back(), [6.0], "in a graph")
    close(made[0], [5.0], "in a graph")
    with tf.Graph().as_default():
        variable = tf.compat.v1.get_variable("v", initializer=tf.fill([2], 1.0 * rank))
        overwrite = hvd.broadcast_global_variables(size - 1)
        with tf.compat.v1.Session() as session:
            session.run(tf.compat.v1.global_variables_initializer())
            session.run(overwrite)
            close(session.run(variable), [size - 1.0] * 2, "a graph of TensorFlow 1")
    try:
        hvd.broadcast_global_variables(0)
        raise AssertionError("there are none")
    except RuntimeError as error:
        assert "broadcast_variables" in str(error)


def moved_objects() -> None:
    rank, size = hvd.rank(), hvd.size()
    from_last = hvd.broadcast_object_fn(size - 1, name="of last")
    assert [from_last({"rank": rank + turn}) for turn in range(2)] == [
        {"rank": size - 1 + turn} for turn in range(2)
    ]
    assert hvd.broadcast_object(rank, 0, None, "session comes third") == 0
    assert hvd.allgather_object([rank], None, "so it does here") == [[r] for r in range(size)]


class LayersTest(unittest.TestCase):
    def test_normalization(self) -> None:
        for size in (2, 3):
            pool(size).call(normalized, timeout=180)

    def test_normalization_is_a_layer_of_keras(self) -> None:
        pool(2).call(layer_of_keras, timeout=180)

    def test_partial_gradients(self) -> None:
        pool(2).call(partial_gradients, timeout=180)

    @on_one_host("between hosts local_rank() is not rank()")
    def test_where_this_process_is(self) -> None:
        pool(2).call(places)

    def test_variables_are_overwritten(self) -> None:
        pool(2).call(overwritten)

    def test_objects(self) -> None:
        pool(2).call(moved_objects)


if __name__ == "__main__":
    unittest.main()
