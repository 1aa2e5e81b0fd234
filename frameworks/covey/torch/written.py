"""Whether complete gradients were written to: clipped, unscaled, replaced. Internal.

Such writing counts: the ``grad`` at ``step()`` is reduced. Torch counts the writes to a
tensor, which costs nothing to look at, but not those by way of ``grad.data`` or NumPy. For them the
memory is made one that torch copies when it is written to (copy on write). Gradients that lie in
the bucket are compared with a copy.
"""

from __future__ import annotations

from typing import Any, Callable, List, Optional, Sequence

import torch

_FIRST = 4
_EVERY = 16
_lazy_clone: Optional[Callable[[torch.Tensor], torch.Tensor]] = getattr(torch, "_lazy_clone", None)
_is_lazy: Optional[Callable[[torch.Tensor], bool]] = getattr(torch._C, "_is_cow_tensor", None)


def looks_again(step: int) -> bool:
    """Whether this step checks again that a script writes to gradients. The check copies them.

    Example:
        >>> [step for step in range(40) if looks_again(step)]
        [0, 1, 2, 3, 16, 32]
    """
    return step < _FIRST or step % _EVERY == 0


class Seen:
    """Parameters' gradients as they were when they were complete."""

    def __init__(
        self,
        parameters: Sequence[torch.Tensor],
        views: Sequence[torch.Tensor],
        lazy: bool,
        copies: bool,
    ) -> None:
        """``views``: where they may lie in the bucket. Writing by way of ``grad.data`` or NumPy is
        looked for in those that lie elsewhere if ``lazy``, in the others if ``copies``."""
        self._parameters = parameters
        self._gradients = [parameter.grad for parameter in parameters]
        self._versions = [0 if it is None else it._version for it in self._gradients]
        self._lazy: List[Any] = []  # A gradient, and the clone that makes it copy on write.
        self._copied: List[Any] = []  # A gradient, and a copy.
        for gradient, view in zip(self._gradients, views):
            if gradient is None or gradient.layout is not torch.strided:
                continue
            if gradient is view:
                if copies:
                    self._copy(gradient)
            elif lazy:
                self._make_lazy(gradient)

    def _copy(self, gradient: torch.Tensor) -> None:
        self._copied.append((gradient.detach(), gradient.detach().clone()))

    def _make_lazy(self, gradient: torch.Tensor) -> None:
        if _lazy_clone is None or _is_lazy is None:
            return self._copy(gradient)
        try:
            self._lazy.append((gradient, _lazy_clone(gradient.detach())))
        except RuntimeError:  # Memory that is not torch's own.
            self._copy(gradient)

    def is_rewritten(self) -> bool:
        """Whether one of them was written to, or is another tensor."""
        for parameter, gradient, version in zip(self._parameters, self._gradients, self._versions):
            if parameter.grad is not gradient:
                return True
            if gradient is not None and gradient._version != version:
                return True
        touched = [it for it in self._lazy if not _is_lazy(it[0])]  # type: ignore[misc]
        return not all(_same(gradient, copy) for gradient, copy in touched + self._copied)


def _same(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether they are equal; what is no number is equal to itself."""
    return bool(((one == other) | ((one != one) & (other != other))).all())
