"""Whether the replicas were equal before the first update. Internal.

A forgotten broadcast trains as many models as there are ranks, under every method, and nothing
fails. So the first step compares digests of the parameters, in the background: no step waits.
"""

from __future__ import annotations

from typing import Any, Optional, Sequence

import torch

from covey.errors import CoveyError
from covey.group import Group
from covey.notice import warn
from covey.torch.layout import Named
from covey.torch.ops import allgather_async

_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class EqualStart:
    """The comparison for one optimizer: each member makes one before its first update."""

    def __init__(self, named: Sequence[Named], name: str, group: Group) -> None:
        self._group = group
        self._handle: Optional[Any] = allgather_async(
            _digest(named).reshape(1), name=name, process_set=group
        )

    def look(self) -> None:
        """Says it, once and on the group's first rank, if all have come and some differ."""
        if self._handle is None or not self._handle.poll():
            return
        handle, self._handle = self._handle, None
        try:
            digests = handle.wait().tolist()
        except CoveyError:
            return  # A member has died, or the runtime has ended: both are told elsewhere.
        ranks = self._group.ranks
        others = [str(rank) for rank, digest in zip(ranks, digests) if digest != digests[0]]
        if others and self._group.rank() == 0:
            warn(
                f"before the first update rank{'s' if len(others) > 1 else ''} {', '.join(others)} "
                f"had other parameters than rank {ranks[0]}: call broadcast_parameters("
                "model.state_dict(), root_rank=0) before training; check_replicas(model) names the "
                "first tensor that differs"
            )


def _digest(named: Sequence[Named]) -> torch.Tensor:
    """A sum of the parameters' bits, in which their order counts: int64, on the CPU. It reads each
    parameter once, where it lies."""
    total = torch.zeros((), dtype=torch.int64)
    with torch.no_grad():
        for place, (_, parameter) in enumerate(named, 1):
            bits = parameter.detach().contiguous()
            bits = torch.view_as_real(bits) if bits.is_complex() else bits
            bits = bits.reshape(-1).view(_INTEGERS[bits.element_size()])
            total += (2 * place + 1) * bits.sum(dtype=torch.int64).cpu()
    return total
