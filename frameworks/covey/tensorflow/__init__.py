"""Covey for TensorFlow 2, by the names of Horovod.

A program written for Horovod changes one line::

    import covey.tensorflow as hvd

    hvd.init()
    hvd.broadcast_variables(model.variables, root_rank=0)
    with tf.GradientTape() as tape:
        loss = loss_of(model(images), labels)
    tape = hvd.DistributedGradientTape(tape)
    optimizer.apply_gradients(
        zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
    )

For a training by a method, as by ``coveyrun --method eager``, ``hvd.DistributedOptimizer`` takes
the place of the tape. ``fit()``: :mod:`covey.keras`. The operations are compiled for the
TensorFlow that is installed, by ``covey build tensorflow`` or by the first import.
torch and TensorFlow in one process share one runtime.

Common rules of the operations:

* They work eagerly and in a ``tf.function``. There they are asynchronous: an operation begins as
  soon as its tensor is computed, any number is in flight at once, in any order on any rank, and no
  thread waits.
* Dense tensors on the CPU (of others TensorFlow makes copies there), variables, and what
  ``tf.convert_to_tensor`` takes. float32, float64, float16, bfloat16, and integers of 8, 16, 32
  and 64 bits, signed or not, can be reduced; bool can be moved.
* ``name``: the same name on every rank finds together. Without one an operation is known by its
  turn, and in a ``tf.function`` by its place in it. One name is in flight once at a time: in a
  ``tf.while_loop`` its operations come one after the other.
* ``process_set``: the ranks that take part; this rank must be one of them.
* Errors are TensorFlow's, with Covey's message: ``tf.errors.InvalidArgumentError`` when the call is
  wrong, ``FailedPreconditionError`` when the ranks disagree (as Horovod has it; later operations
  work) and before ``init()``, ``AbortedError`` when a rank died or left,
  ``DeadlineExceededError`` when ``max_wait`` is over, ``UnimplementedError`` and
  ``ResourceExhaustedError``. An error in every graph is a ``ValueError`` at once.
* Gradients are those of the sum of all ranks' losses. Broadcast and allgather give
  all ranks copies of one tensor: their gradients are those of the mean, as in Horovod. Gradients of
  a reducescatter are larger by a factor, the size of the process set.
"""

from __future__ import annotations

import importlib
from typing import Any

try:
    import tensorflow  # noqa: F401
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError(
        "covey.tensorflow needs TensorFlow, which is not installed here: pip install "
        "tensorflow-cpu (in a clone of the sources: tools/setup --with tensorflow)",
        name=missing.name,
    ) from missing

from .. import horovod  # Relative: pyright knows its __all__ so.
from covey.as_horovod.helpers import _executing_eagerly  # noqa: F401  # As Horovod's tests do.
from covey.as_horovod.modules import module_in
from covey.collectives import barrier, join
from covey.errors import Unsupported
from covey.horovod import *  # noqa: F401,F403  # The same under every framework.
from covey.tensorflow import neighbor_ops, ops, place_ops
from covey.tensorflow.compression import Compression
from covey.tensorflow.functions import (
    allgather_object,
    broadcast_,
    broadcast_global_variables,
    broadcast_object,
    broadcast_object_fn,
    broadcast_variables,
)
from covey.tensorflow.neighbor_ops import *  # noqa: F401,F403
from covey.tensorflow.ops import *  # noqa: F401,F403  # The operations: ops.__all__.
from covey.tensorflow.place_ops import *  # noqa: F401,F403
from covey.tensorflow.tape import DistributedGradientTape

__all__ = [
    "BroadcastGlobalVariablesHook",
    "Compression",
    "DistributedGradientTape",
    "DistributedOptimizer",
    "PartialDistributedGradientTape",
    "SyncBatchNormalization",
    "allgather_object",
    "barrier",
    "broadcast_",
    "broadcast_global_variables",
    "broadcast_object",
    "broadcast_object_fn",
    "broadcast_variables",
    "consensus",
    "join",
    "load",
    "save",
]
__all__ += horovod.__all__
__all__ += ops.__all__
__all__ += neighbor_ops.__all__
__all__ += place_ops.__all__

_LATE = {  # Keras takes seconds to import, and so do parts of TensorFlow 1.
    "BroadcastGlobalVariablesHook": "session_hook",
    "DistributedOptimizer": "distributed_optimizer",
    "PartialDistributedGradientTape": "partial_tape",
    "SyncBatchNormalization": "sync_batch_norm",
    "consensus": "mean_model",
    "load": "checkpoint",
    "save": "checkpoint",
}


def code_of_dtype(dtype: Any) -> Any:
    """For covey.arena_empty: TensorFlow makes no tensors over memory of others."""
    raise Unsupported(f"{dtype!r}: TensorFlow's tensors cannot lie in the arena")


def __getattr__(name: str) -> Any:
    if name in _LATE:
        return getattr(importlib.import_module(f"{__name__}.{_LATE[name]}"), name)
    if name == "elastic":  # Needs Keras, too.
        return importlib.import_module(f"{__name__}.elastic")
    base = name.rstrip("_")
    if base.endswith("_async") or (name.endswith("_") and base in ops.__all__):
        raise AttributeError(
            f"{__name__} has no {name}: tensors are never overwritten, and operations in a "
            f"tf.function are asynchronous as they are; use {base.replace('_async', '')}"
        )
    return module_in(__name__, name)
