"""Goal: a training by fit() under hvd.elastic goes back to its last commit when an operation has
failed on all ranks, with the callbacks in any order, and what is each rank's own stays so. On
Keras's backends TensorFlow and torch.
Method: real processes; a callback causes a mismatch in an epoch's midst. What they train afterwards
is compared with a training without one."""

from __future__ import annotations

import os
import types
import unittest
from typing import Any, Dict, List, Tuple

from ranks import SEED, Pool, SharedPool, also, ranks_may_die
from starter import ON_TORCH
from tensorflows import IS_RANK, set_up

import covey

if IS_RANK:
    import keras
    import numpy
    from keras_training import bytes_of

    import covey.keras as hvd

METHODS = ("allreduce", "eager:max_wait=60s", *also("local:H=3", "swarm:H=2", "diloco:H=3"))
BATCHES, BATCH = 6, 4
"""The batches of an epoch, on a rank."""

pool = SharedPool(__file__)
on_torch = SharedPool(__file__, ON_TORCH)


def setUpModule() -> None:
    set_up(pool)
    unittest.addModuleCleanup(on_torch.close)


# ---- On the ranks ------------------------------------------------------------------------------


def data(are_alike: bool) -> Any:
    """The data of this rank; ``are_alike``: every batch is the same."""
    drawn = numpy.random.default_rng([SEED, hvd.rank()]).normal(size=(BATCHES * BATCH, 5))
    inputs = drawn.astype("float32")
    if are_alike:
        inputs[:] = inputs[0]
    return inputs, inputs.sum(1, keepdims=True)


def made(optimizer: Any) -> Any:
    """A model that begins differently on each rank."""
    keras.utils.set_random_seed(hvd.rank())
    model = keras.Sequential(
        [
            keras.Input([5]),
            keras.layers.Dense(4, "tanh", name="first"),
            keras.layers.BatchNormalization(),
            keras.layers.Dense(1),
        ]
    )
    model.compile(optimizer, "mse")
    return model


class Fails(keras.callbacks.Callback if IS_RANK else object):  # type: ignore[misc]
    """A mismatch at the end of these batches, counted over all calls of fit()."""

    def __init__(self, at: Tuple[int, ...]) -> None:
        super().__init__()
        self.at = at
        self.done = 0

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.done += 1
        if self.done in self.at:
            hvd.allreduce(numpy.ones([1 + hvd.rank()], "float32"), name="mismatch")


def fitted(
    method: str, fails_at: Tuple[int, ...], per_commit: int, order: str, counts_anew: bool
) -> Dict[str, Any]:
    """Three epochs. ``order`` of the callbacks; ``counts_anew``: fit() gets the epochs that are
    left, as in Horovod's guide."""
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.05, momentum=0.5), method=method)
    model = made(optimizer)
    state = hvd.elastic.KerasState(model, batch=0, epoch=0)
    fails = Fails(fails_at)
    known = {
        "b": hvd.elastic.UpdateBatchStateCallback(state),
        "e": hvd.elastic.UpdateEpochStateCallback(state),
        "c": hvd.elastic.CommitStateCallback(state, per_commit),
        "f": fails,
    }
    begun: List[Tuple[int, int]] = []

    @hvd.elastic.run
    def train(state: Any) -> None:
        begun.append((state.epoch, state.batch))
        epochs = {"epochs": 3 - state.epoch}
        if not counts_anew:
            epochs = {"epochs": 3, "initial_epoch": state.epoch}
        are_alike = per_commit < BATCHES
        model.fit(
            *data(are_alike),
            batch_size=BATCH,
            shuffle=False,
            verbose=0,
            callbacks=[known[letter] for letter in order],
            **epochs,
        )

    train(state)
    answer = {
        "model": bytes_of(model.trainable_variables),
        "begun": begun,
        "done": fails.done,
        "epoch": state.epoch,
        "batch": state.batch,
        "updates": int(optimizer.iterations),
        "optimizer": bytes_of(optimizer.variables),
    }
    optimizer.close()
    return answer


def half_a_step() -> List[bytes]:
    """A failure between two passes of a step: the gradient of the first is forgotten."""
    found = []
    for fails_at in ((), (3,)):  # Batches; the first pass of a step.
        optimizer = hvd.DistributedOptimizer(
            keras.optimizers.SGD(0.05), backward_passes_per_step=2, method="allreduce"
        )
        model = made(optimizer)
        state = hvd.elastic.KerasState(model, epoch=0)
        fails = Fails(fails_at)

        @hvd.elastic.run
        def train(state: Any) -> None:
            model.fit(*data(False), batch_size=BATCH, shuffle=False, verbose=0, callbacks=[fails])

        train(state)
        found.append(bytes_of(model.trainable_variables))
        optimizer.close()
    return found


def own_layer() -> Tuple[bytes, bytes, bytes, bytes]:
    """A local layer's kernel, and another one's, before and after a sync; and a restore."""
    plain = made("sgd")
    first = plain.get_layer("first")
    optimizer = hvd.PartialDistributedOptimizer(
        keras.optimizers.SGD(0.05, momentum=0.5), local_layers=first, method="allreduce"
    )
    plain.compile(optimizer, "mse")
    state = hvd.elastic.KerasState(plain)
    before = [bytes_of(it.trainable_variables) for it in (first, plain.layers[-1])]
    state.sync()
    after = [bytes_of(it.trainable_variables) for it in (first, plain.layers[-1])]
    plain.fit(*data(False), batch_size=BATCH, verbose=0)
    assert bytes_of(first.trainable_variables) != after[0]
    state.restore()
    assert bytes_of(first.trainable_variables) == after[0]
    assert int(optimizer.iterations) == 0
    optimizer.close()
    return (*before, *after)


def without_an_optimizer() -> None:
    """A model that was not compiled, and one with an optimizer of Keras's."""
    model = keras.Sequential([keras.Input([5]), keras.layers.Dense(1)])
    state = hvd.elastic.KerasState(model)
    assert state.optimizer is None
    kept = bytes_of(model.variables)
    model.set_weights([it * 0 + 3 for it in model.get_weights()])
    state.restore()
    assert bytes_of(model.variables) == kept
    plain = made(keras.optimizers.Adam(0.01))
    state = hvd.elastic.KerasState(plain, optimizer=plain.optimizer)
    plain.optimizer.learning_rate = 0.5
    state.sync()  # A commit, too.
    plain.optimizer.learning_rate = 0.25
    plain.fit(*data(False), batch_size=BATCH, verbose=0)
    state.restore()
    assert float(plain.optimizer.learning_rate) == 0.5 and int(plain.optimizer.iterations) == 0
    state.reset()


def lost() -> Any:
    """The last rank dies in the second epoch."""
    model = made(hvd.DistributedOptimizer("sgd", method="allreduce"))
    state = hvd.elastic.KerasState(model, batch=0, epoch=0)
    committed: List[bytes] = []

    class Dies(keras.callbacks.Callback):
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            committed.append(bytes_of(model.trainable_variables))

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            if committed and batch == 1 and hvd.rank() == hvd.size() - 1:
                os._exit(1)

    callbacks = [
        hvd.elastic.UpdateEpochStateCallback(state),
        hvd.elastic.CommitStateCallback(state, 1000),
        Dies(),
    ]

    @hvd.elastic.run
    def train(state: Any) -> None:
        model.fit(*data(False), batch_size=BATCH, epochs=3, verbose=0, callbacks=callbacks)

    try:
        train(state)
    except covey.Aborted as error:
        is_kept = bytes_of(model.trainable_variables) == committed[0]
        return error.peer_rank, state.epoch, is_kept
    return None


def of_a_newcomer() -> List[int]:
    """The batches of each epoch of a rank that has got the state of others in an epoch's midst."""
    model = made(hvd.DistributedOptimizer(keras.optimizers.SGD(0.05)))
    state = hvd.elastic.KerasState(model, batch=4, epoch=1)
    batches: List[int] = []

    class Counts(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            batches.append(0)

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            batches[-1] += 1

    covey.state.state.elastic = types.SimpleNamespace(
        world=1, is_inside=True, check=lambda: None, look=lambda: False
    )
    try:
        callbacks = [hvd.elastic.UpdateBatchStateCallback(state), Counts()]
        epochs = {"initial_epoch": state.epoch, "epochs": 3}
        model.fit(*data(False), batch_size=BATCH, verbose=0, callbacks=callbacks, **epochs)
    finally:
        covey.state.state.elastic = None
    return batches


def refusals() -> List[str]:
    said = []
    for make in (
        lambda: hvd.elastic.KerasState(keras.Sequential([keras.layers.Dense(1)])),
        lambda: hvd.elastic.CommitStateCallback(hvd.elastic.ObjectState(), 0),
    ):
        try:
            make()
        except ValueError as error:
            said.append(str(error))
    return said


# ---- The tests ---------------------------------------------------------------------------------


class KerasElasticTest(unittest.TestCase):
    ranks = pool

    def test_goes_back_to_the_end_of_an_epoch(self) -> None:
        whole = 3 * BATCHES
        wanted = self.ranks(2).call(fitted, "allreduce", (), 1000, "ebcf", False)
        for order, counts_anew in (("cbef", True), *also(("ebcf", False))):
            with self.subTest(order=order):
                how = (1000, order, counts_anew)
                for found, plain in zip(
                    self.ranks(2).call(fitted, "allreduce", (3, 12), *how), wanted
                ):
                    self.assertEqual(found["begun"], [(0, 0), (0, 0), (1, 0)])
                    self.assertEqual(found["done"], whole + 3 + 3)
                    for name in ("model", "optimizer"):
                        self.assertEqual(found[name], plain[name], name)
                    self.assertEqual((found["epoch"], found["batch"]), (3, 0))
                    self.assertEqual(found["updates"], whole)

    def test_goes_back_into_an_epoch_and_does_what_is_left_of_it(self) -> None:
        wanted = self.ranks(2).call(fitted, "allreduce", (), 2, "ebcf", False)
        for order, counts_anew in (("cfeb", False), *also(("ebcf", True))):
            with self.subTest(order=order):
                how = (2, order, counts_anew)
                for found, plain in zip(
                    self.ranks(2).call(fitted, "allreduce", (3, 12), *how), wanted
                ):
                    # Batch 3 fails, and 9 more are done: batch 12 is the fifth of epoch 1.
                    self.assertEqual(found["begun"], [(0, 0), (0, 2), (1, 4)])
                    self.assertEqual(found["model"], plain["model"])
                    self.assertEqual(found["updates"], 3 * BATCHES)
                    self.assertEqual((found["epoch"], found["batch"]), (3, 0))

    def test_a_rank_that_comes_later_does_what_is_left_of_an_epoch(self) -> None:
        self.assertEqual(self.ranks(2).call(of_a_newcomer), [[BATCHES - 4, BATCHES]] * 2)

    def test_by_other_methods_all_end_with_one_model(self) -> None:
        for method in METHODS[1:]:
            with self.subTest(method=method):
                found = self.ranks(2).call(fitted, method, (3, 12), 1000, "ebcf", False)
                for one in found:
                    self.assertEqual(one["model"], found[0]["model"])
                    self.assertEqual(one["begun"], [(0, 0), (0, 0), (1, 0)])

    def test_half_a_step_is_forgotten(self) -> None:
        for whole, again in self.ranks(2).call(half_a_step):
            self.assertEqual(again, whole)

    def test_local_layers_stay_own(self) -> None:
        (own, other, own_after, other_after), second = self.ranks(2).call(own_layer)
        self.assertEqual((own_after, other_after), (own, other))
        self.assertEqual(second[2], second[0])
        self.assertEqual(second[3], other)
        self.assertNotEqual(second[1], other)

    def test_other_optimizers_and_none(self) -> None:
        self.ranks(2).call(without_an_optimizer)

    def test_refusals(self) -> None:
        for model, batches in self.ranks(2).call(refusals):
            self.assertIn("not built", model)
            self.assertIn("1 or more, not 0", batches)

    @ranks_may_die
    def test_a_lost_rank_ends_it_at_the_last_commit(self) -> None:
        with Pool(3, __file__, env=self.ranks.env) as apart:
            apart.send(lost)
            self.assertEqual(apart.collect(may_end=True)[:2], [(2, 1, True)] * 2)


class OnTorchTest(KerasElasticTest):
    ranks = on_torch


if __name__ == "__main__":
    unittest.main()
