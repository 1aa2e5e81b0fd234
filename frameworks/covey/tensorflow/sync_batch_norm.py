"""SyncBatchNormalization: batch normalization with the statistics of all ranks' batches."""

from __future__ import annotations

from typing import Any, Optional, Tuple

import keras
import tensorflow as tf

from covey.basics import rank, size
from covey.errors import InvalidArgument
from covey.reduce_op import Sum
from covey.tensorflow.ops import allreduce


@keras.saving.register_keras_serializable("covey")
class SyncBatchNormalization(keras.layers.BatchNormalization):
    """As ``keras.layers.BatchNormalization``; in training mean and variance are those of the
    batches of all ranks, which may differ in size and may have no rows.

    Each call in training is one allreduce of 3 numbers a channel and rank, and one more in
    backward: the gradient is that of the sum of all ranks' losses. Every rank must make the call.

    Args:
        fused: False.
        options: as ``keras.layers.BatchNormalization``.

    Raises:
        InvalidArgument: (a ValueError) ``fused`` is not False.

    Example:
        >>> model = keras.Sequential([keras.layers.Dense(8), hvd.SyncBatchNormalization()])
    """

    def __init__(self, fused: Optional[bool] = False, **options: Any) -> None:
        if fused is not False:
            raise InvalidArgument("SyncBatchNormalization has no fused form: leave fused=False")
        super().__init__(**options)

    def _moments(self, inputs: Any, mask: Any) -> Tuple[Any, Any]:
        """Overrides that of Keras: [channels] means and variances."""
        own = _own_moments(inputs, mask, self._reduction_axes)
        # Every rank's numbers in a row of its own: sums of such tables lose nothing.
        table = tf.pad(own[tf.newaxis], [[rank(), size() - 1 - rank()], [0, 0], [0, 0]])
        means, variances, counts = tf.unstack(allreduce(table, op=Sum), axis=1)
        shares = tf.math.divide_no_nan(counts, tf.reduce_sum(counts, 0))
        mean = tf.reduce_sum(shares * means, 0)
        spread = variances + tf.math.squared_difference(means, mean)
        return mean, tf.reduce_sum(shares * spread, 0)


def _own_moments(inputs: Any, mask: Any, axes: Any) -> Any:
    """[3, channels]: means, variances and numbers of this rank's elements; 0 without any."""
    kept = tf.ones_like(inputs, tf.bool)
    if mask is not None:
        kept = tf.broadcast_to(tf.cast(mask, tf.bool)[..., tf.newaxis], tf.shape(inputs))
    counts = tf.reduce_sum(tf.cast(kept, inputs.dtype), axes, keepdims=True)
    zeros = tf.zeros_like(inputs)
    sums = tf.reduce_sum(tf.where(kept, inputs, zeros), axes, keepdims=True)
    means = tf.math.divide_no_nan(sums, counts)
    squares = tf.where(kept, tf.math.squared_difference(inputs, means), zeros)
    variances = tf.math.divide_no_nan(tf.reduce_sum(squares, axes, keepdims=True), counts)
    return tf.stack([tf.reshape(it, [-1]) for it in (means, variances, counts)])
