"""Reducing the gradients of an optimizer while backward still computes others. Internal.

Each parameter has a hook that runs when its gradient has been accumulated. When the last parameter
of a bucket has had its backward passes, the bucket is submitted; ``synchronize`` submits those
that are not complete (parameters without a gradient contribute zeros, so that the ranks stay
matched) and waits for all of them.
"""

from __future__ import annotations

import contextlib
from typing import Callable, Dict, Iterator, List, Optional, Sequence, Tuple

import torch
from torch.utils.weak import WeakTensorKeyDictionary

from covey.errors import CoveyError, Mismatch
from covey.objects import allgather_object
from covey.state import state
from covey.torch.bucket import Bucket, Reduction, draw_of, make_buckets
from covey.torch.layout import BucketPlan, describe, digest, first_difference

# Parameter -> the hook of the optimizer that wrapped it last: a parameter wrapped again (a second
# training stage, say) must not be reduced twice.
_hooks: "WeakTensorKeyDictionary" = WeakTensorKeyDictionary()

# (word, group) -> (life, made so far): the same on every member, so it can be part of a name.
_made: Dict[Tuple[str, Tuple[int, ...]], Tuple[int, int]] = {}


def next_prefix(word: str, ranks: Sequence[int]) -> str:
    """`word`, with a number when it was asked for before: the same on every member of the group."""
    key = (word, tuple(ranks))
    life, count = _made.get(key, (state.life, 0))
    count = count if life == state.life else 0
    _made[key] = (state.life, count + 1)
    return word if count == 0 else f"{word}{count}"


def check_agreement(header: List[str], plans: Sequence[BucketPlan], reduction: Reduction) -> None:
    """Checks that every member of the group has the same options, parameters and buckets.

    Raises:
        Mismatch: names the first difference, the ranks and both values.
    """
    lines = header + describe(plans)
    group = reduction.group
    hashes = allgather_object(digest(lines), "DistributedOptimizer.hash", group)
    if all(other == hashes[0] for other in hashes):
        return
    everyone = allgather_object(lines, "DistributedOptimizer.layout", group)
    difference = first_difference(everyone, group.ranks)
    raise Mismatch(f"DistributedOptimizer differs between the ranks: {difference}")


class Reducer:
    """The buckets of one optimizer and the state of the step.

    Attributes:
        active: whether gradients are reduced in this step; else they are left alone.
        step: the number of this step.
        look_at: the same, for messages, when gradients are looked at; else None.
    """

    def __init__(
        self,
        plans: Sequence[BucketPlan],
        reduction: Reduction,
        passes: int,
        densify: bool,
    ) -> None:
        prefix = next_prefix("grad", reduction.group.ranks)
        self.buckets = make_buckets(plans, prefix, reduction, densify)
        self.active = True
        self.step = 0
        self.look_at: Optional[int] = None
        self._passes = passes
        self._paused = False
        self._left: List[List[int]] = []
        self._pending: List[int] = []
        self._reset()
        self._handles: List[torch.utils.hooks.RemovableHandle] = []
        for number, bucket in enumerate(self.buckets):
            for index, parameter in enumerate(bucket.parameters):
                self._hook(parameter, self._make_hook(number, index))

    def _hook(self, parameter: torch.nn.Parameter, hook: Callable[[torch.Tensor], None]) -> None:
        older = _hooks.get(parameter)
        if older is not None:
            older.remove()
        handle = parameter.register_post_accumulate_grad_hook(hook)
        _hooks[parameter] = handle
        self._handles.append(handle)

    def remove_hooks(self) -> None:
        """Ends the reduction of these parameters."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def _make_hook(self, number: int, index: int) -> Callable[[torch.Tensor], None]:
        bucket = self.buckets[number]

        def hook(_: torch.Tensor) -> None:
            if bucket.handle is not None:
                self._refuse_pass(bucket, index)
            if self._paused or not self.active:
                return
            left = self._left[number]
            left[index] -= 1
            if left[index] > 0:
                return
            if left[index] < 0:
                self._refuse_pass(bucket, index)
            self._pending[number] -= 1
            if self._pending[number] == 0:
                bucket.submit(self.look_at, draw_of(self.step, number))

        return hook

    def _refuse_pass(self, bucket: Bucket, index: int) -> None:
        raise AssertionError(
            f"The gradient of {bucket.names[index]} was computed more than "
            f"backward_passes_per_step ({self._passes}) times before step(). Increase "
            "backward_passes_per_step, or use no_sync(), to accumulate gradients locally."
        )

    def _reset(self) -> None:
        self._left = [[self._passes] * len(bucket.parameters) for bucket in self.buckets]
        self._pending = [len(bucket.parameters) for bucket in self.buckets]

    @property
    def in_flight(self) -> bool:
        """Whether a bucket was submitted and not yet waited for."""
        return any(bucket.handle is not None for bucket in self.buckets)

    @property
    def has_begun(self) -> bool:
        """Whether there are gradients that were not reduced yet, in a step that reduces them."""
        passes = self._passes
        return self.active and (
            self.in_flight or any(left != passes for of_bucket in self._left for left in of_bucket)
        )

    def set_passes(self, passes: int) -> None:
        """From the next step on a gradient is reduced after ``passes`` backward passes."""
        self._passes = passes
        self._reset()

    def synchronize(self) -> None:
        """Submits what is left and waits for all; then raises the first error, if any."""
        if not self.active:
            return
        first_error: Optional[CoveyError] = None
        for number, bucket in enumerate(self.buckets):
            if bucket.handle is None:
                bucket.submit(self.look_at, draw_of(self.step, number))
        for bucket in self.buckets:
            try:
                bucket.finish()
            except CoveyError as error:
                first_error = first_error or error
        self._reset()
        if first_error is not None:
            raise first_error

    def forget(self) -> None:
        """Drops the gradients computed so far; nothing may be in flight."""
        assert not self.in_flight
        self._reset()

    def abandon(self) -> None:
        """Waits for what is in flight, whatever comes of it, and begins anew."""
        for bucket in self.buckets:
            if bucket.handle is not None:
                with contextlib.suppress(CoveyError):
                    bucket.finish()
        self._reset()

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Gradients are accumulated locally and not counted as passes."""
        before, self._paused = self._paused, True
        try:
            yield
        finally:
            self._paused = before
