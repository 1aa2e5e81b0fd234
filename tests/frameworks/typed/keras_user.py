"""A user's script for a type checker: Keras's fit(). See ../typing_test.py."""

import keras  # type: ignore[import-untyped]

import covey.keras as hvd
from covey.keras.elastic import CommitStateCallback, KerasState, run

hvd.init()
model = keras.Sequential([keras.layers.Dense(1)])
optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.1 * hvd.size()), method="eager")
model.compile(optimizer, "mse")
callbacks = [
    hvd.callbacks.BroadcastGlobalVariablesCallback(0),
    hvd.callbacks.MetricAverageCallback(),
]
if hvd.rank() == 0:
    callbacks.append(keras.callbacks.ModelCheckpoint("model.keras"))
state = KerasState(model, optimizer, epoch=0)
callbacks.append(CommitStateCallback(state, batches_per_commit=100))


@run
def train(state: KerasState) -> int:
    state.commit()
    return 1


done: int = train(state)
optimizer.finish()
hvd.shutdown()
