"""Where the result of a call on tensors of CUDA comes. Internal."""

from __future__ import annotations

import contextlib
from typing import Any, ContextManager, Iterable, List, Optional

import torch


class CallStream:
    """The stream of CUDA on which a call was made; of calls on the CPU there is none.

    The stream has the call's tensors as they were when it was made, and its result, in turn.
    """

    def __init__(self, tensors: Iterable[Any]) -> None:
        """``tensors``: the arguments of the call."""
        self._stream: Any = None
        if torch.cuda.is_initialized():
            devices = (it.device for it in tensors if isinstance(it, torch.Tensor) and it.is_cuda)
            device = next(devices, None)
            self._stream = device and torch.cuda.current_stream(device)

    @property
    def devices(self) -> Optional[List[torch.device]]:
        """Of the tensors, for the call's future; None: the CPU."""
        return self._stream and [self._stream.device]

    def entered(self) -> ContextManager[Any]:
        """What this thread does meanwhile is done on the stream."""
        return contextlib.nullcontext() if self._stream is None else torch.cuda.stream(self._stream)

    def join(self) -> None:
        """What comes on this thread's own stream comes after what the stream has now."""
        if self._stream is not None:
            own = torch.cuda.current_stream(self._stream.device)
            if own != self._stream:
                own.wait_stream(self._stream)
