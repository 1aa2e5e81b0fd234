"""The stream of CUDA that a call of torch.distributed belongs to. Internal."""

from __future__ import annotations

from typing import Any, ContextManager, Iterable, List, Optional

import torch


class CallStream:
    """The stream of CUDA that was in use when a call was made.

    The call reads its tensors in the order of this stream, and writes its result in that order.
    """

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    @property
    def devices(self) -> List[torch.device]:
        """The device of the call's tensors, which torch's future wants to know."""
        return [self._stream.device]

    def entered(self) -> ContextManager[Any]:
        """A context in which this thread works on the stream."""
        return torch.cuda.stream(self._stream)

    def join(self) -> None:
        """Later work on this thread's current stream waits for the stream's work so far."""
        own = torch.cuda.current_stream(self._stream.device)
        if own != self._stream:
            own.wait_stream(self._stream)


def stream_of(given: Iterable[Any], outputs: Iterable[Any]) -> Optional[CallStream]:
    """The stream of a call made now with these arguments; None: no tensor is on CUDA. The caller
    asks ``torch.cuda.is_initialized()`` first, so that calls on the CPU cost nothing."""
    for one in (*given, outputs):
        for tensor in one if isinstance(one, list) else (one,):
            if isinstance(tensor, torch.Tensor) and tensor.is_cuda:
                return CallStream(torch.cuda.current_stream(tensor.device))
    return None
