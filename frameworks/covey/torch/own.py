"""A step with this rank's own gradients, which no other rank sees before its result is mixed.
Internal.

A rank whose gradients overflowed, as a GradScaler has found, or hold what ``check_nan`` refuses
does no update. It has done the step all the same, and takes part in what follows with what it has:
else it would be one step behind, and the others wait for it in the end. Where gradients are reduced
by all ranks together a GradScaler sees what they have become, and all do, or skip, the same.
"""

from __future__ import annotations

from typing import Any, Optional, Tuple

import torch

from covey.torch.look import is_on, unfit


def is_own(optimizer: Any) -> bool:
    """Whether the gradients of the next step are not reduced by all ranks together."""
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


def make_fit(optimizer: Any) -> bool:
    """Whether there may be an update; the gradients are not scaled any more then."""
    progress = optimizer._covey_progress
    progress.unfit = ""
    scale, is_whole = take_scale(optimizer)
    if not is_whole:
        return False
    if scale is not None:
        parameters = (it for group in optimizer.param_groups for it in group["params"])
        gradients = [it.grad for it in parameters if it.grad is not None]
        with torch.no_grad():
            torch._foreach_div_(gradients, float(scale)) if gradients else None
    if is_own(optimizer) and is_on():
        progress.unfit = unfit(((name, it.grad) for name, it in progress.named), progress.steps)
    return not progress.unfit


def _scales_itself(optimizer: Any) -> bool:
    """A GradScaler calls step() also to skip it, and leaves the scale to it. It asks before it
    looks at the gradients: those that are reduced by all have to be there, alike on all ranks."""
    reducer = optimizer._covey_reducer
    if reducer is not None and reducer.has_begun and optimizer._covey_should_synchronize:
        settle(optimizer)
    own = optimizer.__dict__.get("_step_supports_amp_scaling", False)
    return is_own(optimizer) or bool(own)


def settle(optimizer: Any) -> None:
    """Reduces gradients before ``step()``, which then applies them as they are."""
    optimizer.synchronize()
    optimizer._covey_synchronized, optimizer._covey_is_settled = False, True


def take_settled(optimizer: Any) -> bool:
    """Whether ``settle`` was called for the update that comes."""
    is_settled, optimizer._covey_is_settled = optimizer._covey_is_settled, False
    reducer = optimizer._covey_reducer
    return is_settled and not (reducer is not None and reducer.has_begun)


def _keep(optimizer: Any, value: bool) -> None:
    optimizer.__dict__["_step_supports_amp_scaling"] = value


supports_scaling = property(_scales_itself, _keep)
"""Of an optimizer: ``_step_supports_amp_scaling``, which torch asks for."""
