"""``DistributedOptimizer(op=Adasum)``: each rank's own update, and Adasum of the updates. Internal.

As in Horovod: a step is one of the user's class with this rank's own gradients; by what the
parameters have changed goes through Adasum (``adasum.py``), each parameter by itself, and is added
to what they were before. So the learning rate stays that of one rank.
"""

from __future__ import annotations

import weakref
from typing import Any, Callable, List, Optional, Sequence

import torch

from covey.call_variants import LATER
from covey.errors import Unsupported
from covey.group import Group
from covey.reduce_op import Adasum
from covey.torch.adasum import DTYPES
from covey.torch.layout import Named
from covey.torch.tensors import collectives
from covey.trainer_handle import Position


class AdasumTrainer:
    """In the place of ``CoreTrainer``. All ranks have the same model after each step."""

    ahead = None  # An update is applied within step() only.
    can_move = True
    position = Position(*(0 for _ in Position._fields))  # There is no state beside the model.

    def __init__(self, optimizer: Any, named: Sequence[Named], group: Group) -> None:
        """Raises Unsupported (a ValueError): by this method, or for such a parameter, there is
        none."""
        options, progress = optimizer._covey_options, optimizer._covey_progress
        if progress.method.partition(":")[0] != "allreduce" or progress.plan.in_rounds:
            raise Unsupported(
                f"op=Adasum waits for the updates of all ranks, and {progress.method!r} does not: "
                "use method='allreduce', or op=Average"
            )
        if options["compression"].codec is not None:
            raise Unsupported("op=Adasum: compression must be none, .fp16, .bf16 or your own class")
        for name, parameter in named:
            if parameter.dtype not in DTYPES:
                raise Unsupported(f"op=Adasum: {name} is of {parameter.dtype}")
        self._optimizer: Any = weakref.proxy(optimizer)  # It owns this.
        self._parameters = [parameter for _, parameter in named]
        self._compression, self._group = options["compression"], group
        self._name = progress.name_of("updates")
        progress.adds_updates = True

    def begin(self) -> None:
        """The next step is the first: all ranks are there already."""

    def step(self, closure: Optional[Callable[[], Any]] = None) -> Any:
        """One step.

        Raises:
            Mismatch, Aborted: as allreduce; the parameters are what they were before.
        """
        progress = self._optimizer._covey_progress
        before = [parameter.detach().clone() for parameter in self._parameters]
        loss = self._optimizer._update(closure)
        with torch.no_grad():
            changes = [one.detach() - old for one, old in zip(self._parameters, before)]
            for parameter, old in zip(self._parameters, before):
                parameter.copy_(old)
            for parameter, change in zip(self._parameters, self._summed(changes)):
                parameter.add_(change)
        progress.move(progress.steps + 1)
        progress.step_stats.exchanged()
        return loss

    def _summed(self, changes: List[torch.Tensor]) -> List[torch.Tensor]:
        small = [self._compression.compress(change) for change in changes]
        handle = collectives.grouped_allreduce(
            LATER,
            [tensor for tensor, _ in small],
            name=self._name,
            op=Adasum,
            process_set=self._group,
        )
        return [
            self._compression.decompress(tensor, context)
            for tensor, (_, context) in zip(handle.wait(), small)
        ]

    def synchronize(self) -> None:
        """Nothing is reduced before the update: gradients are this rank's own."""

    def finish(self, strict: bool = False) -> None:
        """There is nothing to do: all have the same model."""

    def gather_in(self) -> None:
        """There is nothing in flight."""

    def move_to(self, steps: int) -> None:
        """So many steps were done."""
        self._optimizer._covey_progress.move(steps)

    def close(self) -> None:
        """There is nothing that others would miss."""

    def count(self) -> None:
        """The statistics have all."""
