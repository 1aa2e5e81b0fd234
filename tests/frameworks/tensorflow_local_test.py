"""Goal: variables that are a rank's own are updated by its own gradients and never exchanged,
factors before and after a sum cancel out, groups of gradients travel together, optimizers and hooks
of TensorFlow 1 work, and Keras has all of the names.
Method: real processes; updates are compared with those of all ranks' gradients, computed
locally."""

from __future__ import annotations

import importlib
import inspect
import unittest
from typing import Any, Dict, List

from ranks import SharedPool
from tensorflows import IS_RANK, set_up

if IS_RANK:
    import keras
    import numpy
    import tensorflow as tf

    import covey
    import covey.keras
    import covey.tensorflow as hvd

pool = SharedPool(__file__)


def setUpModule() -> None:
    set_up(pool)


OF_OPTIMIZER = "optimizer name device_dense device_sparse compression sparse_as_dense "
WANTED = {
    "tensorflow": {
        "DistributedOptimizer": "optimizer name use_locking device_dense device_sparse compression "
        "sparse_as_dense backward_passes_per_step op gradient_predivide_factor "
        "average_aggregated_gradients num_groups groups process_set scale_local_gradients",
        "PartialDistributedGradientTape": "gradtape device_dense device_sparse compression "
        "sparse_as_dense op gradient_predivide_factor num_groups groups process_set local_layers "
        "scale_local_gradients",
        "BroadcastGlobalVariablesHook": "root_rank device",
        "broadcast_object": "obj root_rank session name process_set",
        "process_set_included_op": "process_set_id name",
    },
    "keras": {
        "DistributedOptimizer": OF_OPTIMIZER + "gradient_predivide_factor op "
        "backward_passes_per_step average_aggregated_gradients num_groups groups process_set "
        "scale_local_gradients",
        "PartialDistributedOptimizer": OF_OPTIMIZER + "gradient_predivide_factor op groups "
        "process_set local_layers scale_local_gradients",
        "allreduce": "value name average prescale_factor postscale_factor op compression",
        "broadcast": "value root_rank name",
        "broadcast_global_variables": "root_rank",
        "load_model": "filepath custom_optimizers custom_objects compression legacy_opts",
        "reducescatter": "value name op",
    },
    "keras.callbacks": {
        "BestModelCheckpoint": "monitor verbose save_weights_only mode save_freq",
        "BroadcastGlobalVariablesCallback": "root_rank device local_variables",
        "MetricAverageCallback": "device",
    },
}
"""Horovod's arguments, in its order."""

# ---- On the ranks ------------------------------------------------------------------------------


def arguments() -> List[str]:
    """Functions whose arguments do not begin with those that are wanted."""
    wrong = []
    for module, functions in WANTED.items():
        for name, text in functions.items():
            where = importlib.import_module(f"covey.{module}")
            names = list(inspect.signature(getattr(where, name)).parameters)
            if names[: len(text.split())] != text.split():
                wrong.append(f"{module}.{name}: {names}")
    return wrong


def said_by(call: Any) -> str:
    try:
        call()
    except (ValueError, RuntimeError, AttributeError, OSError) as error:
        return f"{type(error).__name__}: {error}"
    return "nothing"


def pair() -> List[Any]:
    """An own and a common variable, of one name."""
    return [tf.Variable(tf.fill([2], 10.0 * hvd.rank())), tf.Variable(tf.fill([2], 5.0))]


def trained(optimizer: Any, in_function: bool, steps: int = 3) -> List[Any]:
    """The first variable is local; gradients are rank + 1 and twice that."""
    own, common = pair()
    optimizer.register_local_var(own)
    gradient = tf.fill([2], hvd.rank() + 1.0)
    begin = own.numpy()

    def apply() -> None:
        optimizer.apply([gradient, 2.0 * gradient], [own, common])

    step = tf.function(apply) if in_function else apply
    for _ in range(steps):
        step()
    optimizer.finish()
    result = [(begin - own.numpy()).tolist(), common.numpy().tolist()]
    optimizer.close()
    return result


def local_updates(in_function: bool) -> None:
    size, rank = hvd.size(), hvd.rank()
    mean = sum(range(1, size + 1)) / size
    for options, scale in (
        ({}, 1 / size),
        ({"scale_local_gradients": False}, 1.0),
        ({"gradient_predivide_factor": 4.0}, 1 / size),
        ({"method": "local:local_steps=3"}, 1 / size),
    ):
        sgd = hvd.DistributedOptimizer(keras.optimizers.SGD(0.5), **options)
        moved, common = trained(sgd, in_function)
        assert numpy.allclose(moved, 3 * 0.5 * (rank + 1) * scale), (options, moved)
        assert numpy.allclose(common, 5 - 3 * 0.5 * 2 * mean), (options, common)
    passes = hvd.DistributedOptimizer("sgd", backward_passes_per_step=3)
    passes.learning_rate = 0.5
    moved, common = trained(passes, in_function)
    assert numpy.allclose(moved, 3 * 0.5 * (rank + 1) / size), moved
    assert numpy.allclose(common, 5 - 3 * 0.5 * 2 * mean), common


def slots() -> None:
    """State of a local variable is not exchanged; state whose variable is not clear is."""
    from covey.local_variables import without_slots_of

    names = {"a": ["a_momentum", "a_b_momentum", "iteration"], "a/b": ["a_momentum", "iteration"]}
    kept = [keras.Variable(0.0, name=it) for it in ("a_momentum", "a_b_momentum", "iteration")]
    both = {path: keras.Variable(0.0, name=path.replace("/", "_")) for path in ("a", "a/b")}
    left = without_slots_of([both["a/b"]], list(both.values()), kept)
    assert [it.name for it in left] == names["a/b"], left
    left = without_slots_of([both["a"]], list(both.values()), kept)
    assert [it.name for it in left] == names["a"][1:], left
    same = pair()
    inner = keras.optimizers.SGD(momentum=0.5)
    inner.build(same)
    assert without_slots_of(same[:1], same, inner.variables) == inner.variables
    assert without_slots_of([], same, inner.variables) == inner.variables


def refusals() -> Dict[str, str]:
    said = {}
    two = {"gradient_predivide_factor": 2.0}
    said["eager"] = said_by(lambda: hvd.DistributedOptimizer("sgd", method="eager", **two))
    said["models"] = said_by(lambda: hvd.DistributedOptimizer("sgd", method="wagma", **two))
    said["warm"] = said_by(
        lambda: hvd.DistributedOptimizer("sgd", method="local:warmup_steps=2", **two)
    )
    said["sum"] = said_by(lambda: hvd.DistributedOptimizer("sgd", op=hvd.Sum, **two))
    rounds = hvd.DistributedOptimizer("sgd", method="eager")
    said["local"] = said_by(lambda: rounds.register_local_var(pair()[0]))
    partial = covey.keras.PartialDistributedOptimizer
    said["layers"] = said_by(lambda: partial("sgd", local_layers=["dense"]))
    callback = covey.keras.callbacks.BroadcastGlobalVariablesCallback
    said["variables"] = said_by(lambda: callback(0, local_variables=[1]))
    late = hvd.DistributedOptimizer("sgd")
    own, common = pair()
    late.apply([own, common], [own, common])
    said["late"] = said_by(lambda: late.register_local_var(own))
    late.close()
    said["globals"] = said_by(lambda: covey.keras.broadcast_global_variables(0))
    best = covey.keras.callbacks.BestModelCheckpoint()
    said["path"] = said_by(lambda: best.on_train_begin())
    old = tf.compat.v1.train.GradientDescentOptimizer(0.5)
    said["method"] = said_by(lambda: hvd.DistributedOptimizer(old, method="eager"))
    said["passes"] = said_by(lambda: hvd.DistributedOptimizer(old, backward_passes_per_step=2))
    return said


def groups_of_gradients() -> None:
    """Each list is one operation, and so is each variable that is in no list."""
    variables = [tf.Variable(float(i)) for i in range(5)]
    lists = [variables[:2], [variables[4]]]
    for options, wanted in (({}, 1), ({"groups": lists}, 4), ({"groups": 2}, 2)):
        with hvd.DistributedGradientTape(tf.GradientTape(), **options) as tape:
            loss = tf.add_n([it * (hvd.rank() + 1.0) for it in variables])
        before = covey.stats()["operations"]
        got = tape.gradient(loss, variables)
        assert covey.stats()["operations"] - before == wanted, options
        assert numpy.allclose(got, (hvd.size() + 1) / 2), got
    with hvd.DistributedGradientTape(tf.GradientTape()) as tape:
        loss = tf.add_n([it * (hvd.rank() + 1.0) for it in variables])
    tape.register_local_source(variables[0])
    local, others = tape.get_local_and_global_gradients(loss, variables)
    assert [it[0] is variables[0] for it in local] == [True] and len(others) == 4
    assert float(local[0][1]) == (hvd.rank() + 1) / hvd.size()


def outside_of_the_set() -> None:
    """A rank that is not in the process set trains by itself."""
    rank = hvd.rank()
    first = hvd.add_process_set([0])
    variable = tf.Variable(1.0)
    with hvd.DistributedGradientTape(tf.GradientTape(), process_set=first) as tape:
        loss = variable * (rank + 1.0)
    assert float(tape.gradient(loss, variable)) == rank + 1.0
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.5), process_set=first)
    for _ in range(2):
        optimizer.apply([tf.constant(rank + 1.0)], [variable])
    optimizer.finish()
    assert float(variable) == 1.0 - (rank + 1.0), variable
    optimizer.close()


def graphs_of_sessions() -> None:
    """An optimizer and a hook of TensorFlow 1."""
    rank, size = hvd.rank(), hvd.size()
    with tf.Graph().as_default():
        common = tf.compat.v1.get_variable("common", initializer=float(rank))
        own = tf.compat.v1.get_variable("own", initializer=1.0)
        loss = common * (rank + 1.0) + own * (rank + 1.0)
        sgd = tf.compat.v1.train.MomentumOptimizer(0.5, 0.9)
        optimizer = hvd.DistributedOptimizer(sgd)
        optimizer.register_local_var(own)
        step = optimizer.minimize(loss)
        assert optimizer.get_slot_names() == ["momentum"]
        hook = hvd.BroadcastGlobalVariablesHook(size - 1)
        train = tf.compat.v1.train
        with train.MonitoredSession(hooks=[hook]) as session:
            assert session.run(common) == size - 1
            session.run(step)
            assert numpy.isclose(session.run(common), size - 1 - 0.5 * (size + 1) / 2)
            assert numpy.isclose(session.run(own), 1 - 0.5 * (rank + 1) / size)


def keras_names() -> None:
    wanted = set(covey.ops.__all__) & set(hvd.__all__)
    for module in (hvd, covey.keras, covey.tensorflow.keras):
        assert wanted <= set(module.__all__), wanted - set(module.__all__)
        assert len(set(module.__all__)) == len(module.__all__)
        for name in module.__all__:
            assert getattr(module, name).__doc__ or not callable(getattr(module, name)), name
    callback = covey.keras.callbacks.BestModelCheckpoint(filepath="best.keras")
    assert callback.save_best_only and callback.filepath == "best.keras"
    mine = tf.constant([float(hvd.rank())])
    assert numpy.allclose(covey.keras.neighbor_allreduce(mine, topology="full"), 0.5)


# ---- The tests ----------------------------------------------------------------------------------


class LocalTest(unittest.TestCase):
    def test_local_variables_keep_their_gradients(self) -> None:
        for in_function in (False, True):
            pool(2).call(local_updates, in_function, timeout=180)

    def test_slots_of_local_variables_are_local(self) -> None:
        pool(2).call(slots, timeout=60)

    def test_what_has_no_meaning_is_refused_by_name(self) -> None:
        wanted = {
            "eager": "gradient_predivide_factor must be 1 with the method eager",
            "models": "gradient_predivide_factor must be 1 with the method wagma",
            "warm": "gradient_predivide_factor must be 1 with the method local",
            "sum": "needs op=Average",
            "local": "local variables do not go with the method eager",
            "layers": "local_layers must hold Keras layers",
            "variables": "local_variables must hold variables",
            "late": "before the first step",
            "globals": "BroadcastGlobalVariablesCallback(root_rank)",
            "path": "set its filepath",
            "method": "leave out method",
            "passes": "backward_passes_per_step must be 1",
        }
        for said in pool(2).call(refusals, timeout=120):
            self.assertEqual(list(said), list(wanted))
            for what, text in wanted.items():
                self.assertIn(text, said[what])

    def test_groups_of_gradients(self) -> None:
        pool(2).call(groups_of_gradients, timeout=120)

    def test_a_rank_outside_of_the_process_set(self) -> None:
        pool(2).call(outside_of_the_set, timeout=120)

    def test_optimizer_and_hook_of_sessions(self) -> None:
        pool(2).call(graphs_of_sessions, timeout=120)

    def test_arguments_are_horovods(self) -> None:
        self.assertEqual(pool(2).call(arguments, timeout=120), [[], []])

    def test_keras_has_the_names(self) -> None:
        pool(2).call(keras_names, timeout=120)


if __name__ == "__main__":
    unittest.main()
