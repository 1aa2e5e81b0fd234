"""The smallest data-parallel training: coveyrun -np 2 python tensorflow_minimal.py"""

import tensorflow as tf

import covey.tensorflow as hvd

hvd.init()
tf.keras.utils.set_random_seed(hvd.rank())  # every rank has data of its own
inputs = tf.random.normal([256, 8])
wanted = tf.reduce_sum(inputs, axis=1, keepdims=True)
model = tf.keras.Sequential([tf.keras.Input([8]), tf.keras.layers.Dense(1)])
optimizer = tf.keras.optimizers.SGD(0.1)
hvd.broadcast_variables(model.variables, root_rank=0)


@tf.function
def step():
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(model(inputs) - wanted))
    tape = hvd.DistributedGradientTape(tape)
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    return loss


for _ in range(100):
    loss = step()
weight = float(tf.reduce_sum(model.trainable_variables[0]))
print(f"rank {hvd.rank()} of {hvd.size()}: loss {float(loss):.6f}, weight {weight:.4f}")
