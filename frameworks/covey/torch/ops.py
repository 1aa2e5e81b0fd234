"""Collective operations on torch tensors, by Horovod's names.

What they have in common:

* Tensors are on the CPU, of any shape and strides. float32, float64, float16, bfloat16, uint8,
  int8, int32 and int64 can be reduced; bool can be broadcast and gathered.
* ``name``: the same name on every rank finds together, in any order. Operations without a name must
  come in one order on every rank. A name is free again when its operation has ended.
* ``process_set``: the ranks that take part; this rank must be one of them.
* Errors: InvalidArgument and Unsupported (both ValueErrors) when the call is wrong here, nothing is
  submitted then; Mismatch when the ranks disagree, later operations work; Aborted when a rank died
  or left. Mismatch and Aborted are ``HorovodInternalError``.
* The functions without ``async`` wait. Those with it return a handle for ``synchronize`` and
  ``poll``; leave the tensors alone until then.
* The functions ending in ``_`` overwrite the tensor and return it.
"""

from __future__ import annotations

from typing import Any, List, Optional, Sequence, Type

import torch

from covey import _native
from covey.collectives import ALLREDUCE, AnyHandle, check_scale
from covey.group import Group, world
from covey.handles import Handle, HandleSet
from covey.reduce_op import CORE_CODES, choose_op
from covey.torch import gradients
from covey.torch.compression import Compression, Compressor
from covey.torch.tensors import CODES, collectives

__all__ = [
    "allgather",
    "allgather_async",
    "allreduce",
    "allreduce_",
    "allreduce_async",
    "allreduce_async_",
    "broadcast",
    "broadcast_",
    "broadcast_async",
    "broadcast_async_",
    "grouped_allgather",
    "grouped_allgather_async",
    "grouped_allreduce",
    "grouped_allreduce_",
    "grouped_allreduce_async",
    "grouped_allreduce_async_",
]


def _wants_gradient(*tensors: Any) -> bool:
    return torch.is_grad_enabled() and any(
        isinstance(tensor, torch.Tensor) and tensor.requires_grad for tensor in tensors
    )


def allreduce(
    tensor: torch.Tensor,
    average: Optional[bool] = None,
    name: Optional[str] = None,
    compression: Type[Compressor] = Compression.none,
    op: Optional[int] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: Group = world,
) -> torch.Tensor:
    """``postscale_factor`` * ``op`` over the ranks of (``prescale_factor`` * tensor), a new tensor.

    Gradients flow through Average and Sum.

    Args:
        tensor: the same shape and dtype on every rank.
        average: deprecated, use ``op``.
        name: see the module.
        compression: ``Compression.none``, ``.fp16`` or ``.bf16``.
        op: Average (when None), Sum, Min, Max or Product.
        prescale_factor: not 0.
        postscale_factor: not 0.
        process_set: see the module.

    Returns:
        A dense tensor of the same shape and dtype, bitwise equal on every rank.

    Example:
        >>> mean_loss = hvd.allreduce(loss.detach(), name="loss")
    """
    chosen = choose_op(op, average)
    if compression is Compression.none and not _wants_gradient(tensor):
        return collectives.allreduce(
            tensor, False, name, chosen, prescale_factor, postscale_factor, process_set, waits=True
        ).wait()
    small, ctx = compression.compress(tensor)
    reduced = gradients.Allreduce.apply(
        small, name, chosen, prescale_factor, postscale_factor, process_set
    )
    return compression.decompress(reduced, ctx)


def allreduce_async(
    tensor: torch.Tensor,
    average: Optional[bool] = None,
    name: Optional[str] = None,
    op: Optional[int] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: Group = world,
) -> Handle:
    """As :func:`allreduce`, without gradient; returns a handle.

    Example:
        >>> handle = hvd.allreduce_async(tensor, name="x")
        >>> mean = hvd.synchronize(handle)
    """
    chosen = choose_op(op, average)
    return collectives.allreduce(
        tensor, False, name, chosen, prescale_factor, postscale_factor, process_set
    )


def allreduce_async_(
    tensor: torch.Tensor,
    average: Optional[bool] = None,
    name: Optional[str] = None,
    op: Optional[int] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: Group = world,
) -> Handle:
    """As :func:`allreduce_`; returns a handle.

    Example:
        >>> handle = hvd.allreduce_async_(tensor, name="x", op=hvd.Sum)
        >>> hvd.synchronize(handle) is tensor
        True
    """
    chosen = choose_op(op, average)
    return collectives.allreduce(
        tensor, True, name, chosen, prescale_factor, postscale_factor, process_set
    )


def allreduce_(
    tensor: torch.Tensor,
    average: Optional[bool] = None,
    name: Optional[str] = None,
    op: Optional[int] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: Group = world,
) -> torch.Tensor:
    """As :func:`allreduce`, in place and without gradient.

    Example:
        >>> hvd.allreduce_(tensor, op=hvd.Max, name="peak")
    """
    chosen = choose_op(op, average)
    code = CODES.get(tensor.dtype) if isinstance(tensor, torch.Tensor) else None
    op_code = CORE_CODES[chosen] if 0 <= chosen < len(CORE_CODES) else -1
    if code is None or op_code < 0 or not (tensor.is_cpu and tensor.is_contiguous()):
        return collectives.allreduce(
            tensor, True, name, chosen, prescale_factor, postscale_factor, process_set, waits=True
        ).wait()
    # The common case without the layers between.
    check_scale(prescale_factor, postscale_factor)
    _native.submit1(
        ALLREDUCE,
        0 if process_set is world else process_set.id,
        None if name is None else "allreduce." + name,
        op_code,
        0,
        prescale_factor,
        postscale_factor,
        code,
        tensor.data_ptr(),
        None,
        tensor.shape,
        tensor,
        True,
    ).wait()
    return tensor


def grouped_allreduce(
    tensors: Sequence[torch.Tensor],
    average: Optional[bool] = None,
    name: Optional[str] = None,
    compression: Type[Compressor] = Compression.none,
    op: Optional[int] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: Group = world,
) -> List[torch.Tensor]:
    """As :func:`allreduce` for a list of tensors, which travel together.

    Dtypes may be mixed: the tensors of one dtype then travel together.

    Example:
        >>> loss, hits = hvd.grouped_allreduce([loss, hits], op=hvd.Sum, name="metrics")
    """
    chosen = choose_op(op, average)
    if compression is Compression.none and not _wants_gradient(*tensors):
        return collectives.grouped_allreduce(
            tensors, False, name, chosen, prescale_factor, postscale_factor, process_set
        ).wait()
    pairs = [compression.compress(tensor) for tensor in tensors]
    reduced = gradients.GroupedAllreduce.apply(
        name, chosen, prescale_factor, postscale_factor, process_set, *(small for small, _ in pairs)
    )
    return [compression.decompress(small, ctx) for small, (_, ctx) in zip(reduced, pairs)]


def grouped_allreduce_async(
    tensors: Sequence[torch.Tensor],
    average: Optional[bool] = None,
    name: Optional[str] = None,
    op: Optional[int] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: Group = world,
) -> HandleSet:
    """As :func:`grouped_allreduce`, without gradient; returns one handle for the list."""
    chosen = choose_op(op, average)
    return collectives.grouped_allreduce(
        tensors, False, name, chosen, prescale_factor, postscale_factor, process_set
    )


def grouped_allreduce_async_(
    tensors: Sequence[torch.Tensor],
    average: Optional[bool] = None,
    name: Optional[str] = None,
    op: Optional[int] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: Group = world,
) -> HandleSet:
    """As :func:`grouped_allreduce_`; returns one handle for the list."""
    chosen = choose_op(op, average)
    return collectives.grouped_allreduce(
        tensors, True, name, chosen, prescale_factor, postscale_factor, process_set
    )


def grouped_allreduce_(
    tensors: Sequence[torch.Tensor],
    average: Optional[bool] = None,
    name: Optional[str] = None,
    op: Optional[int] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: Group = world,
) -> List[torch.Tensor]:
    """As :func:`grouped_allreduce`, in place and without gradient."""
    return grouped_allreduce_async_(
        tensors, average, name, op, prescale_factor, postscale_factor, process_set
    ).wait()


def broadcast(
    tensor: torch.Tensor, root_rank: int, name: Optional[str] = None, process_set: Group = world
) -> torch.Tensor:
    """The tensor of rank ``root_rank``, as a new tensor on every rank. Gradients flow to the root.

    Args:
        tensor: the same shape and dtype on every rank.
        root_rank: a global rank, also inside a process set.
        name: see the module.
        process_set: see the module.

    Example:
        >>> order = hvd.broadcast(torch.randperm(1000), root_rank=0, name="order")
    """
    if _wants_gradient(tensor):
        return gradients.Broadcast.apply(tensor, root_rank, name, process_set)
    return broadcast_async(tensor, root_rank, name, process_set).wait()


def broadcast_async(
    tensor: torch.Tensor, root_rank: int, name: Optional[str] = None, process_set: Group = world
) -> Handle:
    """As :func:`broadcast`, without gradient; returns a handle."""
    return collectives.broadcast(tensor, False, root_rank, name, process_set)


def broadcast_async_(
    tensor: torch.Tensor, root_rank: int, name: Optional[str] = None, process_set: Group = world
) -> Handle:
    """As :func:`broadcast_`; returns a handle."""
    return collectives.broadcast(tensor, True, root_rank, name, process_set)


def broadcast_(
    tensor: torch.Tensor, root_rank: int, name: Optional[str] = None, process_set: Group = world
) -> torch.Tensor:
    """As :func:`broadcast`, in place and without gradient."""
    return broadcast_async_(tensor, root_rank, name, process_set).wait()


def allgather(
    tensor: torch.Tensor, name: Optional[str] = None, process_set: Group = world
) -> torch.Tensor:
    """The tensors of all ranks, concatenated on dimension 0 in rank order. Gradients flow.

    Args:
        tensor: at least one dimension; dimension 0 may differ between the ranks and may be 0, the
            other dimensions and the dtype may not differ.
        name: see the module.
        process_set: see the module.

    Example:
        >>> predictions = hvd.allgather(predictions, name="predictions")
    """
    if _wants_gradient(tensor):
        return gradients.Allgather.apply(name, process_set, tensor)[0]
    return allgather_async(tensor, name, process_set).wait()


def allgather_async(
    tensor: torch.Tensor, name: Optional[str] = None, process_set: Group = world
) -> Handle:
    """As :func:`allgather`, without gradient; returns a handle."""
    return collectives.allgather(tensor, name, process_set)


def grouped_allgather(
    tensors: Sequence[torch.Tensor], name: Optional[str] = None, process_set: Group = world
) -> List[torch.Tensor]:
    """As :func:`allgather` for a list of tensors.

    Example:
        >>> scores, labels = hvd.grouped_allgather([scores, labels], name="evaluation")
    """
    if _wants_gradient(*tensors):
        return list(gradients.Allgather.apply(name, process_set, *tensors))
    return grouped_allgather_async(tensors, name, process_set).wait()


def grouped_allgather_async(
    tensors: Sequence[torch.Tensor], name: Optional[str] = None, process_set: Group = world
) -> AnyHandle:
    """As :func:`grouped_allgather`, without gradient; returns one handle."""
    return collectives.grouped_allgather(tensors, name, process_set)
