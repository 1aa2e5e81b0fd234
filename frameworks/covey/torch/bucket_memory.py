"""Room for the gradients of a bucket, and where each lies in it. Internal."""

from __future__ import annotations

from typing import List

import torch

from covey.torch.layout import BucketPlan, gradient_strides


class BucketMemory:
    """Room for the gradients of a bucket.

    Attributes:
        flat: [plan.length] all of it.
        views: the place of each gradient.
        encoded: without the flags.
        flags: [parameters + 1] 1 where there is a gradient, and last if there is a sparse one.
    """

    __slots__ = ("flat", "views", "encoded", "flags")

    def __init__(self, plan: BucketPlan, flat: torch.Tensor) -> None:
        self.flat = flat
        self.views = views_of(plan, flat)
        self.encoded = flat[: plan.flags_offset]
        self.flags = flat[plan.flags_offset : plan.flags_offset + len(plan.slots) + 1]


def views_of(plan: BucketPlan, flat: torch.Tensor) -> List[torch.Tensor]:
    """The places of the parameters in ``flat`` [plan.length]."""
    return [
        flat.as_strided(
            slot.parameter.shape,
            gradient_strides(slot.parameter),
            flat.storage_offset() + slot.offset,
        )
        for slot in plan.slots
    ]
