"""Whether complete gradients were written to: clipped, unscaled, replaced. Internal.

Such writing counts: what ``grad`` is at ``step()`` is what is reduced. Torch counts the writes to a
tensor, which costs nothing to look at, but not those by way of ``grad.data`` or NumPy. For them the
memory is made one that torch copies when it is written to (copy on write), in a training's first
steps and from then on in every 16th: a script that writes does so in every step, as a rule.
"""

from __future__ import annotations

from typing import Any, Callable, List, Optional, Sequence

import torch

_FIRST = 4
_EVERY = 16
_lazy_clone: Optional[Callable[[torch.Tensor], torch.Tensor]] = getattr(torch, "_lazy_clone", None)
_is_lazy: Optional[Callable[[torch.Tensor], bool]] = getattr(torch._C, "_is_cow_tensor", None)


def watches(step: int) -> bool:
    """Whether writes of any kind are looked for in this step.

    Example:
        >>> [step for step in range(40) if watches(step)]
        [0, 1, 2, 3, 16, 32]
    """
    return step < _FIRST or step % _EVERY == 0


class Seen:
    """The gradients of a bucket as they were when it was complete."""

    def __init__(
        self, parameters: Sequence[torch.Tensor], views: Sequence[torch.Tensor], watched: bool
    ) -> None:
        """``views``: where they may lie in the bucket. ``watched``: see the module."""
        self._gradients = [parameter.grad for parameter in parameters]
        self._versions = [0 if it is None else it._version for it in self._gradients]
        self._lazy: List[Any] = []  # A gradient, and the clone that makes it copy on write.
        self._lying: List[Any] = []  # One that lies in the bucket, and a copy.
        if watched:
            self._watch(views)

    def _watch(self, views: Sequence[torch.Tensor]) -> None:
        for gradient, view in zip(self._gradients, views):
            if gradient is None or gradient.layout is not torch.strided:
                continue
            if gradient is view:
                self._lying.append((gradient.detach(), gradient.detach().clone()))
            elif _lazy_clone is not None and _is_lazy is not None:
                try:
                    self._lazy.append((gradient, _lazy_clone(gradient.detach())))
                except RuntimeError:  # Memory that is not torch's own.
                    self._lying.append((gradient.detach(), gradient.detach().clone()))

    def is_rewritten(self, parameters: Sequence[torch.Tensor]) -> bool:
        """Whether one of them was written to, or is another tensor."""
        for parameter, gradient, version in zip(parameters, self._gradients, self._versions):
            if parameter.grad is not gradient:
                return True
            if gradient is not None and gradient._version != version:
                return True
        touched = [it for it in self._lazy if not _is_lazy(it[0])]  # type: ignore[misc]
        return not all(_same(gradient, copy) for gradient, copy in touched + self._lying)


def _same(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether they are equal; what is no number is equal to itself."""
    return bool(((one == other) | ((one != one) & (other != other))).all())
