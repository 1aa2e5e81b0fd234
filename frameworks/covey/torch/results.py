"""How the rounds of one optimizer read versions: where they lie, or as copies. Internal.

The gradients of a version lie in memory that all ranks of a host read, and there ``grad`` points
to: nothing is copied. No other process sees in-place changes by an optimizer or by clipping, but
they are slow (core/base/copy_on_write.h). So a rank that makes them version after version gets
copies instead, as do parameters on a device and ranks that share no memory.
"""

from __future__ import annotations

from typing import Any, Sequence, Tuple, Union

from covey import _native
from covey.errors import Unsupported
from covey.torch.afar import FarSpan
from covey.torch.spans import Span

_OFTEN = 2  # Versions running in whose memory
_MUCH = 1 / 8  # so much had been written: a page that is costs as much as some that are copied.
_PAGE_BYTES = 4096


class Results:
    """See the module."""

    def __init__(self, rounds: int, spans: Sequence[Union[Span, FarSpan]]) -> None:
        self._rounds = rounds
        self._spans = spans
        self._held: Tuple[int, ...] = ()  # Where the version that was read last lies, by span.
        self._written = 0  # Versions running that lay in what this rank had written much of.
        length = sum(span.plan.length * span.plan.dtype.itemsize for span in spans)
        self._much = max(1.0, _MUCH * length / _PAGE_BYTES)
        self._is_in_place = not all(span.is_far for span in spans) and self._can_hold()
        self._expect()

    def _can_hold(self) -> bool:
        try:
            _native.rounds_hold(self._rounds, 0, len(self._spans))
        except Unsupported:
            return False
        return True

    def _expect(self) -> None:
        self._copies: Tuple[int, ...] = tuple(
            0 if self._is_in_place and not span.is_far else span.result.data_ptr()
            for span in self._spans
        )
        if not any(self._copies):
            self._copies = ()
        _native.rounds_expect(self._rounds, self._copies)

    def read(self, version: int, size: int, hypers: int) -> Any:
        """The record of ``version``; its gradients are there.

        Raises:
            Exhausted: it has left the log. Earlier reads may change now.
        """
        held: Tuple[int, ...] = ()
        written = 0
        if self._is_in_place:
            held, written = _native.rounds_hold(self._rounds, version, len(self._spans))
        record = _native.rounds_read(self._rounds, version, self._copies, size, hypers)
        self._written = self._written + 1 if written > self._much else 0
        self._held, before = held, self._held
        if before and not held:
            _native.rounds_hold(self._rounds, 0, len(self._spans))
        return record

    def give(self) -> None:
        """Parameters have the gradients of the version that was read."""
        for span, address in zip(self._spans, self._held or (0,) * len(self._spans)):
            span.give(address)
        if self._is_in_place and self._written >= _OFTEN:
            self._is_in_place = False
            self._expect()
