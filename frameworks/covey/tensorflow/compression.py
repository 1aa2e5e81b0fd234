"""Making tensors smaller before they travel, as :mod:`covey.torch.compression`."""

from __future__ import annotations

from typing import Any, Optional, Tuple, Type

import tensorflow as tf

from covey.errors import InvalidArgument


class Compressor:
    """Changes of a tensor before and after an allreduce. This one: none."""

    wire_dtype: Any = None
    """The dtype in which wider floating-point tensors travel; None: their own."""

    @classmethod
    def compress(cls, tensor: Any) -> Tuple[Any, Optional[Any]]:
        """(what travels, context for :meth:`decompress`)."""
        wire = cls.wire_dtype
        if wire is None or not tensor.dtype.is_floating or tensor.dtype.size <= wire.size:
            return tensor, None
        return tf.cast(tensor, wire), tensor.dtype

    @classmethod
    def decompress(cls, tensor: Any, ctx: Optional[Any]) -> Any:
        """Turns the reduced tensor back; ``ctx`` is what :meth:`compress` returned."""
        return tensor if ctx is None else tf.cast(tensor, ctx)


class FP16Compressor(Compressor):
    """float32 and float64 tensors travel as float16."""

    wire_dtype = tf.float16


class BF16Compressor(Compressor):
    """float32 and float64 tensors travel as bfloat16, which keeps the range of float32."""

    wire_dtype = tf.bfloat16


class Compression:
    """The compressors there are.

    Example:
        >>> total = hvd.allreduce(tensor, compression=hvd.Compression.bf16)
    """

    none: Type[Compressor] = Compressor
    fp16: Type[Compressor] = FP16Compressor
    bf16: Type[Compressor] = BF16Compressor


def check_compression(given: Any) -> Any:
    """``given``, which has ``compress`` and ``decompress``.

    Raises:
        InvalidArgument: (a ValueError) it has not.
    """
    if hasattr(given, "compress") and hasattr(given, "decompress"):
        return given
    raise InvalidArgument(
        "compression must be Compression.none, .fp16, .bf16 or a class with compress() and "
        f"decompress(), not {given!r}"
    )
