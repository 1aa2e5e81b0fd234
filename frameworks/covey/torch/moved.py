"""Models that travel as what they have moved since all were equal. Internal.

After an average all ranks hold the same bits. Until the next one each rank moves by itself; what
it has moved is encoded, and the mean of that is added to what all had: so replicas are equal again,
and the error of a codec is small beside the moves, not beside the model. The residual of a biased
codec is sent with the next moves (error feedback); when models are averaged as they are, it is in
them.

The first average is of models as they are: only after it is there something that all have had.
"""

from __future__ import annotations

from typing import Dict, Optional, Type

import torch

from covey import _native
from covey.torch.compression import Compressor


class Moved:
    """The change of the numbers of one dtype.

    Attributes:
        travelling: what they have moved, in the average that has begun, where it travels; the
            numbers stay what they are until it is over, for others to look at. None: the numbers
            themselves travel.
    """

    def __init__(self, numbers: torch.Tensor) -> None:
        """``numbers`` are the model, where it lies."""
        self._numbers = numbers
        self._anchor: Optional[torch.Tensor] = None  # The common anchor; None: it is not known.
        self._left_out: Optional[torch.Tensor] = None
        self._codec: Optional[Type[Compressor]] = None
        self._room: Optional[torch.Tensor] = None
        self.travelling: Optional[torch.Tensor] = None

    @property
    def can_be_coded(self) -> bool:
        """Whether there are codecs for such numbers."""
        return self._numbers.dtype == torch.float32 and self._numbers.is_cpu

    def give_back(self) -> None:
        """The left-out part is in the model again, and the common anchor is unknown: the next
        average is of models as they are."""
        if self._left_out is not None:
            self._numbers.add_(self._left_out)
        self._anchor = self._left_out = self._room = None

    def begin(self, codec: Optional[Type[Compressor]], whole: bool) -> None:
        """The average to make is known; it is of the numbers as they are if they are to be
        ``whole``, or the common anchor is unknown."""
        self._codec = codec if self.can_be_coded else None
        anchor, self.travelling = self._anchor, None
        if self._left_out is not None:
            self._numbers.add_(self._left_out)
        if self._codec is None or anchor is None or whole:
            self._left_out = self._room = None
            return
        if self._room is None:
            self._room = torch.empty_like(anchor)
        own = self.travelling = torch.sub(self._numbers, anchor, out=self._room)
        if self._codec.feeds_back:
            if self._left_out is None:
                self._left_out = torch.empty_like(anchor)
            assert self._codec.codec is not None
            _native.codec_residual(
                self._codec.codec, own.data_ptr(), own.numel(), self._left_out.data_ptr()
            )

    def end(self) -> None:
        """They are averaged: they become the model, which all have."""
        if self.travelling is not None and self._anchor is not None:
            torch.add(self.travelling, self._anchor, out=self._numbers)
            self._anchor.copy_(self._numbers)
        else:
            self._anchor = None if self._codec is None else self._numbers.clone()
        self.travelling = None

    def written(self) -> Dict[str, torch.Tensor]:
        """The tensors to be kept with a checkpoint, by name."""
        kept = {"anchor": self._anchor, "left_out": self._left_out}
        return {name: tensor for name, tensor in kept.items() if tensor is not None}

    def put(self, written: Dict[str, torch.Tensor]) -> None:
        """As it was when that was written; what is not there is not known."""
        anchor, left_out = written.get("anchor"), written.get("left_out")
        self._anchor = None if anchor is None else anchor.clone()
        self._left_out = None if left_out is None else left_out.clone()
