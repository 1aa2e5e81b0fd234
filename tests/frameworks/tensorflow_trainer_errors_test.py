"""Goal: what goes wrong in a training under TensorFlow names its cause, and the training goes on:
wrong calls, ranks that differ, an update that fails, an error elsewhere in the graph, a signal, a
killed rank.
Method: real processes; each error is provoked, and the steps after it are done."""

from __future__ import annotations

import os
import signal
import threading
import unittest
from typing import Any, Dict, List

from ranks import Pool, SharedPool, ranks_may_die, refusal_of
from tensorflows import IS_RANK, set_up

if IS_RANK:
    import keras
    import numpy
    import tensorflow as tf

    import covey
    import covey.tensorflow as hvd
    from covey.errors import CoveyError

pool = SharedPool(__file__)


def setUpModule() -> None:
    set_up(pool)


# ---- On the ranks ------------------------------------------------------------------------------


def said_by(call: Any) -> str:
    """Class and message of the error that it raises; "nothing" without one."""
    try:
        call()
    except (ValueError, CoveyError, tf.errors.OpError, ArithmeticError) as error:
        return f"{type(error).__name__}: {error}"
    return "nothing"


def sgd(**options: Any) -> Any:
    return hvd.DistributedOptimizer(keras.optimizers.SGD(0.5), **options)


def wrong_options() -> Dict[str, str]:
    """What each says."""
    said: Dict[str, str] = {}

    def note(what: str, optimizer: Any = "sgd", **options: Any) -> None:
        said[what] = refusal_of(lambda: hvd.DistributedOptimizer(optimizer, **options))

    note("twice", sgd())
    note("class", keras.optimizers.SGD)
    note("other", tf.Variable(1.0))
    note("op", op=hvd.Max)
    note("factor", gradient_predivide_factor=-2.0)
    note("groups", groups="all")
    note("num_groups", num_groups=-1)
    note("passes", backward_passes_per_step=0)
    note("compression", compression=int)
    note("both", compression=hvd.Compression.fp16, method="allreduce:codec=int8")
    note("of adasum", op=hvd.Adasum, method="allreduce", codec="int8")
    note("method", method="alreduce")
    note("setting", lokal_steps=3, method="local")
    note("no such codec", compression=hvd.Compression.fp16, method="wagma")
    coded = sgd(compression=hvd.Compression.bf16, method="dpsgd:then=allreduce@5")
    said["codec"] = coded._covey_method
    exact, third = sgd(compression=hvd.Compression.fp16), tf.constant([1 / 3], tf.float64)
    wide = tf.Variable(tf.zeros([1], tf.float64))
    exact.apply([third], [wide])
    said["wide"] = f"{exact.method} {float(wide[0] + third[0] / 2)}"
    exact.close()
    return said


def wrong_calls() -> Dict[str, str]:
    said: Dict[str, str] = {}
    weight, bias = tf.Variable(tf.ones([2])), tf.Variable(1.0)
    ones = [tf.ones([2]), tf.ones([])]
    said["unbuilt"] = said_by(lambda: sgd().apply(ones))
    whole = tf.Variable([1, 2])
    said["dtype"] = said_by(lambda: sgd().apply([tf.constant([1, 1])], [whole]))
    differ = tf.Variable(tf.ones([2 + hvd.rank()]))
    said["shapes"] = said_by(lambda: sgd().apply([tf.ones_like(differ)], [differ]))
    inner = keras.optimizers.SGD(0.5, momentum=0.5 * hvd.rank())
    momenta = hvd.DistributedOptimizer(inner)
    said["state"] = said_by(lambda: momenta.apply(ones, [weight, bias]))

    optimizer = sgd()
    optimizer.finish()  # Nothing, before the first step.
    optimizer.apply(ones, [weight, bias])
    said["more"] = said_by(lambda: optimizer.apply([*ones, ones[0]], [weight, bias, differ]))
    said["others"] = said_by(lambda: optimizer.apply(ones, [bias, weight]))
    said["count"] = said_by(lambda: optimizer.apply(ones, [weight]))
    said["shape"] = said_by(lambda: optimizer.apply([tf.ones([3]), ones[1]], [weight, bias]))
    optimizer.apply([])
    optimizer.apply(ones)
    said["after"] = str([weight.numpy().tolist(), float(bias)])

    compiled = tf.function(lambda: optimizer.apply(ones), jit_compile=True, autograph=False)
    said["xla"] = said_by(compiled)
    optimizer.close()
    return said


def other_gradients(in_function: bool) -> List[Any]:
    """None counts as zeros, slices are made dense."""
    table, bias = tf.Variable(tf.zeros([4, 2])), tf.Variable(1.0)
    optimizer = sgd()

    def apply() -> None:
        rows = tf.constant([hvd.rank(), 3, 3])
        slices = tf.IndexedSlices(tf.ones([3, 2]), rows, tf.constant([4, 2]))
        optimizer.apply([slices, None if hvd.rank() == 0 else tf.constant(2.0)], [table, bias])

    (tf.function(apply) if in_function else apply)()
    optimizer.close()
    return [table.numpy().tolist(), float(bias)]


class Fails(keras.optimizers.SGD if IS_RANK else object):  # type: ignore[misc]
    """Its first update fails: in Python, or in the graph."""

    def __init__(self, in_function: bool) -> None:
        super().__init__(1.0)
        self.in_function = in_function
        self.times = tf.Variable(0)

    def apply(self, grads: Any, trainable_variables: Any = None) -> None:
        times = self.times.assign_add(1)
        if not self.in_function:
            if int(times) == 1:
                raise ArithmeticError("once")
            return super().apply(grads, trainable_variables)
        with tf.control_dependencies([tf.debugging.Assert(times > 1, ["once"])]):
            grads = [tf.identity(it) for it in grads]
        return super().apply(grads, trainable_variables)


def update_that_fails(in_function: bool) -> List[Any]:
    """It is asked for again, with the gradients that it had."""
    variable = tf.Variable([0.0, 0.0])
    inner = Fails(in_function)
    optimizer = hvd.DistributedOptimizer(inner)

    def apply(number: Any) -> None:
        optimizer.apply([tf.fill([2], number)], [variable])

    run = tf.function(apply) if in_function else apply
    said = said_by(lambda: run(tf.constant(8.0)))
    run(tf.constant(800.0))
    after = variable.numpy().tolist()
    run(tf.constant(2.0))
    answer = [said, after, variable.numpy().tolist(), optimizer.version]
    optimizer.close()
    return answer


def waits() -> Any:
    """1, as soon as this rank waits for the gradients of another."""
    while "gradients" not in covey.status():
        threading.Event().wait(0.001)  # A poll; the test has a hard limit.
    return numpy.int64(1)


def error_elsewhere() -> List[Any]:
    """Rank 0's step waits for rank 1 when another node of its graph fails: that ends the wait, and
    the step is done later."""
    variable = tf.Variable([0.0])
    optimizer = sgd()
    optimizer.apply([tf.ones([1])], [variable])
    said = ""
    if hvd.rank() == 0:

        @tf.function
        def failing() -> None:
            optimizer.apply([tf.ones([1])], [variable])
            tf.debugging.Assert(tf.numpy_function(waits, [], tf.int64) > 1, ["elsewhere"])

        said = said_by(failing)
    hvd.barrier()
    optimizer.apply([tf.ones([1])], [variable])
    answer = [said, float(variable[0]), optimizer.version]
    optimizer.close()
    return answer


def not_finite() -> List[str]:
    """By a method that waits for all every rank hears of it; the next step is done."""
    variable = tf.Variable([0.0, 0.0])
    optimizer = sgd()
    bad = numpy.float32("nan") if hvd.rank() == 1 else numpy.float32(1)
    said = said_by(lambda: optimizer.apply([tf.constant([bad, 1.0])], [variable]))
    optimizer.apply([tf.ones([2])], [variable])
    return [said, str(variable.numpy().tolist())]


def train_and_die(killed: int, in_function: bool) -> List[Any]:
    """One rank is killed within its training; the others train on, and end with one model."""
    variable = tf.Variable(tf.zeros([3]))
    optimizer = sgd(method="eager:max_wait=2s")

    def apply() -> None:
        optimizer.apply([tf.ones([3])], [variable])

    run = tf.function(apply) if in_function else apply
    for step in range(20):
        if step == 7 and hvd.rank() == killed:
            os.kill(os.getpid(), signal.SIGKILL)
        run()
    optimizer.finish()
    return [variable.numpy().tobytes(), optimizer.version]


def rank_is_gone() -> str:
    """By a method that waits for all an error names the dead rank."""
    variable = tf.Variable([0.0])
    optimizer = sgd(method="allreduce")
    run = tf.function(lambda: optimizer.apply([tf.ones([1])], [variable]))
    run()
    if hvd.rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return said_by(run)


def interrupted() -> List[Any]:
    """A signal ends a wait outside of tf.function."""
    variable = tf.Variable([0.0])
    optimizer = sgd()
    optimizer.apply([tf.ones([1])], [variable])
    said = ""
    if hvd.rank() == 0:
        signal.signal(signal.SIGALRM, signal.default_int_handler)
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        try:
            optimizer.apply([tf.ones([1])], [variable])
        except KeyboardInterrupt:
            said = "interrupted"
    hvd.barrier()
    optimizer.apply([tf.ones([1])], [variable])
    answer = [said, float(variable[0]), optimizer.version]
    optimizer.close()
    return answer


# ---- The tests ---------------------------------------------------------------------------------


class TensorFlowTrainerErrorsTest(unittest.TestCase):
    def test_wrong_options_name_what_to_use(self) -> None:
        for said in pool(2).call(wrong_options):
            self.assertIn("is a DistributedOptimizer already", said["twice"])
            self.assertRegex(said["class"], r"not the class keras\.\S+\.SGD$")
            self.assertIn("optimizer must be one of Keras 3", said["other"])
            self.assertIn("Unsupported: op must be Average, Adasum or Sum", said["op"])
            self.assertIn("gradient_predivide_factor must be positive", said["factor"])
            self.assertIn("groups is a number, lists of variables or None", said["groups"])
            self.assertIn("num_groups must be 0 or more", said["num_groups"])
            self.assertIn("backward_passes_per_step must be 1 or more", said["passes"])
            self.assertIn("use Compression.fp16", said["compression"])
            self.assertIn("give compression or codec, not both", said["both"])
            self.assertIn("no codecs", said["of adasum"])
            self.assertIn('the nearest is "allreduce"', said["method"])
            self.assertIn("local_steps", said["setting"])
            self.assertRegex(said["codec"], "^dpsgd:.*codec=bf16,then=allreduce@5")
            self.assertIn("codec", said["no such codec"])
            self.assertEqual(said["wide"], "allreduce 0.0")

    def test_wrong_calls_name_the_cause_and_the_next_one_works(self) -> None:
        for said in pool(2).call(wrong_calls):
            self.assertIn("needs build() before", said["unbuilt"])
            self.assertRegex(said["dtype"], "Unsupported: .* is of int32: parameters are floating")
            self.assertRegex(said["shapes"], r"^Mismatch: trainer .*float32\[2\].*float32\[3\]")
            self.assertRegex(said["state"], "^Mismatch: trainer .* arrays of state")
            self.assertIn("other variables than at its first step", said["more"])
            self.assertIn("other variables than at its first step", said["others"])
            self.assertIn("2 gradients for 1 variables", said["count"])
            self.assertRegex(said["shape"], "tensor 0 has 12 bytes")
            self.assertEqual(said["after"], "[[0.0, 0.0], 0.0]")
            self.assertIn("jit_compile", said["xla"])

    def test_gradients_of_other_kinds(self) -> None:
        for in_function in (False, True):
            for table, bias in pool(2).call(other_gradients, in_function):
                wanted = [[-0.25] * 2, [-0.25] * 2, [0.0] * 2, [-1.0] * 2]
                self.assertEqual(table, wanted)
                self.assertEqual(bias, 0.5)

    def test_an_update_that_failed_is_asked_for_again(self) -> None:
        for in_function in (False, True):
            with self.subTest(in_function=in_function):
                for said, after, end, version in pool(2).call(update_that_fails, in_function):
                    self.assertIn("once", said)
                    self.assertEqual((after, end, version), ([-8.0] * 2, [-10.0] * 2, 2))

    def test_an_error_elsewhere_ends_the_wait(self) -> None:
        ends = pool(2).call(error_elsewhere, timeout=60)
        self.assertIn("elsewhere", ends[0][0])
        for _, value, version in ends:
            self.assertEqual((value, version), (-1.0, 2))

    def test_a_signal_ends_the_wait(self) -> None:
        ends = pool(2).call(interrupted, timeout=60)
        self.assertEqual(ends[0][0], "interrupted")
        for _, value, version in ends:
            self.assertEqual((value, version), (-1.0, 2))

    def test_a_nan_is_refused_before_it_is_mixed(self) -> None:
        with Pool(2, __file__, {**pool.env, "COVEY_CHECK_NAN": "1"}) as own:
            for said, after in own.call(not_finite):
                self.assertRegex(said, "^InvalidArgumentError: .*rank 1 .*1 NaN")
                self.assertEqual(after, "[-0.5, -0.5]")

    @ranks_may_die
    def test_the_others_go_on_without_a_killed_rank(self) -> None:
        for killed, in_function in ((2, True), (0, False)):
            with self.subTest(killed=killed), Pool(3, __file__, pool.env) as own:
                own.send(train_and_die, killed, in_function)
                ends = [end for end in own.collect(may_end=True) if end is not None]
                self.assertEqual(len(ends), 2)
                self.assertEqual(ends[0], ends[1])
                self.assertGreaterEqual(ends[0][1], 20)

    @ranks_may_die
    def test_a_dead_rank_is_named(self) -> None:
        with Pool(2, __file__, pool.env) as own:
            own.send(rank_is_gone)
            said = own.collect(may_end=True)[0]
            self.assertRegex(said, "^AbortedError: .*rank 1")


if __name__ == "__main__":
    unittest.main()
