"""A training loop of one's own under TensorFlow, by any method; the step is a tf.function:

    coveyrun -np 2 --method eager python tensorflow_loop.py
"""

import keras
import tensorflow as tf

import covey.tensorflow as hvd

hvd.init()
keras.utils.set_random_seed(hvd.rank())  # Every rank has data of its own.
inputs = tf.random.normal([256, 8])
wanted = tf.reduce_sum(inputs, axis=1, keepdims=True)
model = keras.Sequential([keras.Input([8]), keras.layers.Dense(1)])
hvd.broadcast_variables(model.variables, root_rank=0)
optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.1))


@tf.function
def step():
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(model(inputs) - wanted))
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply(gradients, model.trainable_variables)
    return loss


for _ in range(100):
    loss = step()
optimizer.finish()  # All ranks: equal models, by any method.
weight = float(tf.reduce_sum(model.trainable_variables[0]))
print(f"rank {hvd.rank()} of {hvd.size()}: loss {float(loss):.6f}, weight {weight:.4f}")
