"""The gradients of one optimizer where a method has versions of them. Internal.

``step()`` gives the core this rank's gradients, and applies every version that it has not applied
yet, in order: gradients and hyper-parameters are the version's. So all ranks do the same updates,
and their parameters are equal at equal version, whichever rank was late.

The gradients of a version lie in memory that all ranks of a host read, and there ``grad`` points
to: nothing is copied. No other process sees in-place changes by an optimizer or by clipping.
"""

from __future__ import annotations

from typing import Any, List, Optional, Sequence, Tuple

import torch

from covey.torch.layout import BucketPlan, tensor_at
from covey.torch.look import is_on, unfit
from covey.torch.trainer.ahead import Ahead
from covey.torch.trainer.hypers import read_hypers, write_hypers
from covey.torch.trainer.snapshot import State
from covey.torch.trainer.spans import spans_of
from covey.torch.update import prepare, take_scale, update

_OVERFLOW = "gradients that are not finite, as a GradScaler has found"


class VersionGradients:
    """See the module.

    Attributes:
        ahead: when a pass begins.
        unfit: why this rank's gradients of a step must not be mixed with those of others.
    """

    def __init__(
        self, trainer: Any, optimizer: Any, plans: Sequence[BucketPlan], keep: Any
    ) -> None:
        """``trainer``: has ``catch_up``. ``keep``: holds memory of the core while a tensor lies in
        it."""
        options = optimizer._covey_options
        self._optimizer = optimizer
        self._densify = options["sparse_as_dense"]
        self._own: Optional[Tuple[float, ...]] = None  # Hyper-parameters, while others hold.
        self._state = State(optimizer, options["model"])
        self._scale: Optional[torch.Tensor] = None
        self.unfit = ""
        self._has_given = True  # A version, since the last step was published.
        self._kept: Optional[List[Optional[torch.Tensor]]] = None  # Gradients before a pass.
        self.ahead = Ahead(trainer, options["model"])
        self._spans = spans_of(plans, keep)
        self._parameters = [parameter for span in self._spans for parameter in span.parameters]

    def close(self) -> None:
        """There are no versions any more. Gradients get memory of their own."""
        self.ahead.close()
        for span in self._spans:
            span.close()
        self._spans = []

    def vacate(self) -> None:
        """Memory of versions is about to end: gradients leave it."""
        for span in self._spans:
            span.vacate()

    @property
    def hypers(self) -> Tuple[float, ...]:
        """The hyper-parameters that travel with this rank's gradients."""
        return read_hypers(self._optimizer)

    def open(self, addresses: Sequence[int]) -> None:
        for span, address in zip(self._spans, addresses):
            span.open(address)

    def begin(self) -> Tuple[Optional[str], Tuple[float, ...]]:
        """A step begins: why its gradients are unfit, and its hyper-parameters."""
        self._scale, is_whole = take_scale(self._optimizer)
        self._has_given = True
        progress = self._optimizer._covey_progress
        progress.unfit = ""
        if is_whole and is_on():
            slots = (slot for span in self._spans for slot in span.plan.slots)
            found = ((slot.name, slot.parameter.grad) for slot in slots)
            progress.unfit = unfit(found, progress.steps)
        self.unfit = progress.unfit if is_whole else _OVERFLOW
        return self.unfit or None, self.hypers

    def collect(self) -> None:
        """The contribution becomes this rank's gradients."""
        self._has_given = False
        if self.unfit:
            return  # It has come all the same, so that no rank waits for it.
        scale = None if self._scale is None else float(self._scale)
        with torch.no_grad():
            for span in self._spans:
                span.collect(self._densify, scale)
        for span in self._spans:
            span.ready()

    def apply(self, addresses: Sequence[int], hypers: Sequence[float]) -> None:
        """An update with the version that lies there."""
        for span, address in zip(self._spans, addresses):
            span.give(address)
        self._has_given = True
        if self._own is None:
            self._own = self.hypers
        write_hypers(self._optimizer, hypers)
        prepare(self._optimizer)
        update(self._optimizer)

    def end(self) -> None:
        """A step, or whatever has applied versions, is over."""
        if not self._has_given:
            for span in self._spans:
                span.leave()
        self._has_given = True
        if self._own is not None:
            write_hypers(self._optimizer, self._own)
        self._own = None

    def pack(self) -> List[torch.Tensor]:
        """This rank's state for one that has fallen behind."""
        return self._state.pack()

    def unpack(self, address: int, length: int) -> None:
        self._state.unpack(tensor_at(address, length, torch.uint8))

    # ---- Before a pass.

    def begin_pass(self) -> bool:
        """Versions may be applied from here to ``end_pass``. Returns whether they must not be: the
        script adds to gradients that are not zero. That is looked at before a version is read, for
        gradients may lie in the memory of an earlier one, which changes with that."""
        self._kept = [parameter.grad for parameter in self._parameters]
        return any(
            gradient is not None and (gradient.layout is not torch.strided or bool(gradient.any()))
            for gradient in self._kept
        )

    def end_pass(self) -> None:
        """Versions were read: gradients are those of the pass that begins, which has none yet."""
        kept, self._kept = self._kept or (), None
        with torch.no_grad():
            for parameter, gradient in zip(self._parameters, kept):
                parameter.grad = None if gradient is None else gradient.zero_()
