"""Parameters stay what they were when their optimizer was made: of a shape, a dtype and a device.
Internal.

Their places in memory that ranks share are made for that. A model that ``half()``, ``double()`` or
``to(device)`` has changed since would be exchanged as what it was; one of another size would be
spread over all of its place.
"""

from __future__ import annotations

from typing import Any, List, Sequence, Tuple

import torch

from covey.errors import InvalidArgument
from covey.torch.layout import Named

_Known = Tuple[torch.nn.Parameter, torch.Size, torch.dtype, torch.device, str]


class Unchanged:
    """The trained parameters as they were."""

    def __init__(self, named: Sequence[Named] = ()) -> None:
        self._known: List[_Known] = [
            (it, it.shape, it.dtype, it.device, name) for name, it in named
        ]

    def check(self, in_rounds: bool) -> None:
        """Some 0.15 us per parameter.

        Raises:
            InvalidArgument: (a ValueError) one has changed; it names the first.
        """
        for parameter, shape, dtype, device, name in self._known:
            if (
                parameter.dtype is not dtype
                or parameter.shape != shape
                or parameter.device != device
            ):
                again = "make it again" if in_rounds else "call optimizer.rebuild_buckets()"
                raise InvalidArgument(
                    f"{name} is {_words(parameter.shape, parameter.dtype, parameter.device)}, and "
                    f"was {_words(shape, dtype, device)} when the optimizer was made: change a "
                    f"model before that, or {again} afterwards, on every rank"
                )


def _words(shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> str:
    return f"{str(dtype).partition('.')[2]} {list(shape)} on {device}"
