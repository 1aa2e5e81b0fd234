"""The gradients of one optimizer in rounds, in memory that the core reads. Internal.

On the CPU (``HereSpan``) backward puts gradients straight there. A hook runs before a gradient is
accumulated. Where the parameter has none yet, it copies the gradient, which was just computed, to
its place in what is published next, and gives autograd that place for it. So ``grad`` lies there:
later backward passes add to it there, and publishing copies nothing. Gradients that a hook leaves
alone (sparse, ``create_graph=True``, while the script keeps the ``grad`` of an earlier backward
pass) and those put into ``grad`` otherwise are copied by ``collect``. After publishing no ``grad``
may stay there. A ``grad`` that a user keeps over ``step()`` without cloning it changes later.

On a device (``FarSpan``) they are gathered side by side when the step begins, and copied from there
to where the core reads them; a version is copied back to the same place. Flags stay in the host.
Nothing is copied while backward runs: changes of a ``grad`` after it, such as by clipping, could
not be seen (changes through ``.data`` leave no trace), and would be lost.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import torch
from torch.autograd.graph import get_gradient_edge

from covey import _native
from covey.errors import Unsupported
from covey.torch.copies import FEW_BYTES, are_large, copy_past_caches, lie_alike
from covey.torch.layout import BucketPlan, Slot, gradient_strides, tensor_at
from covey.torch.trainer.mirror import mirror_of

Gradients = Tuple[Optional[torch.Tensor], ...]
Version = Tuple[List[torch.Tensor], torch.Tensor]  # Gradients, and the flags of those there are.
_holders: Optional[Callable[[int], int]] = getattr(torch._C, "_storage_Use_Count", None)


class Span:
    """The gradients of one dtype on one device.

    Attributes:
        plan: which gradients lie where.
        parameters: theirs.
    """

    def __init__(self, plan: BucketPlan, keep: Any) -> None:
        """``keep``: holds memory of the core while a tensor lies in it."""
        self.plan = plan
        self.parameters = plan.parameters
        self._keep = keep
        self._flags = torch.empty(0, device="cpu")  # Of the open contribution.
        self._results: Dict[int, Version] = {}  # By address.

    def _flags_of(self, host: torch.Tensor) -> torch.Tensor:
        return host[self.plan.flags_offset :][: len(self.parameters)]

    def _views(self) -> List[torch.Tensor]:
        """Where gradients are collected."""
        raise NotImplementedError

    def _result(self, host: torch.Tensor) -> List[torch.Tensor]:
        """The gradients of a version that lies in ``host``."""
        raise NotImplementedError

    def open(self, address: int) -> None:
        """The next contribution is written to ``address``."""
        raise NotImplementedError

    def collect(self, densify: bool, scale: Optional[float]) -> None:
        """The next contribution becomes this rank's gradients, divided by ``scale``; zeros where it
        has none. It may be on its way up to ``ready``."""
        sources: List[torch.Tensor] = []
        targets: List[torch.Tensor] = []
        present: List[torch.Tensor] = []
        self._flags.fill_(1)
        for index, (parameter, view) in enumerate(zip(self.parameters, self._views())):
            gradient = parameter.grad
            if gradient is None:
                view.zero_()
                self._flags[index] = 0
                continue
            present.append(view)
            if gradient.layout is not torch.strided or not gradient.is_set_to(view):
                sources.append(_dense_of(gradient, densify))
                targets.append(view)
        if sources:
            self._copy(targets, sources)
        if scale is not None and present:
            torch._foreach_div_(present, scale)

    def _copy(self, targets: List[torch.Tensor], sources: List[torch.Tensor]) -> None:
        torch._foreach_copy_(targets, sources)

    def ready(self) -> None:
        """Waits until the core may read what was collected."""

    def give(self, address: int) -> None:
        """Gradients are those of the version that lies at ``address``; None where no rank had
        one."""
        if address not in self._results:
            host = self.plan.at(address, self._keep)
            self._results[address] = self._result(host), self._flags_of(host)
        views, flags = self._results[address]
        for parameter, view, flag in zip(self.parameters, views, flags.tolist()):
            parameter.grad = view if flag != 0 else None

    def leave(self) -> None:
        """Published memory stays no gradient, though no version was read."""

    def vacate(self) -> None:
        """Gradients that lie in memory of the core get memory of their own."""

    def close(self) -> None:
        """As ``vacate``, for good."""
        self.vacate()


class HereSpan(Span):
    """That of parameters on the CPU."""

    def __init__(self, plan: BucketPlan, keep: Any, is_large: bool) -> None:
        """``is_large``: all spans together are more than caches hold."""
        super().__init__(plan, keep)
        self._is_large = is_large
        self._last: List[torch.Tensor] = []  # The gradients of the version that was given last.
        self._known: Dict[int, Tuple[List[_Place], torch.Tensor]] = {}  # By address: three.
        self._open: List[_Place] = []  # One of them; the list that the hooks know.
        self._published: List[_Place] = []  # The one before.
        # A parameter knows its node only while the node is held elsewhere.
        self._nodes = [get_gradient_edge(parameter).node for parameter in self.parameters]
        self._hooks = [
            node.register_prehook(_hook_of(parameter, self._open, index))
            for index, (node, parameter) in enumerate(zip(self._nodes, self.parameters))
        ]

    def _views(self) -> List[torch.Tensor]:
        return [place.view for place in self._open]

    def _result(self, host: torch.Tensor) -> List[torch.Tensor]:
        return self.plan.views(host)

    def open(self, address: int) -> None:
        if address not in self._known:
            slots, host = self.plan.slots, self.plan.at(address, self._keep)
            places = [_Place(host, slot, self._keep, self._is_large) for slot in slots]
            self._known[address] = places, self._flags_of(host)
        self._published = list(self._open)
        self._open[:], self._flags = self._known[address]

    def _copy(self, targets: List[torch.Tensor], sources: List[torch.Tensor]) -> None:
        (copy_past_caches if self._is_large else torch._foreach_copy_)(targets, sources)

    def give(self, address: int) -> None:
        super().give(address)
        self._last, _ = self._results[address]

    def leave(self) -> None:
        if not self._last:  # Memory of its own, of no version.
            zeros = torch.zeros(self.plan.length, dtype=self.plan.dtype)
            self._last = self.plan.views(zeros)
        self._move_from([place.view for place in self._published], self._last)

    def vacate(self) -> None:
        self._open.clear()
        for places, _ in self._known.values():
            self._move_from([place.view for place in places], None)
        for views, _ in self._results.values():
            self._move_from(views, None)

    def close(self) -> None:
        for handle in self._hooks:
            handle.remove()
        self.vacate()

    def _move_from(self, places: List[torch.Tensor], views: Optional[List[torch.Tensor]]) -> None:
        """Gradients in ``places`` become ``views``; None: copies."""
        for index, (parameter, place) in enumerate(zip(self.parameters, places)):
            gradient = parameter.grad
            if gradient is None or gradient.layout is not torch.strided:
                continue
            if gradient.is_set_to(place):
                parameter.grad = gradient.clone() if views is None else views[index]


class FarSpan(Span):
    """That of parameters on a device."""

    def __init__(self, plan: BucketPlan, keep: Any) -> None:
        super().__init__(plan, keep)
        self._mirror = mirror_of(plan, plan.flags_offset)
        self._gathered = plan.views(self._mirror.of(torch.empty(0, device="cpu")))
        self._hosts: Dict[int, torch.Tensor] = {}  # By address.
        self._open = torch.empty(0, device="cpu")  # One of them.

    def _at(self, address: int) -> torch.Tensor:
        """[plan.length] What lies there, in memory of the host."""
        if address not in self._hosts:
            self._hosts[address] = self.plan.at(address, self._keep)
        return self._hosts[address]

    def _views(self) -> List[torch.Tensor]:
        return self._gathered

    def _result(self, host: torch.Tensor) -> List[torch.Tensor]:
        return self._gathered

    def open(self, address: int) -> None:
        self._open = self._at(address)
        self._flags = self._flags_of(self._open)

    def collect(self, densify: bool, scale: Optional[float]) -> None:
        super().collect(densify, scale)
        self._mirror.fetch(self._open[: self.plan.flags_offset])

    def give(self, address: int) -> None:
        self._mirror.put(self._at(address)[: self.plan.flags_offset])
        super().give(address)

    def ready(self) -> None:
        self._mirror.wait()

    vacate = ready  # Gradients have memory of their own already.


def spans_of(plans: Sequence[BucketPlan], keep: Any) -> List[Span]:
    """One for each bucket, by where it lies."""
    is_large = are_large(plans)
    return [
        HereSpan(plan, keep, is_large) if plan.device.type == "cpu" else FarSpan(plan, keep)
        for plan in plans
    ]


class _Place:
    """Where the gradient of one parameter lies in memory of the core."""

    __slots__ = ("view", "_storage", "_own", "_piece")

    def __init__(self, host: torch.Tensor, slot: Slot, keep: Any, is_large: bool) -> None:
        parameter, item_bytes = slot.parameter, host.dtype.itemsize
        # With a storage of its own, whose holders can be counted.
        address = host.data_ptr() + slot.offset * item_bytes
        flat = tensor_at(address, parameter.numel(), host.dtype, keep)
        self.view = flat.as_strided(parameter.shape, gradient_strides(parameter))
        del flat
        self._storage = self.view.untyped_storage()
        self._own = 0 if _holders is None else _holders(self._storage._cdata)
        length = parameter.numel() * item_bytes
        # Its address and length, if more than caches hold is written beside it.
        self._piece: Optional[Tuple[Tuple[int], Tuple[int]]] = None
        if is_large and length >= FEW_BYTES:
            self._piece = (self.view.data_ptr(),), (length,)

    def is_free(self) -> bool:
        """No tensor lies here, such as an earlier ``grad`` that the script has kept."""
        return _holders is not None and _holders(self._storage._cdata) == self._own

    def take(self, gradient: torch.Tensor) -> torch.Tensor:
        """[as ``gradient``] A copy of it here that no other tensor shares: autograd takes
        such a one uncopied."""
        alias = self.view.detach()
        if self._piece is not None and lie_alike(alias, gradient):
            _native.copy_past_caches(self._piece[0], (gradient.data_ptr(),), self._piece[1])
        else:
            alias.copy_(gradient)
        return alias


def _hook_of(
    parameter: torch.nn.Parameter, places: List[_Place], index: int
) -> Callable[[Gradients], Optional[Gradients]]:
    """The hook of a parameter whose place is ``places[index]``."""

    def hook(gradients: Gradients) -> Optional[Gradients]:
        gradient = gradients[0]
        # With a graph (create_graph=True) autograd adds instead of taking what it gets.
        if gradient is None or parameter.grad is not None or torch.is_grad_enabled():
            return None
        if not places:  # No contribution is open.
            return None
        place = places[index]
        if gradient.layout is not torch.strided or not place.is_free():
            return None
        return (place.take(gradient),)

    return hook


def _dense_of(gradient: torch.Tensor, densify: bool) -> torch.Tensor:
    if gradient.layout is torch.strided:
        return gradient.detach()
    if not densify:
        raise Unsupported("a gradient is sparse: pass sparse_as_dense=True to DistributedOptimizer")
    return gradient.to_dense()
