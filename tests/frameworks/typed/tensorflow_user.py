"""A user's script for a type checker: a loop of TensorFlow. See ../typing_test.py."""

import tensorflow as tf  # type: ignore[import-untyped]

import covey.tensorflow as hvd
from covey.tensorflow import elastic

hvd.init()
variable = tf.Variable([1.0, 2.0])
hvd.broadcast_variables([variable], root_rank=0)
with tf.GradientTape() as tape:
    loss = tf.reduce_sum(variable * variable)
taped = hvd.DistributedGradientTape(tape, op=hvd.Average, compression=hvd.Compression.fp16)
gradients = taped.gradient(loss, [variable])
mean = hvd.allreduce(loss, name="loss")
parts = hvd.grouped_allreduce([loss, mean], op=hvd.Sum)
received = hvd.allgather(variable)
largest = hvd.allreduce(loss, op=hvd.Adasum)
state = elastic.TensorFlowState([variable], batch=0)
state.commit()
ranks: int = hvd.size() * hvd.local_size()
hvd.shutdown()
