"""Where the parameters of a model lie while a method averages models. Internal.

Those of a dtype lie side by side in memory of the core's trainer, so nothing is copied for an
exchange. In rounds it has three pieces of such memory: one is trained, one is on offer, one may be
read; parameters are pointed to another piece after each exchange. One that was pointed elsewhere
meanwhile is brought back. On a device they lie side by side there, and only what is exchanged is
copied from and to the pieces (``mirror.py``).
"""

from __future__ import annotations

import ctypes
from typing import Any, Dict, List, NamedTuple

import torch

from covey.torch.layout import BucketPlan, gradient_strides
from covey.torch.mirror import mirror_of


class _Piece(NamedTuple):
    """Memory of the core, and the parameters there: on a device beside it."""

    host: torch.Tensor
    numbers: torch.Tensor
    views: List[torch.Tensor]


class ModelPlace:
    """The parameters of one dtype and device."""

    def __init__(self, plan: BucketPlan, keep: Any) -> None:
        """``keep``: holds memory of the core while a tensor lies in it."""
        self.mirror = mirror_of(plan)
        self._plan = plan
        self._keep = keep
        self._parameters = [slot.parameter for slot in plan.slots]
        self._pieces: Dict[int, _Piece] = {}  # By address.
        self._here: Any = None

    @property
    def numbers(self) -> torch.Tensor:
        """[plan.length] The parameters, where the optimizer has them."""
        numbers: torch.Tensor = self._here.numbers
        return numbers

    def open(self, address: int) -> None:
        """From now on the core reads, and writes, at ``address``."""
        if address not in self._pieces:
            plan = self._plan
            memory: Any = (ctypes.c_char * (plan.length * plan.dtype.itemsize))
            memory = memory.from_address(address)
            memory.keep = self._keep
            host = torch.frombuffer(memory, dtype=plan.dtype)
            numbers = self.mirror.of(host)
            views = [
                numbers.as_strided(
                    slot.parameter.shape, gradient_strides(slot.parameter), slot.offset
                )
                for slot in plan.slots
            ]
            self._pieces[address] = _Piece(host, numbers, views)
        self._here = self._pieces[address]

    def gather(self) -> None:
        """Moves what does not lie here."""
        for parameter, view in zip(self._parameters, self._here.views):
            data = parameter.data
            if data.data_ptr() == view.data_ptr() and data.stride() == view.stride():
                continue
            view.copy_(data)
            parameter.data = view

    def offer(self) -> None:
        """The core can read the parameters, once ``mirror`` was waited for."""
        self.gather()
        self.mirror.fetch(self._here.host)

    def load(self) -> None:
        """The parameters are what the core has written."""
        self.mirror.put(self._here.host)
        for parameter, view in zip(self._parameters, self._here.views):
            parameter.data = view

    def take(self, scale: float) -> None:
        """The parameters are what was made of them where they lie, but on a device by ``scale``."""
        if self.mirror.is_far and scale != 1:
            self._here.numbers.mul_(scale)
        for parameter, view in zip(self._parameters, self._here.views):
            parameter.data = view

    def release(self) -> None:
        """Parameters that lie in the core's memory get memory of their own."""
        if self.mirror.is_far:
            return
        for piece in self._pieces.values():
            for parameter, view in zip(self._parameters, piece.views):
                if parameter.data_ptr() == view.data_ptr():
                    parameter.data = parameter.data.clone()
