"""Collective operations on NumPy arrays.

The same functions as :mod:`covey.torch`, without gradients. Arrays of float32, float64, float16,
uint8, int8, int32 and int64 can be reduced, and with the package ml_dtypes bfloat16 too; bool can
be broadcast and gathered.

Example:
    >>> import numpy, covey
    >>> covey.init()
    >>> total = covey.allreduce(numpy.arange(4.0), op=covey.Sum, name="x")
"""

from __future__ import annotations

from typing import Any, List, Optional, Sequence, Tuple

import numpy

from covey.collectives import DTYPE_NAMES, ITEM_BYTES, Collectives, Framework, HandleSet, barrier
from covey.errors import Unsupported
from covey.group import Group, world
from covey.handles import Handle, poll, synchronize
from covey.reduce_op import choose_op

__all__ = [
    "allgather",
    "allgather_async",
    "allreduce",
    "allreduce_",
    "allreduce_async",
    "allreduce_async_",
    "barrier",
    "broadcast",
    "broadcast_",
    "broadcast_async",
    "broadcast_async_",
    "grouped_allgather",
    "grouped_allreduce",
    "grouped_allreduce_",
    "poll",
    "synchronize",
]

_CODES = {name: code for code, name in enumerate(DTYPE_NAMES)}


def code_of_dtype(dtype: Any) -> Tuple[Optional[int], int]:
    """(covey_dtype or None, bytes per element) of a NumPy dtype."""
    found = numpy.dtype(dtype)
    native = found.isnative and not found.hasobject
    return (_CODES.get(found.name) if native else None), found.itemsize


class _NumpyFramework(Framework):
    def code(self, tensor: Any) -> int:
        code = _CODES.get(tensor.dtype.name) if tensor.dtype.isnative else None
        if code is None:
            names = ", ".join(DTYPE_NAMES)
            raise Unsupported(f"arrays of {tensor.dtype} cannot be sent; possible are {names}")
        return code

    def dense(self, tensor: Any) -> Any:
        # Not ascontiguousarray: that makes an array of one dimension from a scalar.
        return tensor if tensor.flags.c_contiguous else tensor.copy(order="C")

    def empty_like(self, dense: Any) -> Any:
        return numpy.empty(dense.shape, dense.dtype)

    def address(self, dense: Any) -> int:
        return int(dense.__array_interface__["data"][0])

    def shape(self, tensor: Any) -> Tuple[int, ...]:
        return tuple(tensor.shape)

    def assign(self, target: Any, source: Any) -> Any:
        numpy.copyto(target, source)
        return target

    def wrap(self, memory: Any, code: int, shape: Tuple[int, ...]) -> Any:
        dtype = numpy.dtype(DTYPE_NAMES[code])
        if len(memory) == 0:
            return numpy.empty(shape, dtype)
        return numpy.frombuffer(memory, dtype).reshape(shape)


FRAMEWORK = _NumpyFramework()
_collectives = Collectives(FRAMEWORK)
assert len(ITEM_BYTES) == len(DTYPE_NAMES)


def _writable(array: Any) -> Any:
    if not isinstance(array, numpy.ndarray):
        raise TypeError(f"an in-place operation needs a numpy array, not {type(array).__name__}")
    if not array.flags.writeable:
        raise ValueError("an in-place operation needs a writable array")
    return array


def allreduce_async(
    tensor: Any,
    average: Optional[bool] = None,
    name: Optional[str] = None,
    op: Optional[int] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: Group = world,
) -> Handle:
    """As :func:`covey.torch.allreduce_async`; the result is a new array of the same shape."""
    return _collectives.allreduce(
        numpy.asarray(tensor),
        False,
        name,
        choose_op(op, average),
        prescale_factor,
        postscale_factor,
        process_set,
    )


def allreduce_async_(
    tensor: Any,
    average: Optional[bool] = None,
    name: Optional[str] = None,
    op: Optional[int] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: Group = world,
) -> Handle:
    """As :func:`covey.torch.allreduce_async_`; the array is overwritten."""
    return _collectives.allreduce(
        _writable(tensor),
        True,
        name,
        choose_op(op, average),
        prescale_factor,
        postscale_factor,
        process_set,
    )


def allreduce(tensor: Any, *args: Any, **kwargs: Any) -> Any:
    """As :func:`covey.torch.allreduce`, without gradient. Arguments as :func:`allreduce_async`.

    Example:
        >>> mean = covey.numpy.allreduce(numpy.ones(3), name="mean")
    """
    kwargs.pop("compression", None)
    return allreduce_async(tensor, *args, **kwargs).wait()


def allreduce_(tensor: Any, *args: Any, **kwargs: Any) -> Any:
    """As :func:`covey.torch.allreduce_`. Arguments as :func:`allreduce_async_`."""
    return allreduce_async_(tensor, *args, **kwargs).wait()


def grouped_allreduce_async(
    tensors: Sequence[Any],
    average: Optional[bool] = None,
    name: Optional[str] = None,
    op: Optional[int] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: Group = world,
) -> HandleSet:
    """As :func:`covey.torch.grouped_allreduce_async`; the results are new arrays."""
    return _collectives.grouped_allreduce(
        [numpy.asarray(tensor) for tensor in tensors],
        False,
        name,
        choose_op(op, average),
        prescale_factor,
        postscale_factor,
        process_set,
    )


def grouped_allreduce_async_(
    tensors: Sequence[Any],
    average: Optional[bool] = None,
    name: Optional[str] = None,
    op: Optional[int] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: Group = world,
) -> HandleSet:
    """As :func:`covey.torch.grouped_allreduce_async_`; the arrays are overwritten."""
    return _collectives.grouped_allreduce(
        [_writable(tensor) for tensor in tensors],
        True,
        name,
        choose_op(op, average),
        prescale_factor,
        postscale_factor,
        process_set,
    )


def grouped_allreduce(tensors: Sequence[Any], *args: Any, **kwargs: Any) -> List[Any]:
    """As :func:`covey.torch.grouped_allreduce`, without gradient."""
    kwargs.pop("compression", None)
    return grouped_allreduce_async(tensors, *args, **kwargs).wait()


def grouped_allreduce_(tensors: Sequence[Any], *args: Any, **kwargs: Any) -> List[Any]:
    """As :func:`covey.torch.grouped_allreduce_`."""
    return grouped_allreduce_async_(tensors, *args, **kwargs).wait()


def broadcast_async(
    tensor: Any, root_rank: int, name: Optional[str] = None, process_set: Group = world
) -> Handle:
    """As :func:`covey.torch.broadcast_async`; the result is a new array."""
    return _collectives.broadcast(numpy.asarray(tensor), False, root_rank, name, process_set)


def broadcast_async_(
    tensor: Any, root_rank: int, name: Optional[str] = None, process_set: Group = world
) -> Handle:
    """As :func:`covey.torch.broadcast_async_`; the array is overwritten."""
    return _collectives.broadcast(_writable(tensor), True, root_rank, name, process_set)


def broadcast(tensor: Any, root_rank: int, *args: Any, **kwargs: Any) -> Any:
    """As :func:`covey.torch.broadcast`, without gradient."""
    return broadcast_async(tensor, root_rank, *args, **kwargs).wait()


def broadcast_(tensor: Any, root_rank: int, *args: Any, **kwargs: Any) -> Any:
    """As :func:`covey.torch.broadcast_`."""
    return broadcast_async_(tensor, root_rank, *args, **kwargs).wait()


def allgather_async(tensor: Any, name: Optional[str] = None, process_set: Group = world) -> Handle:
    """As :func:`covey.torch.allgather_async`."""
    return _collectives.allgather(numpy.asarray(tensor), name, process_set)


def allgather(tensor: Any, name: Optional[str] = None, process_set: Group = world) -> Any:
    """As :func:`covey.torch.allgather`, without gradient."""
    return allgather_async(tensor, name, process_set).wait()


def grouped_allgather_async(
    tensors: Sequence[Any], name: Optional[str] = None, process_set: Group = world
) -> HandleSet:
    """As :func:`covey.torch.grouped_allgather_async`."""
    arrays = [numpy.asarray(tensor) for tensor in tensors]
    return _collectives.grouped_allgather(arrays, name, process_set)


def grouped_allgather(
    tensors: Sequence[Any], name: Optional[str] = None, process_set: Group = world
) -> List[Any]:
    """As :func:`covey.torch.grouped_allgather`, without gradient."""
    return grouped_allgather_async(tensors, name, process_set).wait()
