"""When a pass begins, for a rank that takes up what others have decided meanwhile. Internal.

A rank that was late, in loading data or in anything else between two steps, would compute its next
gradient at parameters of some versions ago, for a step that is over. So when it begins a pass, at
``zero_grad()`` or at the forward pass of the ``model`` that the optimizer was told, it applies the
versions that there are, and waits for one that is due in a moment; its gradient is for the step
after the last of them (``covey_trainer_begin_pass``).

Parameters may not change between a forward pass and its backward pass. That one has begun shows in
that this thread has made a node of a graph since ``step()``, for whatever model.
"""

from __future__ import annotations

import contextlib
import functools
import threading
import weakref
from typing import Any, Callable, Iterator, Optional, Tuple

import torch

# How many nodes of graphs this thread has made.
_nodes: Optional[Callable[[], int]] = getattr(torch._C._autograd, "_get_sequence_nr", None)


def _now() -> Optional[Tuple[int, int]]:
    return None if _nodes is None else (threading.get_ident(), _nodes())


class Ahead:
    """When a pass of one optimizer in rounds of gradients may begin, and that it does."""

    def __init__(self, trainer: Any, model: Optional[torch.nn.Module]) -> None:
        self._trainer = weakref.ref(trainer)
        self._settled: Optional[Tuple[int, int]] = None
        hook = _BeforeForward(self)
        self._hook = None if model is None else model.register_forward_pre_hook(hook)

    def close(self) -> None:
        self.pause()
        if self._hook is not None:
            self._hook.remove()

    def pause(self) -> None:
        """A step has begun, or versions are being applied."""
        self._settled = None

    def settle(self) -> None:
        """That is over: from now on nothing but a pass depends on the parameters."""
        self._settled = _now()

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Within it no pass begins."""
        settled, self._settled = self._settled, None
        try:
            yield
        finally:
            self._settled = settled

    def look(self) -> None:
        """A pass may begin.

        Raises:
            As ``step()``, on a rank that has fallen behind further than the log.
        """
        if torch.compiler.is_compiling() or self._settled is None or self._settled != _now():
            return
        trainer = self._trainer()
        if trainer is None or torch.is_inference_mode_enabled() or _is_watched():
            return
        self.pause()
        trainer.catch_up()
        self.settle()


def _is_watched() -> bool:
    """A tracer records the model, or it runs with other parameters."""
    transforms = torch._C._functorch.peek_interpreter_stack()
    return torch.jit.is_tracing() or transforms is not None


class _BeforeForward:
    """The hook of the model. A copy of it, also of another process, does nothing."""

    def __init__(self, ahead: Ahead) -> None:
        self._ahead = weakref.ref(ahead)

    def __call__(self, module: torch.nn.Module, _: Any) -> None:
        if torch.compiler.is_compiling() or not module.training or not torch.is_grad_enabled():
            return
        ahead = self._ahead()
        if ahead is not None:
            ahead.look()

    def __reduce__(self) -> Any:
        # Gives back the inputs that it is called with, and needs nothing of ours to be loaded.
        return functools.partial, (dict.get, {})
