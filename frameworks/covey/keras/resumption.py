"""Where a training of Keras goes on that was saved. Internal."""

from __future__ import annotations

import ctypes
from typing import Any, Dict, NamedTuple, Tuple

import numpy

from covey import _native
from covey.trainer_handle import Position


class Resumption(NamedTuple):
    """Where a training goes on that was saved.

    Attributes:
        position: of this rank, as ``covey_position`` of core/api/covey_trainer.h.
        replicated: by name the bytes of the arrays that the method replicates on all ranks.
    """

    position: Tuple[int, ...]
    replicated: Dict[str, Any]

    @property
    def version(self) -> int:
        """That of the optimizer, before its first step."""
        return int(Position(*self.position).version)


BEGIN = Position._fields.index("begin")
"""The index in a position of ``begin``, for the trainer that goes on from there."""


def replicated(trainer: int) -> Dict[str, Any]:
    """Between two steps: copies of the arrays that the method replicates, as bytes. ``trainer``:
    the core's number."""
    return {
        name: numpy.frombuffer(ctypes.string_at(at, length), numpy.uint8)
        for name, at, length in _native.trainer_state(trainer)
    }


def go_on(trainer: int, resumption: Resumption) -> None:
    """A trainer that was opened with ``begin`` of the position goes on from there."""
    for name, at, length in _native.trainer_state(trainer):
        if name in resumption.replicated:
            ctypes.memmove(at, resumption.replicated[name].tobytes(), length)
    _native.trainer_restore(trainer, resumption.position)
