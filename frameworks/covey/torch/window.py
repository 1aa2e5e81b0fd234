"""What the other ranks of the host may read of this one while it trains. Internal.

A window is on memory of the arena that a rank trains on in place, or on nothing: then it tells only
the rank's version. Who looks copies, and is told whether the copy is of one moment: nobody waits.
See ``core/run/window.h``.
"""

from __future__ import annotations

from typing import Dict, List, Sequence, Tuple

import torch

from covey import _native
from covey.errors import Exhausted, InvalidArgument, Unsupported
from covey.group import Group
from covey.objects import allgather_object
from covey.state import state

# covey_window_state.
WHOLE, NOTHING, CHANGING, CLOSED, LOST = range(5)
_NOWHERE = -1


class Window:
    """That of this rank, and where those of the others are.

    Attributes:
        has_model: whether there is more to be seen than versions.
        why: by rank: why it has none; empty: it has.
    """

    def __init__(
        self, name: str, group: Group, flats: Sequence[torch.Tensor], version: int
    ) -> None:
        """Every member of the group makes one, with as many tensors of the same lengths."""
        self.has_model = bool(flats)
        self._life = state.life
        self._flats: List[torch.Tensor] = list(flats)  # They stay while it is open.
        self._place, why = _NOWHERE, ""
        try:
            if not all(flat.is_cpu for flat in flats):
                raise Unsupported("its model lies on a device, where others cannot read it")
            self._place = _native.window_open(*_spans_of(flats))
        except Unsupported as error:
            why = str(error)
        except InvalidArgument:
            why = "its model did not fit into the arena (COVEY_ARENA_BYTES)"
        except Exhausted as error:
            why = str(error)
        self.end(version)
        everyone: List[Tuple[int, str]] = allgather_object((self._place, why), name, group)
        self._places: Dict[int, int] = {r: place for r, (place, _) in zip(group.ranks, everyone)}
        self.why: Dict[int, str] = {r: text for r, (_, text) in zip(group.ranks, everyone)}

    def begin(self) -> None:
        """The memory is about to change."""
        if self._place != _NOWHERE and self._life == state.life:
            _native.window_begin(self._place)

    def end(self, version: int) -> None:
        """It has changed, and is this rank's model of ``version`` now."""
        if self._place != _NOWHERE and self._life == state.life:
            _native.window_end(self._place, version)

    def look(self, rank: int, to: Sequence[torch.Tensor] = ()) -> Tuple[int, int]:
        """Copies what lies in the window of ``rank``: one of the states above, and its version.

        Example:
            >>> window.look(1) == (WHOLE, 12)  # doctest: +SKIP
            True
        """
        if self._places[rank] == _NOWHERE:
            return NOTHING, 0
        return _native.window_look(rank, self._places[rank], *_spans_of(to))

    def close(self) -> None:
        """There is nothing to be seen any more."""
        place, self._place = self._place, _NOWHERE
        if place != _NOWHERE and self._life == state.life:
            _native.window_close(place)

    def __del__(self) -> None:
        if getattr(self, "_place", _NOWHERE) != _NOWHERE:
            self.close()


def _spans_of(flats: Sequence[torch.Tensor]) -> Tuple[Tuple[int, ...], Tuple[int, ...]]:
    return (
        tuple(flat.data_ptr() for flat in flats),
        tuple(flat.numel() * flat.element_size() for flat in flats),
    )
