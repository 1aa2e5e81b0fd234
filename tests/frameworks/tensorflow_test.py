"""Goal: covey.tensorflow's operations are right eagerly and in a tf.function, never make a thread
of TensorFlow wait, keep occurrences of one name in the program's order and everything else free,
and have gradients. Method: real processes; results are compared with sums written out."""

from __future__ import annotations

import os
import tempfile
import time
import unittest
from typing import Any, Callable, List

from ranks import SEED, SharedPool
from tensorflows import IS_RANK, set_up

import covey

if IS_RANK:
    import numpy
    import tensorflow as tf

    import covey.tensorflow as hvd

MANY = 50
LIMIT_S = 60.0
pool = SharedPool(__file__)


def setUpModule() -> None:
    set_up(pool)


# ---- Run on ranks -------------------------------------------------------------------------------


def ways() -> "List[Callable[[Any], Any]]":
    """Eagerly, and as part of a graph."""
    return [lambda function: function, tf.function]


def data(rank: int, shape: Any, dtype: Any, salt: int = 0) -> Any:
    """Small integers: sums and products are exact in every dtype."""
    values = numpy.random.default_rng([SEED, salt, rank]).integers(1, 4, shape)
    return tf.constant(values, dtype)


def equal(actual: Any, wanted: Any, what: Any) -> None:
    assert actual.dtype == wanted.dtype, (what, actual.dtype, wanted.dtype)
    assert actual.shape == wanted.shape, (what, actual.shape, wanted.shape)
    assert (actual.numpy() == wanted.numpy()).all(), (what, actual, wanted)


def reductions() -> None:
    size, rank = hvd.size(), hvd.rank()
    floats = (tf.float32, tf.float64, tf.float16, tf.bfloat16)
    for dtype in (*floats, tf.uint8, tf.int8, tf.int32, tf.int64):
        for shape in ((), (0,), (2, 3), (1000,)):
            all_ranks = [tf.cast(data(r, shape, dtype), tf.float64) for r in range(size)]
            stacked, mine = tf.stack(all_ranks), data(rank, shape, dtype)
            wanted = {
                hvd.Sum: tf.reduce_sum(stacked, 0),
                hvd.Min: tf.reduce_min(stacked, 0),
                hvd.Max: tf.reduce_max(stacked, 0),
                hvd.Product: tf.reduce_prod(stacked, 0),
            }
            for way in ways():
                run = way(lambda x: [hvd.allreduce(x, op=op, name=f"{op!r}") for op in wanted])
                for op, result in zip(wanted, run(mine)):
                    equal(result, tf.cast(wanted[op], dtype), (dtype, shape, op))
        if dtype in floats:
            mine = tf.fill([4], tf.cast(2.0 * size, dtype))
            equal(hvd.allreduce(mine), mine, "average")


def factors() -> None:
    size = hvd.size()
    x = tf.constant([1.0, 3.0], tf.float64)
    for way in ways():
        run = way(lambda t: hvd.allreduce(t, op=hvd.Sum, prescale_factor=0.1, postscale_factor=4.0))
        total = x * 0.1
        for _ in range(size - 1):
            total = total + x * 0.1
        equal(run(x), total * 4.0, "64-bit factors")


def moved() -> None:
    size, rank = hvd.size(), hvd.rank()
    for way in ways():
        for dtype in (tf.float32, tf.bool, tf.int64):
            rows = [tf.cast(data(r, (r, 2), tf.int32) - 1, dtype) for r in range(size)]
            equal(way(hvd.allgather)(rows[rank]), tf.concat(rows, 0), "gather")
            whole = tf.cast(data(7, (3, 2), tf.int32) - 1, dtype)
            mine = whole if rank == size - 1 else tf.zeros_like(whole)
            equal(way(lambda t: hvd.broadcast(t, size - 1))(mine), whole, "broadcast")
    pair = hvd.grouped_allgather([tf.fill([2], rank), tf.fill([1], 2.0 * rank)], name="pair")
    equal(pair[0], tf.repeat(tf.range(size), 2), "grouped")
    equal(pair[1], 2.0 * tf.range(float(size)), "grouped")


def grouped() -> None:
    size, rank = hvd.size(), hvd.rank()
    scale = float(sum(range(1, size + 1)))
    assert hvd.grouped_allreduce([]) == hvd.grouped_reducescatter([]) == []
    for way in ways():
        for name in (None, "mixed"):
            run = way(lambda a, b, c: hvd.grouped_allreduce([a, b, c], op=hvd.Sum, name=name))
            mine = [tf.ones([3]), tf.ones([2], tf.int32), tf.ones([], tf.float32)]
            for one, got in zip(mine, run(*[t * tf.cast(rank + 1, t.dtype) for t in mine])):
                equal(got, one * tf.cast(scale, one.dtype), "grouped")


def small_wire() -> None:
    for compression in (hvd.Compression.fp16, hvd.Compression.bf16):
        result = hvd.allreduce(tf.constant([1.0, 0.1]), op=hvd.Sum, compression=compression)
        assert result.dtype == tf.float32
        once = tf.cast(tf.cast(tf.constant(0.1), compression.wire_dtype), tf.float32)
        assert abs(float(result[1]) - hvd.size() * float(once)) < 0.01 * hvd.size()


def shapes_are_known() -> None:
    @tf.function(input_signature=[tf.TensorSpec([None, 4])])
    def run(x: Any) -> Any:
        a, b, c = hvd.allreduce(x), hvd.allgather(x), hvd.broadcast(x, 0)
        assert a.shape.as_list() == b.shape.as_list() == c.shape.as_list() == [None, 4]
        assert hvd.allreduce(tf.ones([2, 3])).shape.as_list() == [2, 3]
        assert hvd.allgather(tf.ones([2, 3])).shape.as_list() == [None, 3]
        return a

    run(tf.ones([2, 4]))


def in_a_group() -> None:
    rank, size = hvd.rank(), hvd.size()
    ends = hvd.ProcessSet([0, size - 1] if size > 1 else [0])
    if not ends.included():
        return
    total = float(sum(r + 1 for r in ends.ranks))
    for way in ways():
        x = tf.Variable([rank + 1.0])
        run = way(lambda: hvd.allreduce(x, op=hvd.Sum, name="ends", process_set=ends))
        equal(run(), tf.constant([total]), "group")
        with tf.GradientTape() as tape:
            y = hvd.allreduce(x, op=hvd.Sum, process_set=ends) * (rank + 1.0)
        equal(tape.gradient(y, x), tf.constant([total]), "gradient in a group")
        gathered = way(lambda: hvd.allgather(x, process_set=ends))()
        equal(gathered, tf.constant([r + 1.0 for r in ends.ranks]), "gather in a group")


def gradients() -> None:
    """Each rank weighs what it gets by rank + 1; the gradient is that of the sum of all
    losses, and of their mean where all ranks get copies of one tensor (broadcast, allgather)."""
    rank, size = hvd.rank(), hvd.size()
    weights = float(sum(range(1, size + 1)))
    x = tf.Variable([[1.0, 2.0]] * (rank + 1))
    for way in ways():
        for named in (None, "g"):

            def of(operation: Any) -> Any:
                def loss() -> Any:
                    with tf.GradientTape() as tape:
                        y = tf.reduce_sum(operation()) * (rank + 1.0)
                    return tape.gradient(y, x)

                return way(loss)()

            one = tf.ones([rank + 1, 2])
            first = lambda: x[:1]  # noqa: E731  # of one shape on all ranks
            got = of(lambda: hvd.allreduce(first(), op=hvd.Sum, prescale_factor=3.0, name=named))
            equal(got[:1], one[:1] * weights * 3.0, "sum")
            got = of(lambda: hvd.allreduce(first(), name=named) * size)
            assert numpy.allclose(got[:1], weights), (got, "average")
            got = of(lambda: hvd.broadcast(first(), size - 1, name=named))
            mean = weights / size
            assert numpy.allclose(got[:1], mean if rank == size - 1 else 0.0), (got, "broadcast")
            assert numpy.allclose(of(lambda: hvd.allgather(x, name=named)), mean), "gather"
            got = of(lambda: hvd.grouped_allreduce([first(), 2.0 * first()], op=hvd.Sum)[1])
            equal(got[:1], one[:1] * weights * 2.0, "grouped")
    try:
        with tf.GradientTape() as tape:
            y = hvd.allreduce(x[:1], op=hvd.Max)
        tape.gradient(y, x)
        raise AssertionError("a maximum has no gradient")
    except (NotImplementedError, LookupError):
        pass


def until(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.001)  # a poll: two processes, no common event
    return True


def many_in_flight(folder: str) -> int:
    """All are in flight on rank 0 before the others begin one, in another order. The results."""
    rank, size, path = hvd.rank(), hvd.size(), os.path.join(folder, "all in flight")

    def all_submitted() -> Any:
        if until(lambda: covey.stats()["in_flight"] >= MANY):
            open(path, "x", encoding="ascii").close()
        return numpy.float32(0)

    def others_may_begin() -> Any:
        return numpy.float32(0 if until(lambda: os.path.exists(path)) else numpy.nan)

    @tf.function
    def step(x: Any) -> Any:
        if rank == 0:
            watched, gate = tf.numpy_function(all_submitted, [], tf.float32), tf.constant(0.0)
        else:
            watched, gate = tf.constant(0.0), tf.numpy_function(others_may_begin, [], tf.float32)
        gate.set_shape([])
        results = {}
        for i in range(MANY) if rank == 0 else reversed(range(MANY)):
            with tf.control_dependencies([gate]):
                gate = tf.identity(gate)  # the next one's input comes after this one's
            results[i] = hvd.allreduce(x[: i + 1] + gate, op=hvd.Sum, name=f"many.{i}")
        return [results[i] for i in range(MANY)], watched

    x = tf.range(float(MANY)) + float(rank)
    results, _ = step(x)
    for i, result in enumerate(results):
        wanted = size * tf.range(i + 1.0) + float(sum(range(size)))
        equal(result, wanted, i)
    return len(results)


def one_name_in_order() -> None:
    rank, size = hvd.rank(), hvd.size()

    @tf.function
    def step(x: Any) -> Any:
        return [hvd.allreduce(x * (i + 1.0), op=hvd.Sum, name="again") for i in range(10)]

    @tf.function
    def loop(x: Any) -> Any:
        total = tf.zeros_like(x)
        for i in tf.range(20):  # independent of each other, but for the name
            total += hvd.allreduce(x * tf.cast(i, tf.float32), op=hvd.Max) * tf.cast(i, tf.float32)
        return total

    for i, got in enumerate(step(tf.constant([float(rank)]))):
        equal(got, tf.constant([(i + 1.0) * sum(range(size))]), i)
    equal(loop(tf.ones([2])), tf.ones([2]) * float(sum(i * i for i in range(20))), "loop")


def nothing_is_optimised_away() -> int:
    """The number of operations of three calls, in which one result is not used and one constant."""

    @tf.function
    def step(x: Any) -> Any:
        hvd.allreduce(x, name="unused")
        return hvd.allreduce(tf.constant([1.0, 2.0]), op=hvd.Sum)

    before = covey.stats()["operations"]
    for _ in range(3):
        equal(step(tf.ones([3])), tf.constant([1.0, 2.0]) * hvd.size(), "constant")
    return int(covey.stats()["operations"]) - before


def beside_torch() -> List[str]:
    """Both at once, over one runtime. The copies of libcovey.so in this process."""
    import torch

    import covey.torch as thvd

    size, rank = hvd.size(), hvd.rank()
    before = covey.stats()["operations"]

    @tf.function
    def step(x: Any) -> Any:
        return [hvd.allreduce(x + float(i), op=hvd.Sum, name=f"both.{i}") for i in range(20)]

    for _ in range(3):
        handles = [
            thvd.allreduce_async(torch.full((100,), rank + i), op=thvd.Sum, name=f"torch.{i}")
            for i in range(20)
        ]
        for i, result in enumerate(step(tf.fill([3], float(rank)))):
            equal(result, tf.fill([3], float(sum(range(size)) + i * size)), i)
        for i, handle in enumerate(handles):
            assert handle.wait().tolist() == [sum(range(size)) + i * size] * 100
    # A thread that waits for torch's drives TensorFlow's along.
    assert covey.stats()["operations"] - before == 3 * 40
    ranks = covey.allgather_object(rank)
    assert ranks == list(range(size)), ranks
    with open("/proc/self/maps", encoding="utf-8") as maps:
        return sorted({line.split()[-1] for line in maps if line.rstrip().endswith("libcovey.so")})


def from_covey() -> str:
    """The operations of `import covey`, and what it says of those that TensorFlow has not."""
    x = tf.constant([1.0 + hvd.rank()])
    total = sum(range(1, hvd.size() + 1))
    equal(covey.allreduce(x, op=covey.Sum, name="c"), tf.constant([1.0 * total]), "covey")
    equal(covey.allreduce(tf.Variable(x), op=covey.Sum), tf.constant([1.0 * total]), "variable")
    assert covey.allgather(x).shape == [hvd.size()]
    assert float(covey.broadcast(x, 0, name="c")[0]) == 1.0
    assert len(covey.grouped_allreduce([x, x], group=covey.world)) == 2
    try:
        covey.arena_empty(3, tf.float32)
        raise AssertionError("TensorFlow has no tensors in the arena")
    except covey.Unsupported:
        pass
    try:
        covey.allreduce_(x)
    except AttributeError as error:
        return str(error)
    return ""


# ---- The tests ----------------------------------------------------------------------------------


class Cases:
    """What holds at every size."""

    size = 0

    def call(self, function: Callable[..., Any], *args: Any) -> List[Any]:
        return pool(self.size).call(function, *args, timeout=120)

    def test_reductions_of_every_dtype(self) -> None:
        self.call(reductions)

    def test_factors_have_64_bits(self) -> None:
        self.call(factors)

    def test_broadcast_and_allgather(self) -> None:
        self.call(moved)

    def test_grouped_allreduce_of_mixed_dtypes(self) -> None:
        self.call(grouped)

    def test_compression(self) -> None:
        self.call(small_wire)

    def test_shapes_are_known_before_it_runs(self) -> None:
        self.call(shapes_are_known)

    def test_groups(self) -> None:
        self.call(in_a_group)

    def test_gradients(self) -> None:
        self.call(gradients)

    def test_occurrences_of_a_name_keep_the_order_of_the_program(self) -> None:
        self.call(one_name_in_order)


class OneRankTest(Cases, unittest.TestCase):
    size = 1


class SeveralRanks(Cases):
    """What needs a second one."""

    def test_many_are_in_flight_and_no_thread_waits(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            self.assertEqual(self.call(many_in_flight, folder), [MANY] * self.size)

    def test_nothing_is_optimised_away(self) -> None:
        self.assertEqual(self.call(nothing_is_optimised_away), [6] * self.size)


class TwoRanksTest(SeveralRanks, unittest.TestCase):
    size = 2

    def test_torch_in_the_same_process_shares_the_runtime(self) -> None:
        for libraries in self.call(beside_torch):
            self.assertEqual(len(libraries), 1, libraries)

    def test_import_covey_knows_its_tensors(self) -> None:
        for text in self.call(from_covey):
            self.assertIn("use allreduce", text)


class ThreeRanksTest(SeveralRanks, unittest.TestCase):
    size = 3


if __name__ == "__main__":
    unittest.main()
