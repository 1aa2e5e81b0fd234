"""Copies of gradients to memory that other ranks read. Internal."""

from __future__ import annotations

from typing import Callable, List, Optional, Sequence, Tuple

import torch

from covey import _native
from covey.torch.layout import BucketPlan

FEW_BYTES = 64 << 10
"""They are as well copied through the caches."""
_LARGE_BYTES = 8 << 20  # More than caches hold.
_is_lazy: Optional[Callable[[torch.Tensor], bool]] = getattr(torch._C, "_is_cow_tensor", None)


def are_large(plans: Sequence[BucketPlan]) -> bool:
    """Whether all together are more than caches hold: they are stored around them."""
    return sum(plan.length * plan.dtype.itemsize for plan in plans) >= _LARGE_BYTES


def copy_past_caches(targets: Sequence[torch.Tensor], sources: Sequence[torch.Tensor]) -> None:
    """``targets[i]`` on the CPU becomes ``sources[i]``, of its shape. For more than caches hold,
    which others read."""
    blocks: List[Tuple[int, int, int]] = []
    others: Tuple[List[torch.Tensor], List[torch.Tensor]] = [], []
    for target, source in zip(targets, sources):
        if lie_alike(target, source):
            length = target.numel() * target.element_size()
            blocks.append((target.data_ptr(), source.data_ptr(), length))
        else:
            others[0].append(target)
            others[1].append(source)
    if others[0]:
        torch._foreach_copy_(*others)
    if blocks:
        _native.copy_past_caches(*zip(*blocks))


def lie_alike(target: torch.Tensor, source: torch.Tensor) -> bool:
    """Both fill one piece of memory, in the same order, as numbers that mean the same."""
    return (
        type(source) in (torch.Tensor, torch.nn.Parameter)
        and source.device.type == "cpu"
        and source.dtype == target.dtype
        and source.stride() == target.stride()
        and source.shape == target.shape
        and not source.is_neg()
        and not source.is_conj()
        and not (_is_lazy is not None and _is_lazy(source))  # Its address would make it a copy.
        and (source.is_contiguous() or torch.ops.aten.is_non_overlapping_and_dense(source))
    )
