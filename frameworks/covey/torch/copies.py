"""Many tensors on the CPU copied at once. Internal."""

from __future__ import annotations

from typing import List, Sequence, Tuple

import torch

from covey import _native


def copy_past_caches(targets: Sequence[torch.Tensor], sources: Sequence[torch.Tensor]) -> None:
    """``targets[i]`` becomes ``sources[i]``, of its shape. For more than caches hold, which others
    read."""
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
        and (source.is_contiguous() or torch.ops.aten.is_non_overlapping_and_dense(source))
    )
