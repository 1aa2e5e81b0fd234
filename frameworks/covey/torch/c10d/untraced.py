"""Methods that TorchDynamo runs as they are: it makes no graph of them or of what they call. Internal.

torch.compile breaks its graph at such a call. For a process group in C++ it does the same.
"""

from __future__ import annotations

from types import FunctionType
from typing import Any, TypeVar

import torch

Marked = TypeVar("Marked", bound=Any)


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
    frames = getattr(getattr(torch._C, "_dynamo", None), "eval_frame", None)
    if hasattr(frames, "set_code_exec_strategy") and hasattr(frames, "_FrameExecStrategy"):
        skip = frames._FrameAction.SKIP
        frames.set_code_exec_strategy(marked.__code__, frames._FrameExecStrategy(skip, skip))
    return marked
