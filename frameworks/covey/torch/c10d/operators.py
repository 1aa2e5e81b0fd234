"""The reduction of Covey that stands for one of torch.distributed. Internal."""

from __future__ import annotations

from typing import Any, Callable, NamedTuple, Optional

import torch
import torch.distributed as dist

import covey.torch as hvd
from covey.errors import Unsupported

_OPERATORS = {
    dist.ReduceOp.SUM: hvd.Sum,
    dist.ReduceOp.AVG: hvd.Average,
    dist.ReduceOp.MIN: hvd.Min,
    dist.ReduceOp.MAX: hvd.Max,
    dist.ReduceOp.PRODUCT: hvd.Product,
}
_OF_TRUTHS = {hvd.Sum: hvd.Max, hvd.Max: hvd.Max, hvd.Min: hvd.Min, hvd.Product: hvd.Min}
"""True is 1: a sum is true if one is, a product if all are."""
_OF_BITS = {
    dist.ReduceOp.BAND: torch.bitwise_and,
    dist.ReduceOp.BOR: torch.bitwise_or,
    dist.ReduceOp.BXOR: torch.bitwise_xor,
}


class Carried(NamedTuple):
    """A tensor as Covey reduces it.

    Attributes:
        tensor: itself; for bool one of uint8, for complex numbers their real and imaginary parts,
            in a dimension more.
        op: Covey's, of that tensor.
        back: converts the result, or rows of it, to the dtype that was given.
    """

    tensor: torch.Tensor
    op: int
    back: Callable[[torch.Tensor], torch.Tensor]


def name_of(op: Any) -> str:
    """As scripts write it."""
    names = ("SUM", "AVG", "MIN", "MAX", "PRODUCT", "PREMUL_SUM", "UNUSED", "BAND", "BOR", "BXOR")
    known = (name for name in names if op == getattr(dist.ReduceOp, name, None))
    return f"ReduceOp.{next(known, op)}"


def operator_of(op: Any) -> int:
    """Covey's. Raises Unsupported."""
    for theirs, ours in _OPERATORS.items():
        if op == theirs:
            return ours
    raise Unsupported(
        f"{name_of(op)} is no reduction of Covey's for this tensor: there are SUM, "
        "AVG, MIN, MAX and PRODUCT, and of integers BAND, BOR and BXOR"
    )


def bits_of(op: Any, tensor: torch.Tensor) -> Optional[Callable[..., torch.Tensor]]:
    """The function of two tensors for a reduction by bits; None: it is none."""
    if tensor.is_floating_point() or tensor.is_complex():
        return None
    return next((function for theirs, function in _OF_BITS.items() if op == theirs), None)


def carried(tensor: torch.Tensor, op: Any) -> Carried:
    """``tensor`` for a reduction that is none by bits.

    Raises:
        Unsupported: there is none, or not of complex numbers.
    """
    ours = operator_of(op)
    if tensor.dtype == torch.bool and ours in _OF_TRUTHS:
        return Carried(tensor.to(torch.uint8), _OF_TRUTHS[ours], torch.Tensor.bool)
    if not tensor.is_complex():
        return Carried(tensor, ours, lambda it: it)
    if ours not in (hvd.Sum, hvd.Average):
        raise Unsupported(f"complex numbers have SUM and AVG, no {name_of(op)}")
    return Carried(torch.view_as_real(tensor.resolve_conj()), ours, torch.view_as_complex)
