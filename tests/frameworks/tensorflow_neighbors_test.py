"""Goal: neighbor_allreduce and pair_average of covey.tensorflow are the weighted means that
weights, topologies and peers say, eagerly and in a tf.function that is traced once for all of them.
Method: real processes; numbers computed locally, and NumPy's results of the same calls."""

from __future__ import annotations

import unittest
from typing import Any, Callable, List

from ranks import SEED, SharedPool
from tensorflows import IS_RANK, set_up

import covey

if IS_RANK:
    import numpy
    import tensorflow as tf

    import covey.numpy
    import covey.tensorflow as hvd

pool = SharedPool(__file__)


def setUpModule() -> None:
    set_up(pool)


# ---- Run on ranks -------------------------------------------------------------------------------


def ways() -> "List[Callable[[Any], Any]]":
    """Eagerly, and as part of a graph."""
    return [lambda function: function, tf.function]


def drawn(rank: int, shape: Any = (3, 7)) -> Any:
    return numpy.random.default_rng([SEED, rank]).normal(size=shape)


def equal(actual: Any, wanted: Any, what: Any) -> None:
    assert actual.shape == wanted.shape, (what, actual.shape)
    assert (actual.numpy() == wanted).all(), (what, actual, wanted)


def by_topologies() -> None:
    rank, size = hvd.rank(), hvd.size()
    names = ["ring", "exponential", "one_peer", "full", "matching"]
    for dtype in (tf.float32, tf.float64, tf.float16, tf.bfloat16):
        mine = tf.constant(drawn(rank), dtype)
        for name in names + ["bipartite"] * (size % 2 == 0):
            for turn in (0, 1, 2):
                wanted = covey.numpy.neighbor_allreduce(mine.numpy(), topology=name, round=turn)
                for way in ways():
                    run = way(
                        lambda x: hvd.neighbor_allreduce(x, topology=name, round=turn, name="t")
                    )
                    got = run(mine)
                    assert got.dtype == dtype
                    equal(got, wanted, (name, turn, dtype))


def by_weights() -> None:
    rank, size = hvd.rank(), hvd.size()
    before, after = (rank - 1) % size, (rank + 1) % size
    mine, other = (numpy.full([5], float(r), "float32") for r in (rank, before))
    for way in ways():
        run = way(lambda x: hvd.neighbor_allreduce(x, 0.75, {before: 0.25}, [after], name="w"))
        equal(run(tf.constant(mine)), 0.75 * mine + 0.25 * other, "weights")
        rest = way(lambda x: hvd.neighbor_allreduce(x, src_weights={before: 0.25}))
        equal(rest(tf.Variable(mine)), 0.75 * mine + 0.25 * other, "the rest to 1")
        less = way(lambda x: hvd.neighbor_allreduce(x, -1, {before: 1}, any_sum=True))
        equal(less(tf.constant(mine)), other - mine, "any sum")
        none = way(lambda x: hvd.neighbor_allreduce(x, 1, {}, []))
        equal(none(tf.constant(mine)), mine, "no neighbor")
    matrix = numpy.full([size, size], 1 / size)
    mean = hvd.neighbor_allreduce(tf.constant(mine), topology=matrix)
    assert numpy.allclose(mean, (size - 1) / 2), mean
    encoded = hvd.neighbor_allreduce(tf.constant(mine), topology="full", codec="bf16")
    assert numpy.allclose(encoded, (size - 1) / 2, atol=0.05), encoded


def in_pairs() -> None:
    rank, size = hvd.rank(), hvd.size()
    other = rank ^ 1 if rank ^ 1 < size else None
    mine = tf.constant(drawn(rank), tf.float32)
    mean = mine.numpy()
    if other is not None:
        mean = covey.numpy.pair_average(mean, other, name="n")
    else:
        covey.numpy.pair_average(mean, None, name="n")
    for way in ways():
        equal(way(lambda x: hvd.pair_average(x, other, name="p"))(mine), mean, "a pair")
        equal(way(lambda x: hvd.pair_average(x, None, name="p"))(mine), mine.numpy(), "alone")
    if size > 2 and rank < 2:
        two = hvd.ProcessSet([0, 1])
        equal(hvd.pair_average(mine, other, process_set=two), mean, "a group")


def traced_once() -> None:
    """Peers and rounds that are tensors."""
    rank, size = hvd.rank(), hvd.size()
    traces = []

    @tf.function
    def run(x: Any, peer: Any, turn: Any) -> Any:
        traces.append(1)
        mean = hvd.neighbor_allreduce(x, topology="one_peer", round=turn, name="r")
        return hvd.pair_average(x, peer, name="p"), mean

    mine = tf.constant(drawn(rank), tf.float32)
    for turn in range(5):
        other = (turn - rank) % size  # Those of a pair name each other; alone: itself.
        peer = None if other == rank else other
        number = tf.constant(-1 if peer is None else peer)
        wanted = covey.numpy.pair_average(mine.numpy(), peer)
        averaged, mixed = run(mine, number, tf.constant(turn, tf.int64))
        equal(averaged, wanted, ("peer", turn))
        wanted = covey.numpy.neighbor_allreduce(mine.numpy(), topology="one_peer", round=turn)
        equal(mixed, wanted, ("round", turn))
    assert len(traces) == 1, traces


def shapes_are_known() -> None:
    @tf.function(input_signature=[tf.TensorSpec([None, 4])])
    def run(x: Any) -> Any:
        assert hvd.pair_average(x, None).shape.as_list() == [None, 4]
        return hvd.neighbor_allreduce(x, topology="ring")

    assert run(tf.ones([2, 4])).shape == [2, 4]


def disagreements() -> List[str]:
    """One rank takes from one that does not send to it; the same name works afterwards."""
    rank, size = hvd.rank(), hvd.size()
    before, texts = (rank - 1) % size, []
    for way in ways():
        for call in (
            lambda x: hvd.neighbor_allreduce(x, 0.5, {before: 0.5}, [], name="x"),
            lambda x: hvd.neighbor_allreduce(x, 0.5, {before: 0.25 if rank else 0.5}, name="x"),
            lambda x: hvd.pair_average(x, None if rank == 1 else rank ^ 1, name="y"),
        ):
            try:
                way(call)(tf.ones([3]))
                texts.append("")
            except tf.errors.FailedPreconditionError as error:
                texts.append(str(error))
            equal(hvd.pair_average(tf.ones([3]), None, name="y"), numpy.ones([3]), "afterwards")
    return texts


def refusals() -> List[str]:
    """Calls that are wrong by themselves; nothing is submitted."""
    x, before, texts = tf.ones([3]), covey.stats()["operations"], []
    for call in (
        lambda: hvd.neighbor_allreduce(x),
        lambda: hvd.neighbor_allreduce(x, 0.5, {0: 0.5}, topology="ring"),
        lambda: hvd.neighbor_allreduce(x, topology="ringg"),
        lambda: hvd.neighbor_allreduce(x, topology="matching", round=tf.constant(1)),
        lambda: hvd.neighbor_allreduce(x, topology="one_peer", round=tf.constant([1])),
        lambda: hvd.neighbor_allreduce(tf.ones([3], tf.int32), topology="ring"),
        lambda: hvd.pair_average(x, "one"),
        lambda: hvd.pair_average(x, tf.constant(0.5)),
        lambda: hvd.neighbor_allreduce(x, topology="ring", codec="zip"),
    ):
        try:
            call()
            texts.append("")
        except (ValueError, tf.errors.InvalidArgumentError) as error:
            texts.append(str(error))
    assert covey.stats()["operations"] == before
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = hvd.pair_average(x, None)
    try:
        tape.gradient(y, x)
    except NotImplementedError as error:
        texts.append(str(error))
    return texts


def from_covey() -> None:
    x = tf.constant([float(hvd.rank())])
    equal(covey.pair_average(x, None), x.numpy(), "covey.pair_average")
    mean = covey.neighbor_allreduce(x, topology="full")
    assert numpy.allclose(mean, (hvd.size() - 1) / 2), mean


# ---- The tests ----------------------------------------------------------------------------------


class Cases:
    """The cases of every size."""

    size = 0

    def call(self, function: Callable[..., Any], *args: Any) -> List[Any]:
        return pool(self.size).call(function, *args, timeout=180)

    def test_topologies_of_every_dtype(self) -> None:
        self.call(by_topologies)

    def test_weights(self) -> None:
        self.call(by_weights)

    def test_pairs(self) -> None:
        self.call(in_pairs)

    def test_one_trace_serves_all_peers_and_rounds(self) -> None:
        self.call(traced_once)

    def test_shapes_are_known_before_it_runs(self) -> None:
        self.call(shapes_are_known)

    def test_what_ranks_disagree_on_is_an_error_on_each(self) -> None:
        for texts in self.call(disagreements):
            for text in texts:
                self.assertRegex(text, r"rank \d")  # type: ignore[attr-defined]

    def test_covey_finds_them_by_the_tensor(self) -> None:
        self.call(from_covey)


class TwoRanks(Cases, unittest.TestCase):
    size = 2

    def test_wrong_calls_say_what_is_wrong(self) -> None:
        wanted = (
            "give src_weights",
            "a topology says with whom",
            "ringg",
            "matching never repeat",
            "round must be an integer scalar",
            "floating-point numbers, and the tensor is of int32",
            "no rank",
            "peer must be an integer scalar",
            "zip",
            "have no gradient",
        )
        for texts in self.call(refusals):
            self.assertEqual(len(texts), len(wanted))
            for text, part in zip(texts, wanted):
                self.assertIn(part, text)


class ThreeRanks(Cases, unittest.TestCase):
    size = 3


if __name__ == "__main__":
    unittest.main()
