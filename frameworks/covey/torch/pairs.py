"""An optimizer whose model is averaged with one other rank's at a time. Internal.

``step()`` updates the parameters with this rank's gradients, hands in its progress and, when it is
its turn, averages with a partner; no rank waits. Changes of this rank's model by others meanwhile
come back with its next step. The core does it: see ``core/gossip/README.md``.

The parameters of a dtype lie side by side in memory of this rank's own. One that was pointed
elsewhere meanwhile is brought back. On a device they lie side by side there, and are copied from
and to that memory (``mirror.py``).
"""

from __future__ import annotations

import contextlib
from typing import Any, Callable, Iterator, Optional, Sequence

import torch

from covey import _native
from covey.group import Group
from covey.method import parsed
from covey.torch.averager import refuse_shared_memory, relative_distance
from covey.torch.clip import clipped_step
from covey.torch.layout import BucketPlan, Named, gradient_strides, plan_whole
from covey.torch.mirror import mirror_of, wait_for
from covey.torch.models import check_options
from covey.torch.tensors import CODES


class _Flat:
    """The parameters of one dtype and device.

    Attributes:
        numbers: them, where the trainer has them.
        host: them, where the core reads and writes them.
    """

    def __init__(self, plan: BucketPlan) -> None:
        self.mirror = mirror_of(plan)
        self.host = self.mirror.room(plan.length, plan.dtype)
        self.numbers = self.mirror.of(self.host)
        self._parameters = [slot.parameter for slot in plan.slots]
        self._views = [
            self.numbers.as_strided(
                slot.parameter.shape, gradient_strides(slot.parameter), slot.offset
            )
            for slot in plan.slots
        ]

    def gather(self) -> None:
        """Moves what does not lie here."""
        for parameter, view in zip(self._parameters, self._views):
            data = parameter.data
            if data.data_ptr() == view.data_ptr() and data.stride() == view.stride():
                continue
            view.copy_(data)
            parameter.data = view


class PairTrainer:
    """The pairs of one optimizer."""

    def __init__(self, optimizer: Any, named: Sequence[Named], group: Group, method: str) -> None:
        """Every member of the group makes one, with the same parameters and options.

        Raises:
            Unsupported, InvalidArgument: (ValueErrors) an option that this method does not go
                with; two parameters in the same memory.
            Mismatch, Exhausted: on every rank: the ranks differ; a rank has no room.
        """
        self._ahead: Sequence[torch.Tensor] = ()  # The shown models, less this rank's own.
        check_options(optimizer._covey_options)
        refuse_shared_memory(named)
        self._optimizer = optimizer
        plans = plan_whole(named)
        self._flats = [_Flat(plan) for plan in plans]
        self._addresses = tuple(flat.host.data_ptr() for flat in self._flats)
        self._hand_over()
        progress = optimizer._covey_progress
        name = progress.name_of("pairs")
        codes = tuple(CODES[plan.dtype] for plan in plans)
        counts = tuple(plan.length for plan in plans)

        chosen = parsed(method)

        def call() -> int:
            return _native.pairs_open(group.id, name, chosen, codes, counts, self._addresses)

        self._pairs = progress.together(name, call)

    def close(self) -> None:
        """This rank leaves; the parameters keep their values."""
        pairs, self._pairs = self._pairs, 0
        if pairs:
            wait_for(flat.mirror for flat in self._flats)
            _native.pairs_close(pairs)

    def __del__(self) -> None:
        if getattr(self, "_pairs", 0):
            self.close()

    def synchronize(self) -> None:
        """Gradients are this rank's own: there is nothing to wait for."""

    def step(self, closure: Optional[Callable[[], Any]] = None) -> Any:
        """A step of the optimizer with this rank's gradients, then the average."""
        loss = clipped_step(self._optimizer, closure)
        with self._handed_over():
            partner, merged = _native.pairs_step(self._pairs, self._addresses)
        progress = self._optimizer._covey_progress
        progress.step_stats.paired(partner >= 0, merged > 0)
        progress.turn(progress.version + 1)
        return loss

    def finish(self) -> None:
        """Makes the parameters the mean of all, with the same bits on each.

        Raises:
            Timeout: after ``max_wait``; the message names the ranks that are missing. The
                parameters are as they were; called again it waits on.
        """
        self._gather()
        before = [flat.numbers.clone() for flat in self._flats]
        with self._handed_over():
            _native.pairs_finish(self._pairs, self._addresses)
        after = [flat.numbers for flat in self._flats]
        self._optimizer._covey_progress.step_stats.distance = relative_distance(before, after)

    def show(self, mean: Sequence[torch.Tensor]) -> None:
        """The parameters are ``mean`` until the next step, which goes on from this rank's own."""
        self._gather()
        with torch.no_grad():
            self._ahead = [model - flat.numbers for model, flat in zip(mean, self._flats)]
            for model, flat in zip(mean, self._flats):
                flat.numbers.copy_(model)

    def settle(self) -> None:
        """Makes the parameters all that is this rank's own, wherever others had a part of it.

        Raises:
            Timeout: as ``finish``.
        """
        with self._handed_over():
            _native.pairs_settle(self._pairs, self._addresses)

    def _gather(self) -> None:
        with torch.no_grad():
            for flat in self._flats:
                flat.gather()

    def _hand_over(self) -> None:
        """The core can read the parameters."""
        self._gather()
        with torch.no_grad():
            for ahead, flat in zip(self._ahead, self._flats):
                flat.numbers.sub_(ahead)
        self._ahead = ()
        for flat in self._flats:
            flat.mirror.fetch(flat.host)
        wait_for(flat.mirror for flat in self._flats)

    @contextlib.contextmanager
    def _handed_over(self) -> Iterator[None]:
        """Within it the core works on the parameters."""
        self._hand_over()
        try:
            yield
        finally:  # Also when ranks are missing: then they are what this rank has of its own.
            for flat in self._flats:
                flat.mirror.put(flat.host)
