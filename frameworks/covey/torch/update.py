"""One update of an optimizer, by every method, and what is done to gradients right before it.
Internal.

Gradients are clipped to ``clip_norm=``, then shown to ``before_update`` functions. Clipping is as
``torch.nn.utils.clip_grad_norm_`` over all parameters of the optimizer, after Pascanu, Mikolov and
Bengio (2013, arXiv:1211.5063), at the one place where it is exact: what is averaged is clipped
after it was averaged, once for each version that is applied, also in replay; where models are
averaged, each rank's own gradients before its own step. Replicas stay bitwise equal: the norm is
made of pieces of a fixed length, whose squares are added up without rounding, so it does not depend
on the number of threads of a rank.

A rank whose own gradients, which no other rank sees before their result is mixed, overflowed, as a
GradScaler has found, or hold what ``check_nan`` refuses does no update. It has done the step all
the same, and takes part in what follows with what it has: else it would be one step behind, and the
others wait for it in the end. Where gradients are reduced by all ranks together a GradScaler sees
what they have become, and all do, or skip, the same.
"""

from __future__ import annotations

import contextlib
import math
from typing import Any, Callable, Iterator, List, Optional, Sequence, Tuple

import torch

from covey.errors import NotFinite, Unsupported
from covey.torch.layout import parameters_of
from covey.torch.look import is_on, unfit

try:
    from torch.optim.optimizer import _global_optimizer_pre_hooks as _OF_EVERY_OPTIMIZER
except ImportError:
    _OF_EVERY_OPTIMIZER = {}

_PIECE = 4096  # Elements. Fewer than torch divides between threads.
_HALVES = (torch.float16, torch.bfloat16)
_TINY = 1e-6  # As torch has it, so that both give the same.


class _Unfit(Exception):
    """Ends the step of the user's class without an update."""

    def __init__(self, loss: Any) -> None:
        super().__init__()
        self.loss = loss


def clipped_step(
    optimizer: Any,
    closure: Optional[Callable[[], Any]] = None,
    done: Optional[Callable[[], None]] = None,
) -> Any:
    """The step of the user's class, with clipped gradients; none if they are unfit. ``done``: as of
    ``update``."""
    if closure is None:
        if not _make_fit(optimizer):
            return None
        prepare(optimizer)
        return update(optimizer, done=done)
    whole: Callable[[], Any] = closure

    def clipped() -> Any:
        with torch.enable_grad():
            loss = whole()
        if not _make_fit(optimizer):
            raise _Unfit(loss)
        prepare(optimizer)
        return loss

    try:
        return update(optimizer, clipped, done)
    except _Unfit as no_update:
        return no_update.loss


def update(
    optimizer: Any,
    closure: Optional[Callable[[], Any]] = None,
    done: Optional[Callable[[], None]] = None,
) -> Any:
    """The step of the user's class with its hooks; returns what that does. ``done`` is called after
    the update, before post-hooks of the script.

    A step post-hook of the script's (logging, an average over time) may raise, and so may Ctrl-C in
    it. The update was done then: it must not be done again, and this rank has to take part in what
    the others do after theirs. So ``raise_late`` raises it, once the step is over.
    """
    if not hasattr(optimizer, "_covey_done"):  # From now on the first post-hook notes it.
        handle = optimizer.register_step_post_hook(_note)
        optimizer._optimizer_step_post_hooks.move_to_end(handle.id, last=False)
    optimizer._covey_was_updated, optimizer._covey_done = False, done
    step = optimizer._covey_super().step
    try:
        return step() if closure is None else step(closure)
    except BaseException as error:  # pylint: disable=broad-except
        if not optimizer._covey_was_updated:
            raise
        optimizer._covey_raised = optimizer._covey_raised or error
        return None
    finally:
        optimizer._covey_done = None


def _note(optimizer: Any, *_: Any) -> None:
    optimizer._covey_was_updated = True
    if optimizer._covey_done is not None:
        optimizer._covey_done()


def runs_before_update(optimizer: Any) -> bool:
    """Whether functions of the script run between its gradients and an update."""
    own = getattr(optimizer, "_optimizer_step_pre_hooks", None)
    return bool(optimizer._covey_functions or own or _OF_EVERY_OPTIMIZER)


@contextlib.contextmanager
def reduced_until_done(optimizer: Any) -> Iterator[None]:
    """Gradients are reduced. If what it holds raises before the update, the next ``step()`` finds
    them so, and reduces them no more."""
    optimizer._covey_was_updated = False
    try:
        yield
    except BaseException:
        optimizer._covey_is_settled = not optimizer._covey_was_updated
        raise


def raise_late(optimizer: Any) -> None:
    """Raises the first of what hooks have raised after updates since this was called last."""
    error, optimizer._covey_raised = optimizer._covey_raised, None
    if error is not None:
        raise error


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
    """The work between the gradients of an update and the update.

    Raises:
        Unsupported: (a ValueError) one of them is sparse, and there is a ``clip_norm``.
    """
    largest = optimizer._covey_progress.clip_norm
    if largest is not None:
        _clip(parameters_of(optimizer), largest)
    for function in optimizer._covey_functions:
        function()


def _clip(parameters: Sequence[torch.Tensor], largest: float) -> None:
    gradients = [it.grad for it in parameters if it.grad is not None]
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
        # The elements as they lie in memory, without a copy where they are dense.
        by_stride = sorted(range(gradient.dim()), key=gradient.stride, reverse=True)
        flat = gradient.detach().permute(by_stride).reshape(-1)
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


def _is_own(optimizer: Any) -> bool:
    progress = optimizer._covey_progress
    return bool(progress.is_shared and not progress.reduces)


def take_scale(optimizer: Any) -> Tuple[Optional[torch.Tensor], bool]:
    """This rank's gradients by its GradScaler: their scale, and whether they are whole.

    It is for those alone: what is applied is unscaled, and whole.
    """
    scale = getattr(optimizer, "grad_scale", None)
    overflow = getattr(optimizer, "found_inf", None)
    if overflow is not None:
        optimizer.grad_scale = optimizer.found_inf = None
    return scale, overflow is None or not bool(overflow)


def _make_fit(optimizer: Any) -> bool:
    """Whether there may be an update; the gradients are not scaled any more then."""
    progress = optimizer._covey_progress
    progress.unfit = ""
    scale, is_whole = take_scale(optimizer)
    if not is_whole:
        return False
    if scale is not None:
        gradients = [it.grad for it in parameters_of(optimizer) if it.grad is not None]
        with torch.no_grad():
            torch._foreach_div_(gradients, float(scale)) if gradients else None
    if _is_own(optimizer) and is_on():
        progress.unfit = unfit(((name, it.grad) for name, it in progress.named), progress.steps)
    return not progress.unfit


def scales_itself(optimizer: Any) -> bool:
    """A GradScaler calls step() also to skip it, and leaves the scale to it. It asks before it
    looks at the gradients: those that are reduced by all have to be there, alike on all ranks."""
    reducer = optimizer._covey_reducer
    if reducer is not None and reducer.has_begun and optimizer._covey_should_synchronize:
        _settle_scaled(optimizer)
    own = optimizer.__dict__.get("_step_supports_amp_scaling", False)
    return _is_own(optimizer) or bool(own)


def _settle_scaled(optimizer: Any) -> None:
    """Reduces gradients before the ``step()`` of a GradScaler. Gradients that ``check_nan`` refuses
    count as an overflow on all ranks.

    A scaler looks at gradients when it unscales them, which may be before they are averaged: it
    would then apply the overflow of another rank.
    """
    parameters = parameters_of(optimizer)
    try:
        settle(optimizer)
    except NotFinite:
        parameters[0].grad = torch.full_like(parameters[0], math.inf)
        optimizer._covey_is_settled = True
    gradients = [_numbers_of(it.grad) for it in parameters if it.grad is not None]
    optimizer._covey_overflowed = not math.isfinite(norm_of(gradients))


def _numbers_of(gradient: torch.Tensor) -> torch.Tensor:
    return gradient if gradient.layout is torch.strided else gradient._values()


def take_overflow(optimizer: Any) -> bool:
    """Whether ``step()`` is of a GradScaler and left out by all ranks, as some scalers do not call
    it: gradients have overflowed on a rank."""
    overflowed = optimizer.__dict__.pop("_covey_overflowed", False)
    return bool(overflowed) and take_settled(optimizer)


def settle(optimizer: Any) -> None:
    """Reduces gradients before ``step()``, which then applies them as they are."""
    optimizer.synchronize()
    optimizer._covey_synchronized, optimizer._covey_is_settled = False, True


def take_settled(optimizer: Any) -> bool:
    """Whether ``settle`` was called for the update that comes."""
    is_settled, optimizer._covey_is_settled = optimizer._covey_is_settled, False
    reducer = optimizer._covey_reducer
    return is_settled and not (reducer is not None and reducer.has_begun)
