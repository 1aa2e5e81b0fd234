"""Goal: what goes wrong under TensorFlow is one of its exceptions on every rank, with Covey's
message, and never a hang.
Method: real processes, one of which does something else or dies."""

from __future__ import annotations

import os
import signal
import threading
import unittest
from typing import Any, List, Tuple

from ranks import SEED, Pool, SharedPool, ranks_may_die
from tensorflows import IS_RANK, set_up
from wrong_kinds import not_refused

import covey

if IS_RANK:
    import tensorflow as tf

    import covey.tensorflow as hvd

SIZE = 3
ODD = SEED % SIZE
"""The rank that does something else."""
pool = SharedPool(__file__)


def setUpModule() -> None:
    set_up(pool)


# ---- Run on ranks -------------------------------------------------------------------------------


def disagree(what: str, in_graph: bool) -> Tuple[str, str]:
    """The error's type and message; afterwards the same name works."""
    odd = hvd.rank() == ODD
    tensor = tf.ones([3])
    op = hvd.Sum
    if odd and what == "shape":
        tensor = tf.ones([2, 3])
    if odd and what == "dtype":
        tensor = tf.ones([3], tf.int32)
    if odd and what == "op":
        op = hvd.Max

    def run(x: Any) -> Any:
        return hvd.allreduce(x, op=op, name="x")

    seen = ("", "")
    try:
        (tf.function(run) if in_graph else run)(tensor)
    except tf.errors.OpError as error:
        seen = (type(error).__name__, str(error))
    for name in ("x", "y", None):
        result = hvd.allreduce(tf.fill([3], 2.0 ** hvd.rank()), op=hvd.Sum, name=name)
        assert result.numpy().tolist() == [2.0**SIZE - 1] * 3, result
    return seen


def other_name() -> Tuple[str, str]:
    """What this rank says it waits for, and how that ended when it gave up."""
    mine = "odd" if hvd.rank() == ODD else "usual"
    ends: List[str] = []

    def run() -> None:
        try:
            hvd.allreduce(tf.ones([3]), name=mine)
        except tf.errors.AbortedError as error:
            ends.append(str(error))

    thread = threading.Thread(target=run)
    thread.start()
    while f"allreduce.{mine}" not in covey.status():
        threading.Event().wait(0.001)  # a poll; the test has a hard limit
    said = covey.status()
    covey.barrier()
    hvd.shutdown()
    thread.join()
    return said, ends[0]


def without_runtime() -> List[str]:
    @tf.function
    def run(x: Any) -> Any:
        return hvd.allreduce(x, name="x")

    seen = []
    try:
        hvd.allreduce(tf.ones([1]))
    except ValueError as error:
        seen.append(str(error))
    hvd.init()
    run(tf.ones([1]))
    hvd.shutdown()
    try:
        run(tf.ones([1]))
    except tf.errors.FailedPreconditionError as error:
        seen.append(str(error))
    hvd.init()
    assert run(tf.ones([1])).numpy().tolist() == [1.0]
    return seen


def while_one_dies() -> Tuple[str, str]:
    """Ten operations that only the others take part in."""

    @tf.function
    def step(x: Any) -> Any:
        return [hvd.allreduce(x, name=f"dies.{i}") for i in range(10)]

    hvd.barrier()
    if hvd.rank() == ODD:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        step(tf.ones([1000]))
    except tf.errors.OpError as error:
        return type(error).__name__, str(error)
    return "", ""


def of_wrong_kinds() -> Tuple[int, List[str]]:
    given = {
        "tensor": lambda: tf.ones([4]),
        "tensors": lambda: [tf.ones([2])],
        "variables": lambda: [tf.Variable(1.0)],
        "root_rank": lambda: 0,
        "gradtape": tf.GradientTape,
        "optimizer": lambda: "sgd",
    }
    functions = (
        "allreduce", "allgather", "alltoall", "broadcast", "broadcast_", "broadcast_object",
        "broadcast_variables", "gather", "grouped_allgather", "grouped_allreduce",
        "grouped_reducescatter", "reducescatter", "size_op", "DistributedGradientTape",
        "DistributedOptimizer", "PartialDistributedGradientTape",
    )  # fmt: skip
    # TensorFlow refuses the first two; the last is accepted for Horovod's sake.
    ignored = ("alltoall(splits", "size_op(name", "DistributedOptimizer(sparse_as_dense")
    count, found = not_refused(hvd, functions, given, ignored)
    assert hvd.allreduce(tf.ones([2]), op=hvd.Sum).numpy().tolist() == [SIZE] * 2
    return count, found


# ---- The tests ----------------------------------------------------------------------------------


class ErrorsTest(unittest.TestCase):
    maxDiff = None

    def test_all_ranks_are_told_what_differs(self) -> None:
        for what, words in (
            ("shape", ("[3]", "[2, 3]")),
            ("dtype", ("float32", "int32")),
            ("op", ("sum", "max")),
        ):
            for in_graph in (False, True):
                for kind, text in pool(SIZE).call(disagree, what, in_graph):
                    with self.subTest(what=what, in_graph=in_graph):
                        self.assertEqual(kind, "FailedPreconditionError")
                        for word in ("allreduce.x", f"rank {ODD}", *words):
                            self.assertIn(word, text)

    def test_different_names_wait_for_each_other_and_say_so(self) -> None:
        with Pool(SIZE, __file__, env=pool.env) as ranks:
            for rank, (said, end) in enumerate(ranks.call(other_name)):
                self.assertIn("allreduce.odd" if rank == ODD else "allreduce.usual", said)
                self.assertRegex(end, r"rank \d has left|this rank is shutting down|shut")

    def test_before_init_and_after_shutdown(self) -> None:
        with Pool(1, __file__, init=False, env=pool.env) as ranks:
            for text in ranks.call(without_runtime)[0]:
                self.assertIn("init", text)

    def test_arguments_of_the_wrong_kind_are_refused_by_their_names(self) -> None:
        for count, found in pool(SIZE).call(of_wrong_kinds):
            self.assertEqual(found, [])
            self.assertGreater(count, 300)

    @ranks_may_die
    def test_a_killed_rank_is_named(self) -> None:
        with Pool(SIZE, __file__, env=pool.env) as ranks:
            ranks.send(while_one_dies)
            for rank, ended in enumerate(ranks.collect(may_end=True)):
                if rank != ODD:
                    self.assertEqual(ended[0], "AbortedError")
                    self.assertIn(f"rank {ODD}", ended[1])


if __name__ == "__main__":
    unittest.main()
