"""A model in rounds of gradients at the end of a script. Internal."""

from __future__ import annotations

from typing import Sequence

import torch

from covey.notice import tell
from covey.torch.model_exchange import relative_distance
from covey.torch.layout import Named


def rounding_of(named: Sequence[Named]) -> float:
    """Models that are no further apart, in parts of their norm, differ by rounding alone."""
    kinds = [parameter.dtype for _, parameter in named]
    kinds = [kind if kind.is_floating_point else kind.to_real() for kind in kinds]
    return 8 * max((torch.finfo(kind).eps for kind in kinds), default=0.0)


class Flushed:
    """Says what versions that were made after a script's last step have changed."""

    def __init__(self, named: Sequence[Named]) -> None:
        self._named = named
        self._before = [parameter.detach().clone() for _, parameter in named]

    def tell(self, versions: int, failure: str) -> None:
        """``versions`` were applied; ``failure``: why not all were, or empty."""
        moved = relative_distance(self._before, [it.detach() for _, it in self._named])
        if not failure and moved <= rounding_of(self._named):
            return
        tell(
            f"a script ends without optimizer.finish(): {failure or 'all gradients count now'}; "
            f"{versions} version{' was' if versions == 1 else 's were'} applied after its last "
            f"step, by which its model has moved by {moved:.3g} of its norm"
        )
