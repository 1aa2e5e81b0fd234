"""The treatment of gradients right before an update, by every method: they are clipped to
``clip_norm=``, then shown to ``before_update`` functions. Internal.

As ``torch.nn.utils.clip_grad_norm_`` over all parameters of the optimizer, after Pascanu, Mikolov
and Bengio (2013, arXiv:1211.5063), at the one place where it is exact: what is averaged is clipped
after it was averaged, once for each version that is applied, also in replay; where models are
averaged, each rank's own gradients before its own step.

Replicas stay bitwise equal: the norm is made of pieces of a fixed length, whose squares are added
up without rounding, so it does not depend on the number of threads of a rank.
"""

from __future__ import annotations

import math
from typing import Any, Callable, List, Optional, Sequence

import torch

from covey.errors import Unsupported
from covey.torch.own import make_fit
from covey.torch.update import update

_PIECE = 4096  # Elements. Fewer than torch divides between threads.
_HALVES = (torch.float16, torch.bfloat16)
_TINY = 1e-6  # As torch has it, so that both give the same.


class _Unfit(Exception):
    """Ends the step of the user's class without an update."""

    def __init__(self, loss: Any) -> None:
        super().__init__()
        self.loss = loss


def clipped_step(optimizer: Any, closure: Optional[Callable[[], Any]] = None) -> Any:
    """The step of the user's class, with clipped gradients; none if they are unfit (``own.py``)."""
    if closure is None:
        if not make_fit(optimizer):
            return None
        prepare(optimizer)
        return update(optimizer)
    whole: Callable[[], Any] = closure

    def clipped() -> Any:
        with torch.enable_grad():
            loss = whole()
        if not make_fit(optimizer):
            raise _Unfit(loss)
        prepare(optimizer)
        return loss

    try:
        return update(optimizer, clipped)
    except _Unfit as unfit:
        return unfit.loss


def before_update(optimizer: Any, function: Callable[[], Any]) -> None:
    """From now on calls ``function()`` before each update, when ``grad`` is what it will use.

    With a method that does not wait for all ranks a step applies as many versions as were made: so
    clipping is exact and the same on all ranks, also for one that is late. (By the norm of all
    gradients: ``clip_norm=`` of the method does it, before ``function``.) Where models are averaged
    it sees this rank's own gradients; with a closure it is called after each evaluation.

    Example:
        >>> optimizer.before_update(lambda: torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0))
    """
    optimizer._covey_functions.append(function)


def prepare(optimizer: Any) -> None:
    """The work between the gradients of an update and the update."""
    clip(optimizer)
    for function in optimizer._covey_functions:
        function()


def clip(optimizer: Any) -> None:
    """Scales the gradients down to ``clip_norm``, if their norm is greater.

    Raises:
        Unsupported: (a ValueError) one of them is sparse.
    """
    largest = optimizer._covey_progress.clip_norm
    if largest is None:
        return
    gradients = [
        parameter.grad
        for group in optimizer.param_groups
        for parameter in group["params"]
        if parameter.grad is not None
    ]
    if any(gradient.layout is not torch.strided for gradient in gradients):
        raise Unsupported("a gradient is sparse: clip_norm is for dense ones")
    scale = largest / (norm_of(gradients) + _TINY)
    if scale < 1 and gradients:
        with torch.no_grad():
            torch._foreach_mul_(gradients, scale)


@torch.no_grad()
def norm_of(gradients: Sequence[torch.Tensor]) -> float:
    """The Euclidean norm of all of them together; nan where one has a nan."""
    squares: List[float] = []
    for gradient in gradients:
        flat = _flat(gradient)
        dtype = torch.float32 if flat.dtype in _HALVES else flat.dtype
        whole = flat.numel() // _PIECE * _PIECE
        pieces = flat[:whole].view(-1, _PIECE)
        norms = [torch.linalg.vector_norm(pieces, dim=1, dtype=dtype)] if whole else []
        norms.append(torch.linalg.vector_norm(flat[whole:], dtype=dtype))
        for norm in norms:
            squares += norm.double().square().flatten().tolist()
    try:
        return math.sqrt(math.fsum(squares))
    except OverflowError:
        return math.inf


def _flat(gradient: torch.Tensor) -> torch.Tensor:
    """Its elements as they lie in memory, without a copy where they are dense."""
    by_stride = sorted(range(gradient.dim()), key=gradient.stride, reverse=True)
    return gradient.detach().permute(by_stride).reshape(-1)
