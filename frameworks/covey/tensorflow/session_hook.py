"""A hook of TensorFlow 1's sessions that makes all ranks begin with the same variables."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from covey.tensorflow.functions import broadcast_global_variables


class BroadcastGlobalVariablesHook(tf.compat.v1.train.SessionRunHook):
    """All variables become those of rank ``root_rank`` when the session begins.

    Args:
        root_rank: a global rank.
        device: accepted for Horovod's sake.

    Raises:
        tf.errors.OpError: when the session begins: as :func:`covey.tensorflow.broadcast`.

    Example:
        >>> hooks = [hvd.BroadcastGlobalVariablesHook(0)]
        >>> with tf.compat.v1.train.MonitoredTrainingSession(hooks=hooks) as session:
        ...     session.run(step)
    """

    def __init__(self, root_rank: int, device: str = "") -> None:
        super().__init__()
        del device
        self.root_rank = root_rank
        self.bcast_op: Any = None

    def begin(self) -> None:
        """Adds the operation to the graph, once for each graph."""
        if self.bcast_op is None or self.bcast_op.graph is not tf.compat.v1.get_default_graph():
            self.bcast_op = broadcast_global_variables(self.root_rank)

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Runs it."""
        del coord
        session.run(self.bcast_op)
