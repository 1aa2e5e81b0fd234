"""The gradients of one dtype in rounds, which backward puts straight to where the core reads them.
Internal.

A hook runs before a gradient is accumulated. Where the parameter has none yet, it copies the
gradient, which was just computed, to its place in what is published next, and gives autograd that
place for it. So ``grad`` lies there: later backward passes add to it there, and publishing copies
nothing. Gradients that a hook leaves alone (sparse, ``create_graph=True``, while the script keeps
the ``grad`` of an earlier backward pass) and those put into ``grad`` otherwise are copied by
``collect``.

After publishing no ``grad`` may stay there, since the core reads it. A ``grad`` that a user keeps
over ``step()`` without cloning it changes later.
"""

from __future__ import annotations

import ctypes
from typing import Any, Callable, Dict, List, Optional, Tuple

import torch
from torch.autograd.graph import get_gradient_edge

from covey import _native
from covey.errors import Unsupported
from covey.torch.copies import copy_past_caches, lie_alike
from covey.torch.layout import BucketPlan, Slot, gradient_strides

Gradients = Tuple[Optional[torch.Tensor], ...]
_holders: Optional[Callable[[int], int]] = getattr(torch._C, "_storage_Use_Count", None)
_FEW_BYTES = 64 << 10  # They are as well copied through the caches.


class _Place:
    """Where the gradient of one parameter lies in memory of the core."""

    __slots__ = ("view", "_storage", "_own", "_piece")

    def __init__(self, memory: Any, slot: Slot, dtype: torch.dtype, is_large: bool) -> None:
        shape, count = slot.parameter.shape, slot.parameter.numel()
        offset = slot.offset * dtype.itemsize
        flat = (
            torch.frombuffer(memory, dtype=dtype, count=count, offset=offset)
            if count > 0  # It takes nothing for nothing.
            else torch.empty(0, dtype=dtype)
        )
        self.view = flat.as_strided(shape, gradient_strides(slot.parameter))
        del flat
        self._storage = self.view.untyped_storage()
        self._own = 0 if _holders is None else _holders(self._storage._cdata)
        length = count * dtype.itemsize
        # Its address and length, if more than caches hold is written beside it.
        self._piece: Optional[Tuple[Tuple[int], Tuple[int]]] = None
        if is_large and length >= _FEW_BYTES:
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


def dense_of(gradient: torch.Tensor, densify: bool) -> torch.Tensor:
    """A gradient, made dense if it is sparse and that is wanted.

    Raises:
        Unsupported: (a ValueError) it is not wanted.
    """
    if gradient.layout is torch.strided:
        return gradient.detach()
    if not densify:
        raise Unsupported(
            "a gradient is sparse: pass sparse_as_dense=True to DistributedOptimizer"
        )
    return gradient.to_dense()


class Span:
    """See the module.

    Attributes:
        plan: which gradients lie where.
        parameters: theirs.
        views: the gradients of the version that was given last, by parameter, then the flags of the
            ranks that had one.
    """

    def __init__(self, plan: BucketPlan, keep: Any, is_large: bool = False) -> None:
        """``keep``: holds memory of the core while a tensor lies in it. ``is_large``: all
        buckets together are more than caches hold."""
        self.plan = plan
        self._is_large = is_large
        self.parameters = [slot.parameter for slot in plan.slots]
        self._keep = keep
        self._result: Optional[torch.Tensor] = None  # Memory of its own.
        self._results: Dict[int, List[torch.Tensor]] = {}  # By address, as ``views``: of the core.
        self.views: List[torch.Tensor] = []
        self._known: Dict[int, Tuple[List[_Place], torch.Tensor]] = {}  # By address: three.
        self._open: List[_Place] = []  # One of them; the list that the hooks know.
        self._published: List[_Place] = []  # The one before.
        self._flags = torch.empty(0)  # Of the open one.
        # A parameter knows its node only while the node is held elsewhere.
        self._nodes = [get_gradient_edge(parameter).node for parameter in self.parameters]
        self._hooks = [
            node.register_prehook(_hook_of(parameter, self._open, index))
            for index, (node, parameter) in enumerate(zip(self._nodes, self.parameters))
        ]

    def _views_of(self, flat: torch.Tensor) -> List[torch.Tensor]:
        plan = self.plan
        views = [
            flat.as_strided(slot.parameter.shape, gradient_strides(slot.parameter), slot.offset)
            for slot in plan.slots
        ]
        return views + [flat[plan.flags_offset : plan.flags_offset + len(plan.slots)]]

    def _memory(self, address: int) -> Any:
        memory: Any = ctypes.c_char * (self.plan.length * self.plan.dtype.itemsize)
        memory = memory.from_address(address)
        memory.keep = self._keep
        return memory

    @property
    def result(self) -> torch.Tensor:
        """[plan.length] Where gradients lie that are of no version."""
        if self._result is None:
            self._result = torch.zeros(self.plan.length, dtype=self.plan.dtype)
        return self._result

    def open(self, address: int) -> None:
        """The next contribution is written to ``address``."""
        if address not in self._known:
            plan = self.plan
            memory = self._memory(address)
            places = [_Place(memory, slot, plan.dtype, self._is_large) for slot in plan.slots]
            flags = torch.frombuffer(memory, dtype=plan.dtype)[plan.flags_offset :]
            self._known[address] = places, flags[: len(plan.slots)]
        self._published = list(self._open)
        self._open[:], self._flags = self._known[address]

    def collect(self, densify: bool, scale: Optional[float]) -> None:
        """The next contribution becomes this rank's gradients, divided by ``scale``; zeros where it
        has none."""
        sources: List[torch.Tensor] = []
        targets: List[torch.Tensor] = []
        present: List[torch.Tensor] = []
        self._flags.fill_(1)
        for index, (parameter, place) in enumerate(zip(self.parameters, self._open)):
            gradient = parameter.grad
            if gradient is None:
                place.view.zero_()
                self._flags[index] = 0
                continue
            present.append(place.view)
            if gradient.layout is not torch.strided or not gradient.is_set_to(place.view):
                sources.append(dense_of(gradient, densify))
                targets.append(place.view)
        if sources:
            (copy_past_caches if self._is_large else torch._foreach_copy_)(targets, sources)
        if scale is not None and present:
            torch._foreach_div_(present, scale)

    def ready(self) -> None:
        """The collected gradients are where the core reads them."""

    def give(self, address: int) -> None:
        """Gradients are those of the version that lies at ``address``; None where no rank had
        one."""
        if address not in self._results:
            flat = torch.frombuffer(self._memory(address), dtype=self.plan.dtype)
            self._results[address] = self._views_of(flat)
        self.views = self._results[address]
        flags = self.views[-1].tolist()
        for parameter, view, flag in zip(self.parameters, self.views, flags):
            parameter.grad = view if flag != 0 else None

    def leave(self) -> None:
        """Published memory stays no gradient, though no version was read."""
        if not self.views:
            self.views = self._views_of(self.result)
        self._move_from([place.view for place in self._published], self.views)

    def close(self) -> None:
        """Gradients that lie in memory of the core get memory of their own."""
        for handle in self._hooks:
            handle.remove()
        self.vacate()

    def vacate(self) -> None:
        """As ``close``; another contribution may be opened."""
        self._open.clear()
        for places, _ in self._known.values():
            self._move_from([place.view for place in places], None)
        for views in self._results.values():
            self._move_from(views, None)

    def _move_from(
        self, places: List[torch.Tensor], views: Optional[List[torch.Tensor]]
    ) -> None:
        """Gradients in ``places`` become ``views``; None: copies."""
        for index, (parameter, place) in enumerate(zip(self.parameters, places)):
            gradient = parameter.grad
            if gradient is None or gradient.layout is not torch.strided:
                continue
            if gradient.is_set_to(place):
                parameter.grad = gradient.clone() if views is None else views[index]
