"""Goal: hvd.elastic of TensorFlow over a fixed world: states of variables and of Keras models go
back to the last commit when an operation has failed on all ranks, and a death ends the training.
Method: real processes cause a mismatch, eagerly, in a tf.function and in a session; what they train
afterwards is compared with a training without one."""

from __future__ import annotations

import os
import unittest
from typing import Any, List, Tuple

from ranks import SEED, Pool, SharedPool, ranks_may_die
from tensorflows import IS_RANK, set_up

import covey

if IS_RANK:
    import keras
    import numpy
    import tensorflow as tf

    import covey.tensorflow as hvd

SIZE = 3
STEPS = 6
pool = SharedPool(__file__)


def setUpModule() -> None:
    set_up(pool)


# ---- On the ranks ------------------------------------------------------------------------------


def inputs_of(step: int) -> Any:
    drawn = numpy.random.default_rng([SEED, hvd.rank(), step]).normal(size=(8, 4))
    return tf.constant(drawn, tf.float32)


def trained(fails_at: Tuple[int, ...], commit_every: int, in_function: bool) -> Any:
    """(parameters, events). The model of rank 0 is what all begin with."""
    keras.utils.set_random_seed(hvd.rank())
    model = keras.Sequential([keras.Input([4]), keras.layers.Dense(3, "tanh")])
    optimizer = keras.optimizers.Adam(0.05)
    state = hvd.elastic.TensorFlowKerasState(model, optimizer, step=hvd.rank(), seen=[])
    assert state.model is model and state.optimizer is optimizer
    left, events = list(fails_at), []
    state.register_reset_callbacks([lambda: events.append(("reset", state.step))])

    def do(inputs: Any, odd: Any) -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(model(inputs) ** 2)
        tape = hvd.DistributedGradientTape(tape)
        optimizer.apply(tape.gradient(loss, model.trainable_variables))
        hvd.allreduce(tf.ones([1 + odd * hvd.rank()]), name="perhaps")

    call = tf.function(do) if in_function else do

    @hvd.elastic.run
    def train(state: Any, until: int) -> str:
        while state.step < until:
            fails = bool(left) and state.step == left[0]
            if fails:
                left.pop(0)
            call(inputs_of(state.step), tf.constant(int(fails)))
            state.seen.append(state.step)
            state.step += 1
            if state.step % commit_every == 0:
                state.commit()
        return "done"

    assert train(state, STEPS) == "done"
    assert state.seen == list(range(STEPS)), state.seen
    assert int(optimizer.iterations) == STEPS
    return [numpy.asarray(it).tobytes() for it in model.variables + optimizer.variables], events


def of_variables() -> None:
    rank = hvd.rank()
    variables = [tf.Variable([1.0 + rank]), tf.Variable([[2, rank]])]
    state = hvd.elastic.TensorFlowState(variables, batch=rank)
    assert state.variables[0] is variables[0] and state.session is None
    state.sync()
    assert variables[0].numpy().tolist() == [1.0] and state.batch == 0
    assert variables[1].numpy().tolist() == [[2, 0]]
    variables[0].assign([5.0])
    state.batch = 7
    state.commit()
    variables[0].assign([6.0])
    state.batch = 8
    state.restore()
    assert variables[0].numpy().tolist() == [5.0] and state.batch == 7


def in_a_session(is_default: bool) -> List[float]:
    """A session's own variables: before the failure, after it, and at the end."""
    graph = tf.Graph()
    with graph.as_default(), tf.compat.v1.Session(graph=graph) as session:
        weight = tf.compat.v1.get_variable("weight", initializer=[1.0 + hvd.rank()])
        more = weight.assign(weight + 1.0)
        wrong = hvd.allreduce(tf.ones([1 + hvd.rank()]), name="wrong")
        session.run(tf.compat.v1.global_variables_initializer())
        given = {} if is_default else {"variables": [weight], "session": session}
        state = hvd.elastic.TensorFlowState(**given, fails=True)
        seen = []

        @hvd.elastic.run
        def train(state: Any) -> None:
            seen.append(float(session.run(weight)[0]))
            session.run(more)
            if state.fails:
                state.fails = False
                state.commit()
                session.run(more)
                session.run(wrong)

        train(state)
        seen.append(float(session.run(weight)[0]))
    return seen


def gives_up() -> Any:
    """A function that fails again and again without a commit between."""
    state = hvd.elastic.TensorFlowState([tf.Variable(0.0)], epoch=0)
    calls: List[int] = []

    def train(state: Any) -> None:
        calls.append(state.epoch)
        state.variables[0].assign_add(1.0)
        state.epoch += 1
        tf.function(lambda: hvd.allreduce(tf.ones([1 + hvd.rank()]), name="always"))()

    try:
        hvd.elastic.run(train)(state)
    except hvd.HorovodInternalError as error:
        cause = type(error.__cause__).__name__
        return type(error).__name__, cause, calls, state.epoch, float(state.variables[0])
    return None


def of_tensorflow() -> str:
    """Errors of TensorFlow's own are left alone, and nothing is done again."""
    state = hvd.elastic.ObjectState(calls=0)

    @hvd.elastic.run
    def train(state: Any) -> None:
        state.calls += 1
        state.commit()
        tf.debugging.assert_equal(1, 2)

    try:
        train(state)
    except tf.errors.OpError as error:
        assert state.calls == 1
        return type(error).__name__
    return ""


def loses_a_rank() -> Any:
    state = hvd.elastic.TensorFlowState([tf.Variable(0.0)], epoch=0)

    @hvd.elastic.run
    def train(state: Any) -> None:
        state.epoch += 1
        state.variables[0].assign(9.0)
        if hvd.rank() == 2:
            os._exit(1)
        hvd.allreduce(tf.ones([1]), name="all")

    try:
        train(state)
    except covey.Aborted as error:
        return error.peer_rank, state.epoch, float(state.variables[0])
    return None


def refusals() -> List[str]:
    said = []
    for make in (
        lambda: hvd.elastic.TensorFlowState(),
        lambda: hvd.elastic.TensorFlowKerasState(keras.Sequential([keras.layers.Dense(1)])),
    ):
        try:
            make()
        except ValueError as error:
            said.append(str(error))
    return said


# ---- The tests ---------------------------------------------------------------------------------


class ElasticTest(unittest.TestCase):
    def test_goes_back_to_the_last_commit(self) -> None:
        for in_function in (False, True):
            with self.subTest(in_function=in_function):
                wanted, events = pool(SIZE).call(trained, (), 2, in_function)[0]
                self.assertEqual(events, [])
                for found, events in pool(SIZE).call(trained, (3, 5), 2, in_function):
                    self.assertEqual(events, [("reset", 2), ("reset", 4)])
                    self.assertEqual(found, wanted)

    def test_variables(self) -> None:
        pool(SIZE).call(of_variables)

    def test_variables_of_a_session(self) -> None:
        for is_default in (False, True):
            for seen in pool(SIZE).call(in_a_session, is_default):
                self.assertEqual(seen, [1.0, 2.0, 3.0])

    def test_gives_up_without_progress(self) -> None:
        wanted = ("Mismatch", "FailedPreconditionError", [0, 0], 0, 0.0)
        self.assertEqual(pool(SIZE).call(gives_up), [wanted] * SIZE)

    def test_other_errors_pass(self) -> None:
        self.assertEqual(pool(SIZE).call(of_tensorflow), ["InvalidArgumentError"] * SIZE)

    @ranks_may_die
    def test_a_lost_rank_ends_it_at_the_last_commit(self) -> None:
        with Pool(SIZE, __file__, env=pool.env) as apart:
            apart.send(loses_a_rank)
            self.assertEqual(apart.collect(may_end=True)[:2], [(2, 0, 0.0)] * 2)

    def test_refusals(self) -> None:
        for variables, model in pool(SIZE).call(refusals):
            self.assertIn("needs variables", variables)
            self.assertIn("not built", model)


if __name__ == "__main__":
    unittest.main()
