"""One bucket of gradients: memory, views, and the allreduce in flight. Internal."""

from __future__ import annotations

import contextlib
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Set, Tuple, Type

import torch

from covey import _native
from covey.collectives import ALLREDUCE
from covey.errors import CoveyError, Exhausted, Unsupported
from covey.group import Group
from covey.memory import arena_empty
from covey.notice import warn
from covey.reduce_op import Average, Sum, core_code
from covey.torch.compression import Compression, Compressor
from covey.torch.copies import are_large, copy_past_caches
from covey.torch.layout import BucketPlan, without
from covey.torch.look import count, unfit
from covey.torch.tensors import CODES, FRAMEWORK, zeros_on
from covey.torch.written import Seen

RESERVE_BYTES = 4 << 20
"""The bytes that must be free in the arena beside the gradients."""


class Reduction(NamedTuple):
    """How the gradients of an optimizer are reduced.

    Attributes:
        op_code: covey_op.
        predivide: what is summed is divided by it, and the sum multiplied.
        flags_tell: whether flags of 0 and 1 stay tellable, as they do in sums, averages and maxima.
        is_large: whether all gradients together are more than caches hold.
    """

    op_code: int
    predivide: float
    compression: Type[Compressor]
    group: Group
    flags_tell: bool
    is_large: bool = False

    @property
    def gathers_sparse(self) -> bool:
        return self.flags_tell and self.op_code in map(core_code, (Average, Sum))

    @property
    def is_plain(self) -> bool:
        """Whether nothing is compressed outside of the core."""
        return self.compression.codec is not None or self.compression is Compression.none


def make_buckets(
    plans: Sequence[BucketPlan], prefix: str, reduction: Reduction, densify: bool
) -> List["Bucket"]:
    """The buckets in arena memory, or when they do not fit all of them outside: slower, but right.

    The arena is never left full: the core needs room in it for tensors from outside.
    """

    reduction = reduction._replace(is_large=reduction.is_large or are_large(plans))

    def made(in_arena: bool) -> List["Bucket"]:
        return [
            Bucket(plan, f"{prefix}.{i}", reduction, densify, zeros_on(plan.device, in_arena))
            for i, plan in enumerate(plans)
        ]

    try:
        buckets = made(True)
        arena_empty((RESERVE_BYTES,), torch.uint8)
        return buckets
    except Exhausted as error:
        warn(f"gradients lie outside of the arena, which costs a copy: {error}")
        buckets = []
    return made(False)


def draw_of(step: int, number: int) -> int:
    """The seed of codecs that round at random in step ``step``, of its part ``number``: a training
    repeated from there, after a load too, is rounded alike.

    Example:
        >>> draw_of(0, 0)
        1
    """
    return number << 40 | (step + 1)


class _Memory:
    """Room for the gradients of a bucket.

    Attributes:
        flat: [plan.length] all of it.
        views: the place of each gradient.
        encoded: without the flags.
        flags: [parameters + 1] 1 where there is a gradient, and last if there is a sparse one.
    """

    __slots__ = ("flat", "views", "encoded", "flags")

    def __init__(self, plan: BucketPlan, flat: torch.Tensor) -> None:
        self.flat = flat
        self.views = plan.views(flat)
        self.encoded = flat[: plan.flags_offset]
        self.flags = flat[plan.flags_offset :][: len(plan.slots) + 1]


class Bucket:
    """Gradients that travel together.

    ``views[i]`` is the memory for the gradient of ``parameters[i]``. Between ``submit`` and
    ``finish`` a parameter's ``grad`` stays this rank's own gradient, which lies apart from what is
    reduced: autograd's own tensor is copied in, and for gradients that lie in the bucket already
    (``zero_grad(set_to_none=False)``) the reduction goes to a second memory. A parameter without a
    gradient contributes zeros.

    Attributes:
        fresh: parameters whose ``grad`` is zeros of ``fill`` and has been in no backward pass.
        plan: which gradients lie where.
        seen: the gradients as they were when they were complete; None: they are not.
        sparse: this rank's gradients that do not travel in here, being sparse.
        has_sparse: in the reduction that ended last a rank had such. On CUDA it is not known: the
            host reads no flags there.
    """

    def __init__(
        self,
        plan: BucketPlan,
        name: str,
        reduction: Reduction,
        densify: bool,
        zeros: Callable[..., torch.Tensor],
    ) -> None:
        """``name``: of the allreduce. ``densify``: make sparse gradients dense. ``zeros`` makes the
        memory that travels."""
        self.name = name
        self.names = [slot.name for slot in plan.slots]
        self.parameters = plan.parameters
        self.handle: Optional[_native.Handle] = None
        self.fresh: Set[int] = set()
        self._reduction = reduction
        self._densify = densify
        self._leaves_sparse = not densify and reduction.gathers_sparse
        self._is_plain = reduction.is_plain
        self._context: Any = None
        self._stream: Any = None  # Of CUDA, on which the bucket was handed in.
        self._missing: List[int] = []
        self.seen: Optional[Seen] = None
        self.plan = plan
        self.sparse: Dict[int, torch.Tensor] = {}
        self.has_sparse = False
        self._zeros = zeros
        self._allocate()
        self._result = self._memory  # Where the reduction goes.
        self._spare: Optional[_Memory] = None

    def without(self, names: Sequence[str]) -> List["Bucket"]:
        """Itself where it has none of the gradients of ``names``, else one of the others, if any.
        Nothing is in flight."""
        plan = without(self.plan, names)
        if plan is None or len(plan.slots) == len(self.plan.slots):
            return [] if plan is None else [self]
        return make_buckets([plan], f"{self.name}.dense", self._reduction, self._densify)

    @property
    def flat(self) -> torch.Tensor:
        """[plan.length] The gradients, and after ``finish`` the reduced ones."""
        return self._memory.flat

    @property
    def views(self) -> List[torch.Tensor]:
        return self._memory.views

    @property
    def left_out(self) -> Dict[str, torch.Tensor]:
        """The codec's residual up to now, by the names of parameters; not a copy."""
        if self._left_out is None:
            return {}
        return dict(zip(self.names, self.plan.views(self._left_out)))

    def fill(self) -> None:
        """Parameters without a gradient have zeros, which lie here and are not counted as one."""
        for index, (parameter, view) in enumerate(zip(self.parameters, self.views)):
            if parameter.grad is None:
                parameter.grad = view
                self.fresh.add(index)

    def _allocate(self) -> None:
        """``flat`` holds the gradients; it travels itself unless there is a ``_wire``. The core
        encodes what travels, if it can: without the flags, which would spoil a block."""
        plan, zeros, compression = self.plan, self._zeros, self._reduction.compression
        wire_dtype = compression.wire_dtype
        self._wire: Optional[torch.Tensor] = None
        if wire_dtype is not None and wire_dtype.itemsize < plan.dtype.itemsize:
            self._wire = zeros(plan.length, dtype=wire_dtype)
            zeros = zeros_on(plan.device, False)
        self._memory = _Memory(plan, zeros(plan.length, dtype=plan.dtype))
        can = plan.dtype == torch.float32 and plan.device.type == "cpu"
        self._codec = compression.codec if can else None
        # The codec's residual up to now, and with the exchange under way.
        self._left_out: Optional[torch.Tensor] = None
        if self._codec is not None and compression.feeds_back:
            self._left_out = torch.zeros_like(self._memory.encoded)
            self._left_next = torch.zeros_like(self._memory.encoded)

    def complete(self) -> None:
        """The gradients are complete, and are submitted later.

        Raises:
            As ``submit``: there is one that cannot be reduced.
        """
        for index, parameter in enumerate(self.parameters):
            if parameter.grad is not None:
                self._dense(parameter.grad, index, False)

    def watch(self, lazy: bool, copies: bool) -> None:
        """From now on ``is_rewritten`` tells of writing to the gradients: see ``Seen``."""
        self.seen = Seen(self.parameters, self.views, lazy, copies)

    def is_rewritten(self) -> bool:
        """Whether a gradient was written to, or replaced, since they were complete."""
        return self.seen is not None and self.seen.is_rewritten()

    def lies_here(self) -> bool:
        """Whether a gradient lies in the bucket already."""
        return any(it.grad is view for it, view in zip(self.parameters, self.views))

    def is_sparse(self) -> bool:
        """Whether a gradient of this rank is, and is not in the bucket."""
        grads = [it.grad for it in self.parameters] if self._leaves_sparse else []
        return any(it is not None and it.layout is torch.sparse_coo for it in grads)

    def submit(self, step: Optional[int] = None, draw: int = 0, stays: bool = False) -> None:
        """Collects the gradients and hands the bucket to the core.

        Args:
            step: look for NaN and infinite numbers, and name this one with them.
            draw: of ``draw_of``.
            stays: ``grad`` can be read until ``finish``; else it is None.
        """
        lies_here = self._collect(stays)
        why = ""
        if step is not None and count(self.flat) > 0:
            why = unfit(zip(self.names, self.views), step)
        self._choose_result(stays and lies_here)
        payload, target = self._compress()
        if not payload.is_cpu:
            self._stream = torch.cuda.current_stream(payload.device)
        was_looked_at = payload.data_ptr() in (self.flat.data_ptr(), self._result.flat.data_ptr())
        reduction = self._reduction
        self.handle = _native.submit1(
            ALLREDUCE,
            reduction.group.id,
            self.name,
            reduction.op_code,
            0,
            1.0 / reduction.predivide,
            reduction.predivide,
            CODES[payload.dtype],
            FRAMEWORK.address(payload),
            None if target is None else FRAMEWORK.address(target),
            (payload.numel(),),
            (payload, target),
            0,
            None,
            None,
            why or ("" if was_looked_at else None),
            self._codec,
            None,
            draw,
            int(reduction.compression.feeds_back),
        )

    def _collect(self, stays: bool) -> bool:
        """Takes the gradients; those that lie elsewhere are copied in, all at once. Whether others
        lie here."""
        sources: List[torch.Tensor] = []
        targets: List[torch.Tensor] = []
        self._missing, self.sparse = [], {}
        lies_here = False
        for index, (parameter, view) in enumerate(zip(self.parameters, self.views)):
            grad = parameter.grad
            if grad is None or (index in self.fresh and grad is view):
                self._missing.append(index)
                continue
            if grad.layout is torch.sparse_coo and self._leaves_sparse:
                self._missing.append(index)
                self.sparse[index] = grad
                continue
            if grad is not view:
                sources.append(self._dense(grad, index, True))
                targets.append(view)
            else:
                lies_here = True
            if not stays:
                parameter.grad = None
        if sources:
            is_large = self._reduction.is_large and self.flat.is_cpu
            (copy_past_caches if is_large else torch._foreach_copy_)(targets, sources)
        flags = self._memory.flags.fill_(1)
        for index in self._missing:
            self.views[index].zero_()
            flags[index] = 0
        flags[-1] = int(bool(self.sparse))
        return lies_here

    def _choose_result(self, is_apart: bool) -> None:
        """Where the reduction goes. ``is_apart``: what lies in the bucket stays as it is; where
        something else travels it does so anyway."""
        travels = self._wire is None and (self._codec is not None or self._is_plain)
        if not is_apart or not travels:
            self._result, self._spare = self._memory, None
            return
        if self._spare is None:
            flat = self._zeros(self.plan.length, dtype=self.plan.dtype)
            self._spare = _Memory(self.plan, flat)
        self._result = self._spare
        if self._codec is not None:
            self._result.flat.copy_(self.flat)

    def _dense(self, grad: torch.Tensor, index: int, densify: bool) -> torch.Tensor:
        """``grad``, made dense if wanted. Raises for one that cannot be reduced."""
        if grad.requires_grad:
            raise AssertionError(
                f"the gradient of {self.names[index]} has a gradient itself: "
                "backward(create_graph=True) cannot be combined with DistributedOptimizer; "
                "use torch.autograd.grad for the inner derivative"
            )
        if grad.layout is torch.strided:
            return grad
        if not self._densify and not self._leaves_sparse:
            raise Unsupported(
                f"the gradient of {self.names[index]} is sparse: "
                "pass sparse_as_dense=True to DistributedOptimizer"
            )
        return grad.to_dense() if densify else grad

    def _compress(self) -> Tuple[torch.Tensor, Optional[torch.Tensor]]:
        """The tensor that travels, and the place of the result, if that is elsewhere."""
        if self._codec is not None:
            if self._left_out is not None:
                own = self._result.encoded.add_(self._left_out)
                left = self._left_next.data_ptr()
                _native.codec_residual(self._codec, own.data_ptr(), own.numel(), left)
            return self._result.encoded, None
        if self._wire is not None:
            return self._wire.copy_(self.flat), None
        if self._is_plain:
            return self.flat, None if self._result is self._memory else self._result.flat
        payload, self._context = self._reduction.compression.compress(self.flat)
        self._compressed = payload.contiguous()
        if self._compressed.data_ptr() == self.flat.data_ptr():
            self._compressed = self._compressed.clone()
        return self._compressed, None

    def _wait(self) -> None:
        assert self.handle is not None
        try:
            self.handle.wait()
        finally:
            if self.handle.poll():
                self.handle = None

    def drop(self) -> None:
        """Waits for the reduction, of which nothing is taken: gradients are as they were. The next
        reduction raises the error, if it persists."""
        with contextlib.suppress(CoveyError):
            self._wait()

    def finish(self) -> None:
        """Waits for the reduction; the parameters' gradients are the reduced ones then.

        Where no rank had a gradient, ``grad`` is None.
        """
        self._wait()
        if self._stream is not None:
            # Backward may have had another one than the step that comes.
            torch.cuda.current_stream(self.flat.device).wait_stream(self._stream)
        if self._left_out is not None:
            self._left_out, self._left_next = self._left_next, self._left_out
        if self._result is not self._memory:
            self._memory, self._spare = self._result, self._memory
        if self._wire is not None:
            self.flat.copy_(self._wire)
        elif not self._is_plain:
            compression = self._reduction.compression
            self.flat.copy_(compression.decompress(self._compressed, self._context))
        self.seen = None
        self.has_sparse = self._leaves_sparse and self.flat.is_cpu and bool(self._memory.flags[-1])
        self.fresh.clear()
        unused: Set[int] = set()  # On all ranks.
        if self._missing and self._reduction.flags_tell:
            flags = self._memory.flags.tolist()
            unused = {index for index in self._missing if flags[index] == 0}
        for index, (parameter, view) in enumerate(zip(self.parameters, self.views)):
            parameter.grad = None if index in unused else view
