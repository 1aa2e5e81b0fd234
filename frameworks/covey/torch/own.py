"""A step with this rank's own gradients, which nobody sees before its result is mixed. Internal.

A rank whose gradients overflowed, as a GradScaler has found, or hold what ``check_nan`` refuses
does no update. It has done the step all the same, and takes part in what follows with what it has:
else it would be one step behind, and the others wait for it in the end.
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
    """What a GradScaler says of this rank's gradients: their scale, and whether they are whole.

    It is for those alone: what is applied is unscaled, and whole.
    """
    scale = getattr(optimizer, "grad_scale", None)
    overflow = getattr(optimizer, "found_inf", None)
    if overflow is not None:
        optimizer.grad_scale = optimizer.found_inf = None
    return scale, overflow is None or not bool(overflow)


def make_fit(optimizer: Any) -> bool:
    """Whether there may be an update; the gradients are not scaled any more then."""
    if not is_own(optimizer):
        return True
    progress = optimizer._covey_progress
    progress.unfit = ""
    scale, is_whole = take_scale(optimizer)
    if not is_whole:
        return False
    gradients = [(name, it.grad) for name, it in progress.named if it.grad is not None]
    if scale is not None and gradients:
        with torch.no_grad():
            torch._foreach_div_([gradient for _, gradient in gradients], float(scale))
    if is_on():
        progress.unfit = unfit(gradients, progress.steps)
    return not progress.unfit


def _scales_itself(optimizer: Any) -> bool:
    """A GradScaler calls step() also to skip it, and leaves the scale to it."""
    own = optimizer.__dict__.get("_step_supports_amp_scaling", False)
    return is_own(optimizer) or bool(own)


def _keep(optimizer: Any, value: bool) -> None:
    optimizer.__dict__["_step_supports_amp_scaling"] = value


supports_scaling = property(_scales_itself, _keep)
"""Of an optimizer: ``_step_supports_amp_scaling``, which torch asks for."""
