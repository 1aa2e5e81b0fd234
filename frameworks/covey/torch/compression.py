"""Making tensors smaller before they travel.

A compressor is a class with two static methods; write your own by deriving from
:class:`Compressor`.
"""

from __future__ import annotations

from typing import Any, Optional, Tuple, Type

import torch


class Compressor:
    """What happens to a tensor before and after an allreduce."""

    wire_dtype: Optional[torch.dtype] = None
    """The dtype that travels, for compressors that only cast floating-point tensors."""

    @staticmethod
    def compress(tensor: torch.Tensor) -> Tuple[torch.Tensor, Any]:
        """Returns (what travels, context for :meth:`decompress`)."""
        raise NotImplementedError

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: Any) -> torch.Tensor:
        """Turns the reduced tensor back; ``ctx`` is what :meth:`compress` returned."""
        raise NotImplementedError


class NoneCompressor(Compressor):
    """The tensor travels as it is."""

    @staticmethod
    def compress(tensor: torch.Tensor) -> Tuple[torch.Tensor, Any]:
        return tensor, None

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: Any) -> torch.Tensor:
        return tensor


def _cast(tensor: torch.Tensor, dtype: torch.dtype) -> Tuple[torch.Tensor, Any]:
    if not tensor.dtype.is_floating_point or tensor.dtype.itemsize <= dtype.itemsize:
        return tensor, None
    return tensor.to(dtype), tensor.dtype


def _cast_back(tensor: torch.Tensor, ctx: Any) -> torch.Tensor:
    return tensor if ctx is None else tensor.to(ctx)


class FP16Compressor(Compressor):
    """float32 and float64 tensors travel as float16."""

    wire_dtype = torch.float16

    @staticmethod
    def compress(tensor: torch.Tensor) -> Tuple[torch.Tensor, Any]:
        return _cast(tensor, torch.float16)

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: Any) -> torch.Tensor:
        return _cast_back(tensor, ctx)


class BF16Compressor(Compressor):
    """float32 and float64 tensors travel as bfloat16, which keeps the range of float32."""

    wire_dtype = torch.bfloat16

    @staticmethod
    def compress(tensor: torch.Tensor) -> Tuple[torch.Tensor, Any]:
        return _cast(tensor, torch.bfloat16)

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: Any) -> torch.Tensor:
        return _cast_back(tensor, ctx)


class Compression:
    """The compressors there are.

    Example:
        >>> total = hvd.allreduce(tensor, compression=hvd.Compression.bf16)
    """

    none: Type[Compressor] = NoneCompressor
    fp16: Type[Compressor] = FP16Compressor
    bf16: Type[Compressor] = BF16Compressor
