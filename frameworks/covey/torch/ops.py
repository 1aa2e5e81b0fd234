"""Collective operations on torch tensors, by Horovod's names.

Their common rules: :mod:`covey.torch`.
"""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any, Callable, List, Optional, Sequence, Type, TypeVar

import torch

from covey.arguments import many_of
from covey.call_variants import four_variants, two_variants
from covey.collectives import barrier, join  # noqa: F401
from covey.errors import Unsupported
from covey.group import Group, world
from covey.reduce_op import Average, choose_op
from covey.torch import gradients
from covey.torch.compression import Compression, Compressor, check_compression, codec_of
from covey.torch.tensors import collectives

if TYPE_CHECKING:
    from typing_extensions import ParamSpec

    P = ParamSpec("P")
R = TypeVar("R")

__all__ = [
    "allgather",
    "allgather_async",
    "allreduce",
    "allreduce_",
    "allreduce_async",
    "allreduce_async_",
    "alltoall",
    "alltoall_async",
    "barrier",
    "broadcast",
    "broadcast_",
    "broadcast_async",
    "broadcast_async_",
    "gather",
    "gather_async",
    "grouped_allgather",
    "grouped_allgather_async",
    "grouped_allreduce",
    "grouped_allreduce_",
    "grouped_allreduce_async",
    "grouped_allreduce_async_",
    "grouped_reducescatter",
    "grouped_reducescatter_async",
    "join",
    "neighbor_allreduce",
    "neighbor_allreduce_",
    "neighbor_allreduce_async",
    "neighbor_allreduce_async_",
    "pair_average",
    "pair_average_",
    "pair_average_async",
    "pair_average_async_",
    "reducescatter",
    "reducescatter_async",
]


def _wants_gradient(*tensors: Any) -> bool:
    return torch.is_grad_enabled() and any(
        isinstance(tensor, torch.Tensor) and tensor.requires_grad for tensor in tensors
    )


def _differentiable(plain: Callable[P, R], apply: Callable[..., Any]) -> Callable[P, R]:
    """``plain``, or ``apply`` with its arguments when what is given first wants a gradient."""
    signature = inspect.signature(plain)
    first_name = next(iter(signature.parameters))

    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        if not _wants_gradient(args[0] if args else kwargs.get(first_name)):
            return plain(*args, **kwargs)
        arguments = signature.bind(*args, **kwargs)
        arguments.apply_defaults()
        return apply(*arguments.args)

    def call_of_many(*args: Any, **kwargs: Any) -> Any:
        arguments = signature.bind(*args, **kwargs)
        arguments.apply_defaults()
        tensors, *others = arguments.args
        listed = many_of(tensors)
        return (apply if _wants_gradient(*listed) else plain)(listed, *others)

    made: Any = functools.update_wrapper(call_of_many if first_name == "tensors" else call, plain)
    made.__doc__ = (plain.__doc__ or "").replace("\n\n", " Gradients flow.\n\n", 1)
    return made  # type: ignore[no-any-return]


def _without_gradient(plain: Callable[P, R]) -> Callable[P, R]:
    """``plain``, which refuses a tensor that wants a gradient: it would be lost silently."""

    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        if _wants_gradient(args[0] if args else kwargs.get("tensor")):
            raise NotImplementedError(
                f"{plain.__name__} has no gradient: give it tensor.detach(), or call it within "
                "torch.no_grad()"
            )
        return plain(*args, **kwargs)

    return functools.update_wrapper(call, plain)


# Of those with a `compression` the first is written out below.
_allreduce, allreduce_, allreduce_async, allreduce_async_ = four_variants(collectives.allreduce)
(
    _grouped_allreduce,
    grouped_allreduce_,
    grouped_allreduce_async,
    grouped_allreduce_async_,
) = four_variants(collectives.grouped_allreduce)
_broadcast, broadcast_, broadcast_async, broadcast_async_ = four_variants(collectives.broadcast)
broadcast = _differentiable(_broadcast, gradients.Broadcast.apply)
_allgather, allgather_async = two_variants(collectives.allgather)
allgather = _differentiable(
    _allgather, lambda it, name, group: gradients.Allgather.apply(False, name, group, it)[0]
)
_gather, gather_async = two_variants(collectives.gather)
gather = _differentiable(_gather, gradients.Gather.apply)
_grouped_allgather, grouped_allgather_async = two_variants(collectives.grouped_allgather)
grouped_allgather = _differentiable(
    _grouped_allgather,
    lambda many, name, group: [*gradients.Allgather.apply(True, name, group, *many)],
)
_alltoall, alltoall_async = two_variants(collectives.alltoall)
alltoall = _differentiable(_alltoall, gradients.Alltoall.apply)
_reducescatter, reducescatter_async = two_variants(collectives.reducescatter)
_grouped_reducescatter, grouped_reducescatter_async = two_variants(
    collectives.grouped_reducescatter
)
(
    _neighbor_allreduce,
    neighbor_allreduce_,
    neighbor_allreduce_async,
    neighbor_allreduce_async_,
) = four_variants(collectives.neighbor_allreduce)
_pair_average, pair_average_, pair_average_async, pair_average_async_ = four_variants(
    collectives.pair_average
)
neighbor_allreduce = _without_gradient(_neighbor_allreduce)
pair_average = _without_gradient(_pair_average)


def allreduce(
    tensor: torch.Tensor,
    average: Optional[bool] = None,
    name: Optional[str] = None,
    compression: Type[Compressor] = Compression.none,
    op: Optional[int] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: Group = world,
    codec: Optional[str] = None,
) -> torch.Tensor:
    """``postscale_factor`` * ``op`` over the ranks of (``prescale_factor`` * tensor), a new tensor.

    Gradients flow through Average and Sum.

    Args:
        tensor: the same shape and dtype on every rank.
        average: deprecated, use ``op``.
        name: see :mod:`covey.torch`.
        compression: ``Compression.none``, ``.fp16``, ``.bf16`` or ``.of(codec)``.
        op: Average (when None), Sum, Min, Max, Product or, of floating-point numbers, Adasum.
        prescale_factor: not 0.
        postscale_factor: not 0.
        process_set: see :mod:`covey.torch`.
        codec: as ``compression=Compression.of(codec, error_feedback=False)``.

    Returns:
        A dense tensor of the same shape and dtype, bitwise equal on every rank.

    Example:
        >>> mean_loss = hvd.allreduce(loss.detach(), name="loss")
    """
    if codec is None and compression is Compression.none and not _wants_gradient(tensor):
        are_floats = type(prescale_factor) is type(postscale_factor) is float
        if average is None and are_floats and prescale_factor == postscale_factor == 1.0:
            return _allreduce(tensor, name=name, op=op, process_set=process_set)
        return _allreduce(
            tensor, average, name, op, prescale_factor, postscale_factor, process_set
        )
    chosen, codec = choose_op(op, average), codec_of(compression, codec)
    small, ctx = compression.compress(tensor)
    (reduced,) = gradients.Allreduce.apply(
        False, name, chosen, prescale_factor, postscale_factor, process_set, codec, small
    )
    return compression.decompress(reduced, ctx)


def grouped_allreduce(
    tensors: Sequence[torch.Tensor],
    average: Optional[bool] = None,
    name: Optional[str] = None,
    compression: Type[Compressor] = Compression.none,
    op: Optional[int] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: Group = world,
    codec: Optional[str] = None,
) -> List[torch.Tensor]:
    """As :func:`allreduce` for a list, ``tensors``, which travel together.

    Dtypes may be mixed: the tensors of one dtype then travel together.

    Example:
        >>> loss, hits = hvd.grouped_allreduce([loss, hits], op=hvd.Sum, name="metrics")
    """
    tensors = many_of(tensors)
    if codec is None and compression is Compression.none and not _wants_gradient(*tensors):
        are_floats = type(prescale_factor) is type(postscale_factor) is float
        if average is None and are_floats and prescale_factor == postscale_factor == 1.0:
            return _grouped_allreduce(tensors, name=name, op=op, process_set=process_set)
        return _grouped_allreduce(
            tensors, average, name, op, prescale_factor, postscale_factor, process_set
        )
    chosen, codec = choose_op(op, average), codec_of(compression, codec)
    pairs = [compression.compress(tensor) for tensor in tensors]
    scales = (prescale_factor, postscale_factor)
    reduced = gradients.Allreduce.apply(
        True, name, chosen, *scales, process_set, codec, *(small for small, _ in pairs)
    )
    return [compression.decompress(small, ctx) for small, (_, ctx) in zip(reduced, pairs)]


def _refuse_codec(compression: Type[Compressor]) -> None:
    if check_compression(compression).codec is not None:
        raise Unsupported(f"reducescatter has no codecs, such as {compression.codec}")


def reducescatter(
    tensor: torch.Tensor,
    name: Optional[str] = None,
    compression: Type[Compressor] = Compression.none,
    op: int = Average,
    process_set: Group = world,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> torch.Tensor:
    """As :func:`allreduce`, and each rank gets a part of the result's rows.

    Dimension 0 is divided in rank order as evenly as possible, the first ranks get one row more.
    Gradients flow through Average and Sum; for their scale see :mod:`covey.torch`.

    Example:
        >>> part = hvd.reducescatter(gradient, op=hvd.Sum, name="part")
    """
    _refuse_codec(compression)
    scales = (prescale_factor, postscale_factor)
    if compression is Compression.none and not _wants_gradient(tensor):
        return _reducescatter(tensor, name, op, process_set, *scales)
    small, ctx = compression.compress(tensor)
    (part,) = gradients.Reducescatter.apply(False, name, op, process_set, *scales, small)
    return compression.decompress(part, ctx)


def grouped_reducescatter(
    tensors: Sequence[torch.Tensor],
    name: Optional[str] = None,
    compression: Type[Compressor] = Compression.none,
    op: int = Average,
    process_set: Group = world,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> List[torch.Tensor]:
    """As :func:`reducescatter` for a list, ``tensors``, which travel together.

    Dtypes may be mixed: the tensors of one dtype then travel together.

    Example:
        >>> weights, biases = hvd.grouped_reducescatter([weights, biases], name="parts")
    """
    _refuse_codec(compression)
    tensors = many_of(tensors)
    scales = (prescale_factor, postscale_factor)
    if compression is Compression.none and not _wants_gradient(*tensors):
        return _grouped_reducescatter(tensors, name, op, process_set, *scales)
    pairs = [compression.compress(tensor) for tensor in tensors]
    parts = gradients.Reducescatter.apply(
        True, name, op, process_set, *scales, *(small for small, _ in pairs)
    )
    return [compression.decompress(small, ctx) for small, (_, ctx) in zip(parts, pairs)]
