"""A process group's methods under torch's compiler and profiler. Internal.

TorchDynamo runs them as they are: it makes no graph of them or of what they call. torch.compile
breaks its graph at such a call. For a process group in C++ it does the same.
"""

from __future__ import annotations

import functools
from types import FunctionType
from typing import Any, Callable, Iterable, TypeVar

import torch
from torch.autograd.profiler import record_function

from covey.errors import Unsupported

Marked = TypeVar("Marked", bound=Any)
_is_profiled = torch.autograd._profiler_enabled  # type: ignore[attr-defined]


def untraced(marked: Marked) -> Marked:
    """A function, or a class for all functions that it defines but for those with a double
    underscore. A call costs what it did before: the mark lies in the function's code.

    torch before 2.7 has no such mark. It gets none of ``torch.compiler.disable``, whose import of
    torch._dynamo takes seconds.
    """
    if isinstance(marked, type):
        for name, member in vars(marked).items():
            if isinstance(member, FunctionType) and not name.startswith("__"):
                untraced(member)
        return marked
    marked._torchdynamo_disable = True  # The trace of a caller ends here.
    frames: Any = getattr(getattr(torch._C, "_dynamo", None), "eval_frame", None)
    if hasattr(frames, "set_code_exec_strategy") and hasattr(frames, "_FrameExecStrategy"):
        skip = frames._FrameAction.SKIP
        frames.set_code_exec_strategy(marked.__code__, frames._FrameExecStrategy(skip, skip))
    return marked


def profiled(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator of methods that are untraced, and that torch's profiler shows as ``c10d::name``,
    as it does the operators of torch's own backends. Where none is active, 0.1 us."""

    def decorate(method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        def call(*given: Any, **named: Any) -> Any:
            if not _is_profiled():
                return method(*given, **named)
            with record_function(f"c10d::{name}"):
                return method(*given, **named)

        return untraced(call)

    return decorate


def check_real(given: Any, what: str) -> None:
    """Raises Unsupported for a FakeTensor, or a list with one."""
    if type(given) is torch.Tensor:  # pylint: disable=unidiomatic-typecheck  # Nearly always.
        return
    each: Iterable[Any] = given if isinstance(given, (list, tuple)) else (given,)
    if any(type(it).__name__ == "FakeTensor" for it in each):
        raise Unsupported(
            f"{what} over Covey moves data, and a FakeTensor has none: make the call outside of "
            "FakeTensorMode, or use torch.distributed._functional_collectives, which take them"
        )
