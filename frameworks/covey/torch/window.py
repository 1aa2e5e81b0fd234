"""The memory of this rank that others of the host may read while it trains. Internal.

A window is on memory of the arena that a rank trains on in place, or on nothing: then it tells only
the rank's version. A reader copies, and is told whether the copy is of one moment: no rank waits.
See ``core/transport/seqlock.h``.

A rank that waits for the others in an exchange of models can be looked at, too: no rank writes to
its memory before all have begun the exchange. So a rank that has not begun it yet reads memory at
rest. A rank that has ended it knows that it goes on there: ranks count these exchanges, and say at
which they wait.
"""

from __future__ import annotations

from typing import Dict, List, NamedTuple, Sequence, Tuple

import torch

from covey import _native
from covey.errors import Exhausted, InvalidArgument, Unsupported
from covey.group import Group
from covey.objects import allgather_object
from covey.state import state

# covey_window_state.
WHOLE, NOTHING, CHANGING, CLOSED, LOST = range(5)
_NOWHERE = -1
_COUNTED = 1 << 2  # Exchanges, modulo this: two ranks are never further apart than one.


class Mark(NamedTuple):
    """A rank's state in its window, packed into a number.

    Attributes:
        version: of its model.
        exchanges: of models by all, that it has ended.
        waits: it is in the next one, or in another wait for all; before all have come, its memory
            stands still.

    Example:
        >>> Mark.unpacked(Mark(12, 7, True).packed())
        Mark(version=12, exchanges=3, waits=True)
    """

    version: int
    exchanges: int = 0
    waits: bool = False

    def packed(self) -> int:
        return (2 * self.version + self.waits) * _COUNTED + self.exchanges % _COUNTED

    @staticmethod
    def unpacked(number: int) -> "Mark":
        rest, exchanges = divmod(number, _COUNTED)
        return Mark(rest // 2, exchanges, bool(rest & 1))

    def is_behind(self, begun: int) -> bool:
        """Whether a rank that has begun so many exchanges has begun one that this rank has not
        ended."""
        return (self.exchanges - begun) % _COUNTED >= _COUNTED // 2


class Window:
    """That of this rank, and where those of the others are.

    Attributes:
        has_model: whether there is more to be seen than versions.
        why: by rank: why it has none; empty: it has.
    """

    def __init__(
        self, name: str, group: Group, flats: Sequence[torch.Tensor], mark: Mark
    ) -> None:
        """Every member of the group makes one, with as many tensors of the same lengths."""
        self.has_model = bool(flats)
        self._init_epoch = state.init_epoch
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
        self.end(mark)
        everyone: List[Tuple[int, str]] = allgather_object((self._place, why), name, group)
        self._places: Dict[int, int] = {r: place for r, (place, _) in zip(group.ranks, everyone)}
        self.why: Dict[int, str] = {r: text for r, (_, text) in zip(group.ranks, everyone)}

    def begin(self) -> None:
        """The memory is about to change."""
        if self._place != _NOWHERE and self._init_epoch == state.init_epoch:
            _native.window_begin(self._place)

    def end(self, mark: Mark) -> None:
        """It has changed, and is what ``mark`` says now."""
        if self._place != _NOWHERE and self._init_epoch == state.init_epoch:
            _native.window_end(self._place, mark.packed())

    def look(
        self, rank: int, to: Sequence[torch.Tensor] = (), begun: int = 0
    ) -> Tuple[int, Mark]:
        """Copies what lies in the window of ``rank``: one of the states above, and what it says.

        Args:
            begun: how many exchanges of models this rank has.

        Example:
            >>> window.look(1) == (WHOLE, Mark(12))  # doctest: +SKIP
            True
        """
        if self._places[rank] == _NOWHERE:
            return NOTHING, Mark(0)
        state_, number = _native.window_look(rank, self._places[rank], *_spans_of(to))
        mark = Mark.unpacked(number)
        if to and state_ == WHOLE and mark.waits and mark.is_behind(begun):
            return CHANGING, mark
        return state_, mark

    def close(self) -> None:
        """There is nothing to be seen any more."""
        place, self._place = self._place, _NOWHERE
        if place != _NOWHERE and self._init_epoch == state.init_epoch:
            _native.window_close(place)

    def __del__(self) -> None:
        if getattr(self, "_place", _NOWHERE) != _NOWHERE:
            self.close()


def _spans_of(flats: Sequence[torch.Tensor]) -> Tuple[Tuple[int, ...], Tuple[int, ...]]:
    return (
        tuple(flat.data_ptr() for flat in flats),
        tuple(flat.numel() * flat.element_size() for flat in flats),
    )
