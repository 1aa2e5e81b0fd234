"""Facts about torch's tensors. Internal."""

from __future__ import annotations

import functools
from typing import Any, Callable, Optional, Tuple

import torch

from covey import _native
from covey.arguments import scales_of
from covey.collectives import Collectives
from covey.errors import CoveyError, Unsupported
from covey.framework import DTYPE_NAMES, Address, Framework, View
from covey.memory import arena_empty

_STRIDED = torch.strided
_DTYPES = tuple(getattr(torch, name, None) for name in DTYPE_NAMES)  # None: an older torch.
CODES = {dtype: code for code, dtype in enumerate(_DTYPES) if dtype is not None}
"""torch dtype -> covey_dtype."""


def code_of_dtype(dtype: torch.dtype) -> Tuple[Optional[int], int]:
    """(covey_dtype or None, bytes per element) of a torch dtype."""
    return CODES.get(dtype), dtype.itemsize


def refuse(tensor: Any) -> None:
    """Raises the reason why ``tensor`` cannot be sent."""
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"covey.torch works on torch tensors, not on a {type(tensor).__name__}")
    if tensor.layout is not torch.strided:
        raise Unsupported(
            f"a tensor of layout {tensor.layout} cannot be sent; make it dense with .to_dense()"
        )
    if tensor.device.type not in ("cpu", "cuda"):
        raise Unsupported(f"a tensor on the device {tensor.device} cannot be sent")
    raise Unsupported(
        f"tensors of {tensor.dtype} cannot be sent; possible are {', '.join(DTYPE_NAMES)}"
    )


class TorchFramework(Framework[torch.Tensor]):
    """Tensors on the CPU and on CUDA."""

    questions = ("is_cpu", "is_contiguous", "dtype", "data_ptr", "shape", "is_neg")
    dtypes = _DTYPES
    plain_types = (torch.Tensor, torch.nn.Parameter)
    _has_cuda = False

    def _check_cuda(self, tensor: Any) -> None:
        """Raises the reason why no tensor on CUDA can be sent from here."""
        if self._has_cuda:
            return
        try:
            _native.plugin_check("cuda")
        except CoveyError as error:
            why = f"the tensor is on {tensor.device}: {error}; use tensor.cpu()"
            raise Unsupported(why) from error
        self._has_cuda = True

    def view(self, tensor: Any, in_place: bool) -> View[Any]:
        try:
            is_plain = tensor.is_cpu and tensor.layout is _STRIDED and not tensor.is_neg()
            if is_plain and tensor.is_contiguous():
                return tensor, tensor, CODES[tensor.dtype], tensor.data_ptr(), tensor.shape
        except (KeyError, AttributeError):
            pass
        return super().view(tensor, in_place)

    def code(self, tensor: Any) -> int:
        try:
            if tensor.layout is torch.strided and (tensor.is_cpu or tensor.is_cuda):
                code = CODES[tensor.dtype]
                if tensor.is_cuda:
                    self._check_cuda(tensor)
                return code
        except (KeyError, AttributeError):
            pass
        refuse(tensor)
        raise AssertionError("unreachable: refuse() raises")

    def dense(self, tensor: Any) -> Any:
        # Torch negates some views lazily (z.conj().imag): what lies there has the other sign.
        if tensor.is_contiguous() and not tensor.is_neg():
            return tensor
        return tensor.detach().resolve_neg().contiguous()

    def empty_like(self, dense: Any) -> Any:
        return torch.empty_like(dense, memory_format=torch.contiguous_format)

    def empty(self, shape: Tuple[int, ...], code: int) -> Any:
        return torch.empty(shape, dtype=_DTYPES[code])

    def empty_beside(self, dense: Any, shape: Tuple[int, ...], code: int) -> Any:
        return torch.empty(shape, dtype=_DTYPES[code], device=dense.device)

    def beside(self, result: Any, dense: Any) -> Any:
        return result if dense.is_cpu else result.to(dense.device)

    def on_host(self, dense: Any) -> Any:
        return dense if dense.is_cpu else dense.detach().cpu()

    def address(self, dense: Any) -> Address:
        if dense.is_cpu:
            return dense.data_ptr()
        if torch.cuda.is_current_stream_capturing():
            raise Unsupported(
                "a CUDA graph is being captured, and no operation of Covey can be part of one: "
                "call it before or after"
            )
        stream = torch.cuda.current_stream(dense.device)
        return dense.data_ptr(), stream.device_index, stream.cuda_stream

    def shape(self, tensor: Any) -> Tuple[int, ...]:
        return tensor.shape

    def assign(self, target: Any, source: Any) -> Any:
        target.detach().copy_(source)
        return target

    def wrap(self, memory: Any, code: int, shape: Tuple[int, ...]) -> Any:
        if len(memory) == 0:
            return self.empty(shape, code)
        flat = torch.frombuffer(memory, dtype=_DTYPES[code])
        # Not flat.view(shape): autograd refuses to write into a view that a Function returned.
        return flat.new_empty(0).set_(flat.untyped_storage(), 0, shape)  # type: ignore


def zeros_on(device: torch.device, in_arena: bool) -> Callable[..., torch.Tensor]:
    """Makes flat memory that travels, from a length and a dtype: in the arena if that is wanted and
    the device is the CPU."""
    if in_arena and device.type == "cpu":
        return arena_empty
    return functools.partial(torch.zeros, device=device)


class TorchCollectives(Collectives[torch.Tensor]):
    """The operations on torch tensors."""

    _streams: Any = None  # AdasumStreams, made at the first use: few scripts need them.

    def _adasum(
        self, variant: Any, given: Any, name: Any, scales: Any, process_set: Any, codec: Any
    ) -> Any:
        from covey.torch.adasum import AdasumStreams

        scales_of(*scales)
        if codec is not None:
            raise Unsupported(f"op=Adasum has no codecs, such as {codec}")
        self._streams = self._streams or AdasumStreams(self)
        many = given if isinstance(given, list) else [given]
        made = self._streams.begin(variant, many, name, scales, process_set)
        return made if many is given else made.of_one()


FRAMEWORK = TorchFramework()
collectives = TorchCollectives(FRAMEWORK, "covey.torch", "torch.Tensor")
