"""One bucket of gradients: memory, views, and the allreduce in flight. Internal."""

from __future__ import annotations

import warnings
from typing import Any, Callable, Dict, List, Optional, Sequence, Type

import torch

from covey import _native
from covey.collectives import ALLREDUCE
from covey.errors import Exhausted, Unsupported
from covey.group import Group
from covey.memory import arena_empty
from covey.torch.compression import Compression, Compressor
from covey.torch.layout import BucketPlan, gradient_strides
from covey.torch.look import count, unfit
from covey.torch.tensors import CODES, FRAMEWORK, zeros_on


RESERVE_BYTES = 4 << 20
"""What must be free in the arena beside the gradients."""


class Reduction:
    """How the gradients of an optimizer are reduced.

    Attributes:
        op_code: covey_op.
        prescale, postscale: factors before and after.
        flags_tell: whether flags of 0 and 1 stay tellable, as they do in sums, averages and maxima.
    """

    __slots__ = ("op_code", "prescale", "postscale", "compression", "group", "flags_tell")

    def __init__(
        self,
        op_code: int,
        predivide: float,
        compression: Type[Compressor],
        group: Group,
        flags_tell: bool,
    ) -> None:
        self.op_code = op_code
        self.prescale = 1.0 / predivide
        self.postscale = predivide
        self.compression = compression
        self.group = group
        self.flags_tell = flags_tell


def make_buckets(
    plans: Sequence[BucketPlan], prefix: str, reduction: Reduction, densify: bool
) -> List["Bucket"]:
    """The buckets in arena memory, or when they do not fit all of them outside: slower, but right.

    The arena is never left full: the core needs room in it for what comes from outside.
    """
    numbered = [(plan, f"{prefix}.{number}") for number, plan in enumerate(plans)]
    try:
        in_arena = [
            Bucket(plan, name, reduction, densify, zeros_on(plan.device, True))
            for plan, name in numbered
        ]
        arena_empty((RESERVE_BYTES,), torch.uint8)
        return in_arena
    except Exhausted as error:
        warnings.warn(f"gradients lie outside of the arena, which costs a copy: {error}")
        in_arena = []
    return [
        Bucket(plan, name, reduction, densify, zeros_on(plan.device, False))
        for plan, name in numbered
    ]


def draw_of(step: int, number: int) -> int:
    """What codecs that round at random draw by in step ``step``, of its part ``number``: what is
    trained again from there, after a load too, is rounded alike.

    Example:
        >>> draw_of(0, 0)
        1
    """
    return number << 40 | (step + 1)


class Bucket:
    """Gradients that travel together.

    ``views[i]`` is the memory for the gradient of ``parameters[i]``. Between ``submit`` and
    ``finish`` the memory belongs to the core, and the parameters' ``grad`` is None: a further
    backward pass cannot add to what travels. A parameter without a gradient contributes zeros.
    """

    def __init__(
        self,
        plan: BucketPlan,
        name: str,
        reduction: Reduction,
        densify: bool,
        zeros: Callable[..., torch.Tensor],
    ) -> None:
        """Internal.

        Args:
            plan: which gradients lie where.
            name: of the allreduce.
            reduction: how to reduce.
            densify: make sparse gradients dense.
            zeros: makes the memory that travels, from a length and a dtype.
        """
        self.name = name
        self.names = [slot.name for slot in plan.slots]
        self.parameters = [slot.parameter for slot in plan.slots]
        self.handle: Optional[_native.Handle] = None
        self._reduction = reduction
        self._densify = densify
        self._context: Any = None
        self._stream: Any = None  # Of CUDA, on which the bucket was handed in.
        self._missing: List[int] = []

        self._allocate(plan, zeros)
        self._encode(plan)
        self._flags = self.flat[plan.flags_offset : plan.flags_offset + len(plan.slots)]
        self._plan = plan
        self.views = self._views_of(self.flat)

    def _views_of(self, flat: torch.Tensor) -> List[torch.Tensor]:
        return [
            flat.as_strided(
                slot.parameter.shape,
                gradient_strides(slot.parameter),
                flat.storage_offset() + slot.offset,
            )
            for slot in self._plan.slots
        ]

    @property
    def left_out(self) -> Dict[str, torch.Tensor]:
        """What the codec has left out up to now, by the names of parameters; not a copy."""
        if self._left_out is None:
            return {}
        return dict(zip(self.names, self._views_of(self._left_out)))

    def _allocate(self, plan: BucketPlan, zeros: Callable[..., torch.Tensor]) -> None:
        """``flat`` holds the gradients; it travels itself unless there is a ``_wire``."""
        wire_dtype = self._reduction.compression.wire_dtype
        self._wire: Optional[torch.Tensor] = None
        if wire_dtype is not None and wire_dtype.itemsize < plan.dtype.itemsize:
            self._wire = zeros(plan.length, dtype=wire_dtype)
            self.flat = zeros_on(plan.device, False)(plan.length, dtype=plan.dtype)
        else:
            self.flat = zeros(plan.length, dtype=plan.dtype)

    def _encode(self, plan: BucketPlan) -> None:
        """The core encodes what travels, if it can. The flags stay: they would spoil a block."""
        compression = self._reduction.compression
        can = plan.dtype == torch.float32 and plan.device.type == "cpu"
        self._codec = compression.codec if can else None
        self._encoded = self.flat[: plan.flags_offset]
        # What the codec has left out up to now, and with what is under way.
        self._left_out: Optional[torch.Tensor] = None
        if self._codec is not None and compression.feeds_back:
            self._left_out = torch.zeros_like(self._encoded)
            self._left_next = torch.zeros_like(self._encoded)

    def submit(self, step: Optional[int] = None, draw: int = 0) -> None:
        """Collects the gradients and hands the bucket to the core.

        Args:
            step: look for NaN and infinite numbers, and name this one with them.
            draw: of ``draw_of``.
        """
        self._collect()
        why = ""
        if step is not None and count(self.flat) > 0:
            why = unfit(zip(self.names, self.views), step)
        payload = self._compress()
        if not payload.is_cpu:
            self._stream = torch.cuda.current_stream(payload.device)
        reduction = self._reduction
        self.handle = _native.submit1(
            ALLREDUCE,
            reduction.group.id,
            self.name,
            reduction.op_code,
            0,
            reduction.prescale,
            reduction.postscale,
            CODES[payload.dtype],
            FRAMEWORK.address(payload),
            None,
            (payload.numel(),),
            payload,
            0,
            None,
            None,
            why or ("" if payload.data_ptr() == self.flat.data_ptr() else None),
            self._codec,
            None,
            draw,
        )

    def _collect(self) -> None:
        """Takes the gradients; those that lie elsewhere are copied in, all at once."""
        sources: List[torch.Tensor] = []
        targets: List[torch.Tensor] = []
        self._missing = []
        for index, (parameter, view) in enumerate(zip(self.parameters, self.views)):
            grad = parameter.grad
            if grad is None:
                self._missing.append(index)
                continue
            if grad is not view:
                sources.append(self._dense(grad, index))
                targets.append(view)
            parameter.grad = None
        if sources:
            torch._foreach_copy_(targets, sources)
        self._flags.fill_(1)
        for index in self._missing:
            self.views[index].zero_()
            self._flags[index] = 0

    def _dense(self, grad: torch.Tensor, index: int) -> torch.Tensor:
        if grad.requires_grad:
            raise AssertionError(
                f"the gradient of {self.names[index]} has a gradient itself: "
                "backward(create_graph=True) cannot be combined with DistributedOptimizer; "
                "use torch.autograd.grad for the inner derivative"
            )
        if grad.layout is torch.strided:
            return grad
        if not self._densify:
            raise Unsupported(
                f"the gradient of {self.names[index]} is sparse: "
                "pass sparse_as_dense=True to DistributedOptimizer"
            )
        return grad.to_dense()

    def _compress(self) -> torch.Tensor:
        if self._codec is not None:
            if self._left_out is not None:
                self._feed_back()
            return self._encoded
        if self._wire is not None:
            return self._wire.copy_(self.flat)
        compression = self._reduction.compression
        if compression.codec is not None or compression is Compression.none:
            return self.flat
        payload, self._context = compression.compress(self.flat)
        return self._payload_of(payload)

    def _feed_back(self) -> None:
        own = self._encoded.add_(self._left_out)
        assert self._codec is not None
        _native.codec_residual(
            self._codec, own.data_ptr(), own.numel(), self._left_next.data_ptr()
        )

    def _payload_of(self, payload: torch.Tensor) -> torch.Tensor:
        self._compressed = payload.contiguous()
        return self._compressed

    def finish(self) -> None:
        """Waits for the reduction; the parameters' gradients are the reduced ones then.

        Where no rank had a gradient, ``grad`` stays None.
        """
        assert self.handle is not None
        try:
            self.handle.wait()
        finally:
            if self.handle.poll():
                self.handle = None
        if self._stream is not None:
            # Backward may have had another one than the step that comes.
            torch.cuda.current_stream(self.flat.device).wait_stream(self._stream)
        if self._left_out is not None:
            self._left_out, self._left_next = self._left_next, self._left_out
        self._decompress()
        unused = self._unused_everywhere() if self._missing else set()
        for index, (parameter, view) in enumerate(zip(self.parameters, self.views)):
            if index not in unused:
                parameter.grad = view

    def _decompress(self) -> None:
        compression = self._reduction.compression
        if self._wire is not None:
            self.flat.copy_(self._wire)
        elif compression.codec is None and compression is not Compression.none:
            self.flat.copy_(compression.decompress(self._compressed, self._context))

    def _unused_everywhere(self) -> set:
        if not self._reduction.flags_tell:
            return set()
        flags = self._flags.tolist()
        return {index for index in self._missing if flags[index] == 0}
