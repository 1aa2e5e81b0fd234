"""Where an optimizer stands and what its method exchanges there. Internal.

The core says for each step what travels: the gradients before the update, the parameters after it,
or nothing. Nothing here knows a method by name.
"""

from __future__ import annotations

from typing import Optional, Sequence

import torch

from covey.group import Group
from covey.method import GRADIENTS, MODEL, NOTHING, payload
from covey.reduce_op import Max
from covey.torch.averager import Averager
from covey.torch.layout import Named
from covey.torch.ops import allreduce
from covey.torch.reducer import next_prefix


class Progress:
    """The steps of one optimizer.

    Attributes:
        version: steps done; the next step is this one, counted from 0.
        payload: what is exchanged in it.
    """

    def __init__(self, method: str, group: Group) -> None:
        """``method`` is the full text. With nobody to exchange with, nothing ever is."""
        self.method = method
        self.version = 0
        self.payload = NOTHING
        self._group = group
        self._named: Sequence[Named] = ()
        self._prefix = ""
        self._averager: Optional[Averager] = None
        self._is_shared = False
        self._is_apart = False  # Steps were done alone since the last exchange.

    def share(self, named: Sequence[Named]) -> None:
        """From now on the parameters ``named`` are trained together with the other members."""
        self._is_shared = True
        self._named = named
        self._prefix = next_prefix("model", self._group.ranks)
        self._averager = None
        self.turn(self.version)

    @property
    def reduces(self) -> bool:
        """Whether the gradients of this step are reduced."""
        return self.payload == GRADIENTS

    def turn(self, version: int) -> None:
        """The next step is step ``version``."""
        self.version = version
        if self._is_shared:
            self.payload = payload(self.method, self._group.id, version)

    def after_update(self) -> None:
        """Ends a step: exchanges models if it is time."""
        if self.payload == MODEL:
            self._average()
        elif self.payload == NOTHING:
            self._is_apart = True
        self.turn(self.version + 1)

    def finish(self) -> None:
        """Makes the replicas equal, if a member has done steps alone. Every member calls it."""
        if not self._is_shared:
            return
        apart = torch.tensor(int(self._is_apart))
        name = f"DistributedOptimizer.finish.{self._prefix}"
        if allreduce(apart, name=name, op=Max, process_set=self._group):
            self._average()

    def _average(self) -> None:
        if self._averager is None:
            self._averager = Averager(self._named, self._prefix, self._group)
        self._averager.average()
        self._is_apart = False
