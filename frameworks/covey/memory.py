"""Memory that every rank of the host can reach: tensors in it are reduced without a copy."""

from __future__ import annotations

import math
from typing import Any, Sequence, Union

from covey import _native
from covey.errors import InvalidArgument, Unsupported
from covey.adapters import adapter_of_dtype


def arena_empty(shape: Union[int, Sequence[int]], dtype: Any) -> Any:
    """A tensor in the arena, filled with zeros.

    Allreducing it in place needs no copy between processes; ordinary tensors are copied once. It
    stays usable after ``shutdown()``, as ordinary memory.

    Args:
        shape: of the tensor, or the length of one with one dimension.
        dtype: of the framework whose tensor is wanted, e.g. ``torch.float32`` or
            ``numpy.dtype("float32")``; one of float32, float64, float16, bfloat16, bool, and
            int8 to int64, uint8 to uint64.

    Returns:
        A dense tensor of that framework.

    Raises:
        NotInitialized: (a ValueError) before ``init()``.
        InvalidArgument, Unsupported: (ValueErrors) no such shape or dtype.
        Exhausted: (a MemoryError) the arena is full.

    Example:
        >>> flat = covey.arena_empty((1024,), torch.float32)
        >>> covey.allreduce_(flat, op=covey.Sum, name="flat")
    """
    extents = (shape,) if isinstance(shape, int) else tuple(int(extent) for extent in shape)
    if any(extent < 0 for extent in extents):
        raise InvalidArgument(f"arena_empty: a shape has no negative extent, not {extents}")
    framework = adapter_of_dtype(dtype)
    code, item_bytes = framework.code_of_dtype(dtype)
    if code is None:
        raise Unsupported(f"arena_empty: dtype {dtype} cannot be sent")
    length_bytes = math.prod(extents) * item_bytes
    memory = _native.arena_alloc(length_bytes) if length_bytes else bytearray()
    return framework.FRAMEWORK.wrap(memory, code, extents)
