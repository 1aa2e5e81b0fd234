"""The gradients of one dtype in rounds, of parameters that lie on a device. Internal.

They are gathered side by side on the device when the step begins, and copied from there to where
the core reads them; a version is copied back to the same place. Flags stay in the host. Nothing is
copied while backward runs: changes of a ``grad`` after it, such as by clipping, could
not be seen (changes through ``.data`` leave no trace), and would be lost.
"""

from __future__ import annotations

import ctypes
from typing import Any, Dict, List, Optional, Sequence, Union

import torch

from covey.torch.layout import BucketPlan, gradient_strides
from covey.torch.mirror import mirror_of
from covey.torch.spans import Span, dense_of

_LARGE_BYTES = 8 << 20


class FarSpan:
    """As ``Span`` of ``spans.py``, whose functions these are.

    Attributes:
        plan: which gradients lie where.
        parameters: theirs.
    """

    def __init__(self, plan: BucketPlan, keep: Any) -> None:
        """``keep``: holds memory of the core while a tensor lies in it."""
        self.plan = plan
        self.parameters = [slot.parameter for slot in plan.slots]
        self._mirror = mirror_of(plan, plan.flags_offset)
        self._views = self._views_of(self._mirror.of(torch.empty(0, device="cpu")))
        self._keep = keep
        self._known: Dict[int, torch.Tensor] = {}  # By address.
        self._open = torch.empty(0, device="cpu")  # One of them.

    def _views_of(self, flat: torch.Tensor) -> List[torch.Tensor]:
        return [
            flat.as_strided(slot.parameter.shape, gradient_strides(slot.parameter), slot.offset)
            for slot in self.plan.slots
        ]

    def _numbers_of(self, host: torch.Tensor) -> torch.Tensor:
        return host[: self.plan.flags_offset]

    def _flags_of(self, host: torch.Tensor) -> torch.Tensor:
        return host[self.plan.flags_offset : self.plan.flags_offset + len(self.parameters)]

    def _at(self, address: int) -> torch.Tensor:
        """[plan.length] What lies there, in memory of the host."""
        if address not in self._known:
            memory: Any = (ctypes.c_char * (self.plan.length * self.plan.dtype.itemsize))
            memory = memory.from_address(address)
            memory.keep = self._keep
            self._known[address] = torch.frombuffer(memory, dtype=self.plan.dtype)
        return self._known[address]

    def open(self, address: int) -> None:
        """The next contribution is written to ``address``."""
        self._open = self._at(address)

    def collect(self, densify: bool, scale: Optional[float]) -> None:
        """The next contribution becomes this rank's gradients, divided by ``scale``; zeros where it
        has none. It is on its way: ``ready``."""
        sources: List[torch.Tensor] = []
        targets: List[torch.Tensor] = []
        present: List[torch.Tensor] = []
        missing: List[torch.Tensor] = []
        for parameter, view in zip(self.parameters, self._views):
            gradient = parameter.grad
            (missing if gradient is None else present).append(view)
            if gradient is None or (
                gradient.layout is torch.strided and gradient.is_set_to(view)
            ):
                continue
            sources.append(dense_of(gradient, densify))
            targets.append(view)
        flags = [float(parameter.grad is not None) for parameter in self.parameters]
        self._flags_of(self._open).copy_(torch.tensor(flags, device="cpu"))
        if sources:
            torch._foreach_copy_(targets, sources)
        if missing:
            torch._foreach_zero_(missing)
        if scale is not None and present:
            torch._foreach_div_(present, scale)
        self._mirror.fetch(self._numbers_of(self._open))

    def ready(self) -> None:
        """Waits until the core may read what was collected."""
        self._mirror.wait()

    def give(self, address: int) -> None:
        """Gradients are those of the version that lies at ``address``; None where no rank had
        one."""
        host = self._at(address)
        self._mirror.put(self._numbers_of(host))
        for parameter, view, flag in zip(
            self.parameters, self._views, self._flags_of(host).tolist()
        ):
            parameter.grad = view if flag != 0 else None

    def leave(self) -> None:
        """No gradient lies where the core reads."""

    def close(self) -> None:
        """Gradients have memory of their own already."""
        self._mirror.wait()

    vacate = close


def spans_of(plans: Sequence[BucketPlan], keep: Any) -> List[Union[Span, FarSpan]]:
    """One for each bucket, by where it lies."""
    is_large = sum(plan.length * plan.dtype.itemsize for plan in plans) >= _LARGE_BYTES
    return [
        Span(plan, keep, is_large) if plan.device.type == "cpu" else FarSpan(plan, keep)
        for plan in plans
    ]
