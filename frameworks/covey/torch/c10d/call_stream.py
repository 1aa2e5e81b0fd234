"""Where the result of a call on tensors of CUDA comes. Internal."""

from __future__ import annotations

from typing import Any, ContextManager, Iterable, List, Optional

import torch


class CallStream:
    """The stream of CUDA on which a call was made.

    The stream has the call's tensors as they were when it was made, and its result, in turn.
    """

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    @property
    def devices(self) -> Optional[List[torch.device]]:
        """Of the tensors, for the call's future."""
        return [self._stream.device]

    def entered(self) -> ContextManager[Any]:
        """What this thread does meanwhile is done on the stream."""
        return torch.cuda.stream(self._stream)

    def join(self) -> None:
        """What comes on this thread's own stream comes after what the stream has now."""
        own = torch.cuda.current_stream(self._stream.device)
        if own != self._stream:
            own.wait_stream(self._stream)


def stream_of(given: Iterable[Any], outputs: Iterable[Any]) -> Optional[CallStream]:
    """That of a call made now with these arguments; None: it has no tensor on CUDA. One on the CPU
    is to cost nothing: it asks ``torch.cuda.is_initialized()`` first."""
    for one in (*given, outputs):
        for tensor in one if isinstance(one, list) else (one,):
            if isinstance(tensor, torch.Tensor) and tensor.is_cuda:
                return CallStream(torch.cuda.current_stream(tensor.device))
    return None
