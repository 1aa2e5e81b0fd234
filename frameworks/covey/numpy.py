"""Collective operations on NumPy arrays.

The same functions as :mod:`covey.torch`, without gradients and compression, and ``Trainer``, which
trains arrays by a method. ``init``, ``rank``, ``size``, ``Sum`` and the other names are those of
:mod:`covey`: ``covey.init()``, ``op=covey.Sum``. In the examples ``hvd`` is ``covey.numpy``.
Arrays of float32, float64, float16, and integers of 8, 16, 32 and 64 bits, signed or not, can be
reduced, and with the package ml_dtypes bfloat16 too; bool can be moved.

Example:
    >>> import numpy, covey
    >>> covey.init()
    >>> total = covey.allreduce(numpy.arange(4.0), op=covey.Sum, name="x")
"""

from __future__ import annotations

from typing import Any, List, Optional, Sequence, Tuple

import numpy

from covey import ops
from covey.call_variants import four_variants, two_variants
from covey.collectives import Collectives, barrier, join  # noqa: F401
from covey.errors import Unsupported
from covey.framework import DTYPE_NAMES, Framework
from covey.handles import poll, synchronize

__all__ = ["Trainer", "poll", "synchronize"] + ops.__all__

_CODES = {name: code for code, name in enumerate(DTYPE_NAMES)}


def code_of_dtype(dtype: Any) -> Tuple[Optional[int], int]:
    """(covey_dtype or None, bytes per element) of a NumPy dtype."""
    found = numpy.dtype(dtype)
    native = found.isnative and not found.hasobject
    return (_CODES.get(found.name) if native else None), found.itemsize


class _NumpyFramework(Framework[Any]):
    def accept(self, tensor: Any, in_place: bool) -> Any:
        if not in_place:
            return numpy.asarray(tensor)
        if not isinstance(tensor, numpy.ndarray):
            what = type(tensor).__name__
            raise TypeError(f"an in-place operation needs a numpy array, not {what}")
        if not tensor.flags.writeable:
            raise ValueError("an in-place operation needs a writable array")
        return tensor

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

    def empty(self, shape: Tuple[int, ...], code: int) -> Any:
        return numpy.empty(shape, DTYPE_NAMES[code])

    def address(self, dense: Any) -> int:
        return int(dense.__array_interface__["data"][0])

    def shape(self, tensor: Any) -> Tuple[int, ...]:
        return tuple(tensor.shape)

    def assign(self, target: Any, source: Any) -> Any:
        numpy.copyto(target, source)
        return target

    def wrap(self, memory: Any, code: int, shape: Tuple[int, ...]) -> Any:
        if len(memory) == 0:
            return self.empty(shape, code)
        return numpy.frombuffer(memory, DTYPE_NAMES[code]).reshape(shape)


FRAMEWORK = _NumpyFramework()


def accept_all(arrays: Sequence[Any], what: str, are_trained: bool = False) -> List[Any]:
    """``arrays``, each of which is changed in place and can be sent.

    Raises:
        TypeError, ValueError: names one that is not so, as "``what`` 3" if it is the fourth. For
            its dtype Unsupported; ``are_trained``: also for one that is no floating-point number.
    """
    for number, array in enumerate(arrays):
        try:
            code = FRAMEWORK.code(FRAMEWORK.accept(array, True))
        except (TypeError, ValueError) as error:
            raise type(error)(f"{what} {number}: {error}") from None
        if are_trained and "float" not in DTYPE_NAMES[code]:
            raise Unsupported(
                f"{what} {number} is of {array.dtype}: parameters are floating-point numbers"
            )
    return list(arrays)


_collectives = Collectives(FRAMEWORK, __name__, "numpy.ndarray")

allreduce, allreduce_, allreduce_async, allreduce_async_ = four_variants(_collectives.allreduce)
(
    grouped_allreduce,
    grouped_allreduce_,
    grouped_allreduce_async,
    grouped_allreduce_async_,
) = four_variants(_collectives.grouped_allreduce)
broadcast, broadcast_, broadcast_async, broadcast_async_ = four_variants(_collectives.broadcast)
allgather, allgather_async = two_variants(_collectives.allgather)
gather, gather_async = two_variants(_collectives.gather)
grouped_allgather, grouped_allgather_async = two_variants(_collectives.grouped_allgather)
reducescatter, reducescatter_async = two_variants(_collectives.reducescatter)
grouped_reducescatter, grouped_reducescatter_async = two_variants(
    _collectives.grouped_reducescatter
)
alltoall, alltoall_async = two_variants(_collectives.alltoall)
(
    neighbor_allreduce,
    neighbor_allreduce_,
    neighbor_allreduce_async,
    neighbor_allreduce_async_,
) = four_variants(_collectives.neighbor_allreduce)
pair_average, pair_average_, pair_average_async, pair_average_async_ = four_variants(
    _collectives.pair_average
)


def __getattr__(name: str) -> Any:
    if name == "Trainer":  # Which needs what stands above.
        from covey.numpy_trainer import Trainer

        return Trainer
    raise ops.absent(__name__, name)
