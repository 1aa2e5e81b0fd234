"""Gradients of several passes, added up to those of one step. Internal."""

from __future__ import annotations

from typing import Any, Callable, List

import tensorflow as tf

from covey.keras.options import check_passes

Step = Callable[[List[Any]], None]


class Accumulation:
    """The sums of this rank.

    Args:
        passes: so many make a step.
        is_mean: the sums are divided by this number.

    Attributes:
        passes, is_mean: these.

    Raises:
        InvalidArgument: (a ValueError) ``passes`` is not 1 or more.
    """

    def __init__(self, passes: int, is_mean: bool) -> None:
        self.passes, self.is_mean = check_passes(passes), is_mean
        self._kept: Any = None

    def add(self, gradients: List[Any], step: Step) -> None:
        """Adds them; after the last pass of a step ``step`` gets the sums. In a tf.function too."""
        if self.passes == 1:
            step(gradients)
            return
        if self._kept is None:
            with tf.init_scope():
                sums = [tf.Variable(tf.zeros(it.shape, it.dtype)) for it in gradients]
                self._kept = (tf.Variable(0, dtype=tf.int64), tuple(sums))
        count, sums = self._kept
        for total, gradient in zip(sums, gradients):
            total.assign_add(gradient)
        count.assign_add(1)

        def end() -> Any:
            scale = self.passes if self.is_mean else 1
            totals = [tf.identity(total) / tf.cast(scale, total.dtype) for total in sums]
            for total in sums:
                total.assign(tf.zeros_like(total))
            step(totals)
            return tf.constant(True)

        tf.cond(count % self.passes == 0, end, lambda: tf.constant(False))

    def abandon(self) -> None:
        """Drops the sums of a step that has not all passes. Outside of tf.function."""
        if self._kept is None:
            return
        count, sums = self._kept
        for variable in (count, *sums):
            variable.assign(tf.zeros_like(variable))
