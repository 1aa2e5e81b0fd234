"""Where this process is, as tensors that are computed when a graph runs: int32 scalars.

A graph that was traced, or saved, in another job so gets the numbers of the one it runs in. Errors:
``tf.errors.FailedPreconditionError`` before ``init()``, ``InvalidArgumentError`` for a process set
that is not known here.
"""

from __future__ import annotations

from typing import Any, Optional

from covey.arguments import whole_of
from covey.tensorflow.streams import operations

__all__ = ["local_rank_op", "local_size_op", "process_set_included_op", "rank_op", "size_op"]


def _place(what: str, process_set_id: int, name: Optional[str]) -> Any:
    number = whole_of("process_set_id", process_set_id)
    signed = (number + (1 << 63)) % (1 << 64) - (1 << 63)  # An attribute is an int64.
    return operations.covey_place(what=what, process_set=signed, name=name)


def size_op(process_set_id: int = 0, name: Optional[str] = None) -> Any:
    """The number of ranks in a process set: an int32 scalar, computed when a graph runs.

    Args:
        process_set_id: of the process set, its attribute of this name; 0: all ranks of the job.
        name: of the operation in a graph.

    Raises:
        tf.errors.FailedPreconditionError: before ``init()``.
        tf.errors.InvalidArgumentError: the process set is not known here.

    Example:
        >>> scale = 1.0 / tf.cast(hvd.size_op(), tf.float32)
    """
    return _place("size", process_set_id, name)


def local_size_op(name: Optional[str] = None) -> Any:
    """The number of ranks on this host. As :func:`size_op`."""
    return _place("local_size", 0, name)


def rank_op(name: Optional[str] = None) -> Any:
    """The rank of this process. As :func:`size_op`."""
    return _place("rank", 0, name)


def local_rank_op(name: Optional[str] = None) -> Any:
    """The rank of this process among those on this host. As :func:`size_op`."""
    return _place("local_rank", 0, name)


def process_set_included_op(process_set_id: int = 0, name: Optional[str] = None) -> Any:
    """1 if this process is in the process set of that id, else 0. As :func:`size_op`."""
    return _place("included", process_set_id, name)
