"""Goal: reducescatter, alltoall and gather of covey.tensorflow are right in every dtype, eagerly
and in a tf.function, have gradients, and tell all ranks what differs.
Method: real processes; results are compared with those of all ranks' data, computed locally."""

from __future__ import annotations

import unittest
from typing import Any, Callable, List, Tuple

from ranks import SEED, SharedPool
from tensorflows import IS_RANK, set_up

import covey

if IS_RANK:
    import numpy
    import tensorflow as tf

    import covey.tensorflow as hvd

    FLOATS = (tf.float32, tf.float64, tf.float16, tf.bfloat16)
    SIGNED = (tf.int8, tf.int16, tf.int32, tf.int64)
    NUMBERS = (*FLOATS, *SIGNED, tf.uint8, tf.uint16, tf.uint32, tf.uint64)

pool = SharedPool(__file__)


def setUpModule() -> None:
    set_up(pool)


# ---- Run on ranks -------------------------------------------------------------------------------


def ways() -> "List[Callable[[Any], Any]]":
    """Eagerly, and as part of a graph."""
    return [lambda function: function, tf.function]


def data(rank: int, shape: Any, salt: int = 0) -> Any:
    """Small integers: sums and products are exact in every dtype."""
    return numpy.random.default_rng([SEED, salt, rank]).integers(1, 4, shape)


def equal(actual: Any, wanted: Any, what: Any) -> None:
    got = tf.cast(actual, tf.float64).numpy()
    assert got.shape == numpy.shape(wanted), (what, got.shape, numpy.shape(wanted))
    assert (got == numpy.asarray(wanted, numpy.float64)).all(), (what, got, wanted)


def part(whole: Any, rank: int, size: int) -> Any:
    """The rows of `rank`, written out: one more for the first ones."""
    begin = 0
    for r in range(size):
        rows = len(whole) // size + (r < len(whole) % size)
        if r == rank:
            return whole[begin : begin + rows]
        begin += rows
    raise AssertionError(rank)


def in_place() -> None:
    """A result may take the memory of an input that nothing else needs, and no other's."""

    @tf.function
    def step(x: Any) -> List[Any]:
        alone, needed, root = x + 1.0, x + 2.0, x + 3.0
        return [
            hvd.allreduce(alone, op=hvd.Sum, name="alone"),
            hvd.allreduce(needed, op=hvd.Sum, name="needed"),
            hvd.allreduce(x, op=hvd.Sum, name="given"),
            *hvd.grouped_allreduce([needed, x * 2.0], op=hvd.Sum, name="group"),
            hvd.broadcast(root, 0, name="root"),
            needed,
            root,
        ]

    size, rank = hvd.size(), hvd.rank()
    ranks = numpy.stack([data(r, (1000,)) for r in range(size)])
    total, mine = ranks.sum(0), ranks[rank]
    x = tf.constant(mine, tf.float32)
    for _ in range(3):
        wanted = [total + size, total + 2 * size, total, total + 2 * size, 2 * total,
                  ranks[0] + 3, mine + 2, mine + 3]
        for number, (got, one) in enumerate(zip(step(x), wanted)):
            equal(got, one, number)
        equal(x, mine, "what was given")


def reduced_parts() -> None:
    size, rank = hvd.size(), hvd.rank()
    for dtype in NUMBERS:
        for shape in ((7, 3), (size,), (1, 2), (0, 2), (1000,)):
            ranks = numpy.stack([data(r, shape) for r in range(size)])
            wanted = {
                hvd.Sum: ranks.sum(0),
                hvd.Min: ranks.min(0),
                hvd.Max: ranks.max(0),
                hvd.Product: ranks.prod(0),
            }
            for way in ways():
                run = way(
                    lambda x: [hvd.reducescatter(x, op=op, name=f"{op!r}") for op in wanted]
                )
                for op, got in zip(wanted, run(tf.constant(ranks[rank], dtype))):
                    assert got.dtype == dtype
                    equal(got, part(wanted[op], rank, size), (dtype, shape, op))
    x = tf.fill([size, 2], 2.0 * rank)
    equal(hvd.reducescatter(x), [[float(size - 1)] * 2], "average")
    equal(
        hvd.reducescatter(x, op=hvd.Sum, prescale_factor=0.5, postscale_factor=4.0),
        [[2.0 * size * (size - 1)] * 2],
        "factors",
    )
    half = hvd.reducescatter(x, op=hvd.Sum, compression=hvd.Compression.bf16)
    assert half.dtype == tf.float32
    equal(half, [[float(size * (size - 1))] * 2], "compression")


def grouped_parts() -> None:
    size, rank = hvd.size(), hvd.rank()
    total = sum(range(1, size + 1))
    for way in ways():
        for name in (None, "mixed"):
            run = way(lambda x: hvd.grouped_reducescatter(x, op=hvd.Sum, name=name))
            ones = [numpy.ones([5, 2]), numpy.ones([2]), numpy.ones([size])]
            dtypes = (tf.float32, tf.int32, tf.float32)
            mine = [tf.constant(one * (rank + 1), it) for one, it in zip(ones, dtypes)]
            for one, got in zip(ones, run(mine)):
                equal(got, part(one * total, rank, size), "grouped")
    rows = [numpy.full((r + 1, 2), r) for r in range(size)]
    for way in ways():
        run = way(lambda x: hvd.grouped_allgather([x, 2 * x[:1]], name="two"))
        all_rows, first = run(tf.constant(rows[rank], tf.int32))
        equal(all_rows, numpy.concatenate(rows), "grouped allgather")
        equal(first, 2 * numpy.concatenate([one[:1] for one in rows]), "grouped allgather")


def split(rank: int, size: int) -> List[int]:
    """Uneven, with zeros; rank 0 sends nothing to itself."""
    return [(rank + 2 * to) % 4 if rank + to else 0 for to in range(size)]


def exchanged() -> None:
    size, rank = hvd.size(), hvd.rank()
    for dtype in (*NUMBERS, tf.bool):
        sent = [data(r, (sum(split(r, size)), 2)) for r in range(size)]
        sent = [rows % 2 for rows in sent] if dtype == tf.bool else sent
        begins = [sum(split(r, size)[:rank]) for r in range(size)]
        counts = [split(r, size)[rank] for r in range(size)]
        wanted = numpy.concatenate([s[b : b + n] for s, b, n in zip(sent, begins, counts)])
        for way in ways():
            run = way(lambda x, splits: hvd.alltoall(x, splits, name="uneven"))
            splits = tf.constant(split(rank, size))
            got, received = run(tf.cast(sent[rank], dtype), splits)
            assert got.dtype == dtype
            assert received.dtype == tf.int32
            equal(got, wanted, (dtype, "alltoall"))
            equal(received, counts, "received")
    for way in ways():
        whole = tf.repeat(tf.range(size) + 10 * rank, 2)
        equal(
            way(hvd.alltoall)(whole),
            [rank + 10 * r for r in range(size) for _ in range(2)],
            "equal parts",
        )
        listed, _ = way(lambda x: hvd.alltoall(x, [1] * size))(tf.range(size + 3))
        equal(listed, [rank] * size, "more rows than splits")


def collected() -> None:
    size, rank = hvd.size(), hvd.rank()
    for root in (0, size - 1):
        for dtype in (tf.float32, tf.int16, tf.bool):
            rows = [data(r, (r, 2)) % 2 for r in range(size)]
            wanted = numpy.concatenate(rows) if rank == root else numpy.zeros((0, 2))
            for way in ways():
                run = way(lambda x: hvd.gather(x, root, name="to one"))
                equal(run(tf.cast(rows[rank], dtype)), wanted, (root, dtype))


def shapes_are_known() -> None:
    @tf.function(input_signature=[tf.TensorSpec([None, 4])])
    def run(x: Any) -> Any:
        for result in (hvd.reducescatter(x), hvd.alltoall(x), hvd.gather(x, 0)):
            assert result.shape.as_list() == [None, 4], result
        assert hvd.alltoall(x, [0] * hvd.size())[1].shape.rank == 1
        return hvd.reducescatter(tf.ones([2, 3]))

    @tf.function(input_signature=[tf.TensorSpec(None)])
    def unknown(x: Any) -> Any:
        return hvd.reducescatter(x, op=hvd.Sum), hvd.alltoall(x)

    assert run(tf.ones([12, 4])).shape.as_list()[1] == 3
    summed, moved = unknown(tf.ones([6, 2]))
    equal(summed, [[float(hvd.size())] * 2] * (6 // hvd.size()), "unknown shape")
    equal(moved, [[1.0] * 2] * 6, "unknown shape")


def in_a_group() -> None:
    rank, size = hvd.rank(), hvd.size()
    ends = hvd.ProcessSet([0, size - 1])
    if not ends.included():
        return
    place = ends.ranks.index(rank)
    total = sum(r + 1.0 for r in ends.ranks)
    for way in ways():
        x = tf.Variable([rank + 1.0] * 3)
        got = way(lambda: hvd.reducescatter(x, op=hvd.Sum, process_set=ends))()
        equal(got, [total] * (2 - place), "part in a group")
        got, _ = way(lambda: hvd.alltoall(x, [2, 1], process_set=ends))()
        equal(got, [r + 1.0 for r in ends.ranks for _ in range(2 - place)], "rows in a group")
        got = way(lambda: hvd.gather(x[:1], size - 1, process_set=ends))()
        equal(got, [r + 1.0 for r in ends.ranks] if place else [], "gathered in a group")


def gradients() -> None:
    """Each rank weighs what it gets by rank + 1."""
    rank, size = hvd.rank(), hvd.size()
    owners = numpy.repeat(numpy.arange(size), [len(part(range(5), r, size)) for r in range(size)])
    x = tf.Variable(tf.ones([5, 2]))
    for way in ways():
        for name in (None, "g"):

            def of(operation: Any) -> Any:
                def loss() -> Any:
                    with tf.GradientTape() as tape:
                        y = tf.reduce_sum(operation()) * (rank + 1.0)
                    return tape.gradient(y, x)

                return way(loss)()

            held = numpy.repeat(owners[:, None] + 1.0, 2, 1)
            equal(of(lambda: hvd.reducescatter(x, name=name)), held, "average")
            got = of(lambda: hvd.reducescatter(x, op=hvd.Sum, prescale_factor=3.0, name=name))
            equal(got, held * 3.0 * size, "sum")
            got = of(lambda: hvd.grouped_reducescatter([x, 2.0 * x], name=name)[1])
            equal(got, held * 2.0, "grouped")
            splits = [1] * size
            to = numpy.zeros((5, 2))
            to[:size] = numpy.arange(1.0, size + 1)[:, None]
            got = of(lambda: hvd.alltoall(x, splits, name=name)[0])
            equal(got, to, "alltoall; rows that stay have none")
            got = of(lambda: hvd.alltoall(x[: 1 + rank], [0] * (size - 1) + [1 + rank], name)[0])
            assert set(got[: 1 + rank].numpy().flatten()) == {float(size)}, got
            got = of(lambda: hvd.gather(x, size - 1, name=name))
            equal(got, numpy.full((5, 2), float(size)), "gather")
    for operation in (hvd.reducescatter, hvd.grouped_reducescatter):
        with tf.GradientTape() as tape:
            y = operation([x[:, 0]] if operation is hvd.grouped_reducescatter else x, op=hvd.Max)
        try:
            tape.gradient(y, x)
        except (NotImplementedError, LookupError):
            continue
        raise AssertionError("a maximum has no gradient")


def errors(in_graph: bool) -> List[Tuple[str, str]]:
    """The errors of all ranks when one rank differs; the same names work afterwards."""
    odd, size = hvd.rank() == 1, hvd.size()
    calls = (
        lambda: hvd.reducescatter(tf.ones([3, 2 + odd]), name="x"),
        lambda: hvd.reducescatter(tf.ones([3]), op=hvd.Sum if odd else hvd.Max, name="x"),
        lambda: hvd.alltoall(tf.ones([size, 2 + odd]), name="x"),
        lambda: hvd.alltoall(tf.ones([size], tf.int32 if odd else tf.float32), name="x"),
        lambda: hvd.gather(tf.ones([3, 2]), int(odd), name="x"),
    )
    seen = []
    for call in calls:
        try:
            (tf.function(call) if in_graph else call)()
            seen.append(("", ""))
        except tf.errors.OpError as error:
            seen.append((type(error).__name__, str(error)))
        x = tf.ones([size])
        assert hvd.reducescatter(x, op=hvd.Sum, name="x").numpy().tolist() == [size]
        assert hvd.alltoall(x, name="x").shape == [size]
        assert hvd.gather(x, 0, name="x").shape == [0 if hvd.rank() else size * size]
    return seen


def refusals() -> List[str]:
    """Calls that are wrong by themselves; nothing is submitted."""
    size, before = hvd.size(), covey.stats()["operations"]
    texts = []
    for call in (
        lambda: hvd.reducescatter(tf.constant(1.0)),
        lambda: hvd.reducescatter(tf.ones([3]), op=hvd.Adasum),
        lambda: hvd.reducescatter(tf.ones([3]), prescale_factor=0),
        lambda: hvd.alltoall(tf.constant(1.0)),
        lambda: hvd.alltoall(tf.ones([size]), [1] * (size + 1)),
        lambda: hvd.alltoall(tf.ones([size]), [2] * size),
        lambda: hvd.alltoall(tf.ones([size]), [1.5] * size),
        lambda: hvd.alltoall(tf.ones([size + 1])),
        lambda: hvd.gather(tf.ones([size]), size),
    ):
        try:
            call()
            texts.append("")
        except (ValueError, tf.errors.InvalidArgumentError) as error:
            texts.append(str(error))
    assert covey.stats()["operations"] == before
    return texts


def unnamed_in_one_order() -> None:
    """Eagerly all kinds are one stream; in a graph each has its place."""
    size = hvd.size()

    def run(x: Any) -> Any:
        a = hvd.reducescatter(x, op=hvd.Sum)
        b = hvd.alltoall(x)
        c = hvd.gather(x, 0)
        return a, b, hvd.reducescatter(2.0 * x, op=hvd.Sum), c

    for way in ways():
        for _ in range(3):
            a, b, twice, _ = way(run)(tf.ones([size]))
            equal(a, [size], "first")
            equal(b, [1.0] * size, "second")
            equal(twice, [2 * size], "third")


def from_covey() -> None:
    size = hvd.size()
    x = tf.ones([size])
    equal(covey.reducescatter(x, op=covey.Sum, name="c"), [size], "covey.reducescatter")
    equal(covey.grouped_reducescatter([x, x], op=covey.Sum)[1], [size], "grouped")
    equal(covey.alltoall(x, [1] * size)[1], [1] * size, "covey.alltoall")
    assert covey.gather(x, 0).shape == [0 if hvd.rank() else size * size]


# ---- The tests ----------------------------------------------------------------------------------


class Cases:
    """The cases of every size."""

    size = 0

    def call(self, function: Callable[..., Any], *args: Any) -> List[Any]:
        return pool(self.size).call(function, *args, timeout=180)

    def test_a_result_in_the_memory_of_an_input(self) -> None:
        self.call(in_place)

    def test_reducescatter_of_every_dtype(self) -> None:
        self.call(reduced_parts)

    def test_grouped(self) -> None:
        self.call(grouped_parts)

    def test_alltoall(self) -> None:
        self.call(exchanged)

    def test_gather(self) -> None:
        self.call(collected)

    def test_shapes_are_known_before_it_runs(self) -> None:
        self.call(shapes_are_known)

    def test_groups(self) -> None:
        self.call(in_a_group)

    def test_gradients(self) -> None:
        self.call(gradients)

    def test_unnamed_operations_keep_one_order(self) -> None:
        self.call(unnamed_in_one_order)

    def test_all_ranks_are_told_what_differs(self) -> None:
        words = (("2]", "3]"), ("sum", "max"), ("2]", "3]"), ("int32", "float32"), ("0", "1"))
        for in_graph in (False, True):
            for seen in self.call(errors, in_graph):
                for (kind, text), pair in zip(seen, words):
                    self.assertEqual(kind, "FailedPreconditionError", text)
                    for word in (".x", "rank 1", *pair):
                        self.assertIn(word, text)

    def test_wrong_calls_are_refused(self) -> None:
        for text in self.call(refusals)[0]:
            self.assertTrue(text)

    def test_import_covey_has_them(self) -> None:
        self.call(from_covey)


class TwoRanksTest(Cases, unittest.TestCase):
    size = 2


class ThreeRanksTest(Cases, unittest.TestCase):
    size = 3


if __name__ == "__main__":
    unittest.main()
