"""Making tensors smaller before they travel.

A compressor is a class with two static methods; write your own by deriving from
:class:`Compressor`.
"""

from __future__ import annotations

from typing import Any, Optional, Tuple, Type

import torch

from covey import _native
from covey.arguments import text_of
from covey.errors import InvalidArgument, Unsupported


class Compressor:
    """Changes of a tensor before and after an allreduce.

    Example:
        >>> class Halved(hvd.Compressor):
        ...     @staticmethod
        ...     def compress(tensor):
        ...         return tensor / 2, None
        ...     @staticmethod
        ...     def decompress(tensor, ctx):
        ...         return tensor * 2
    """

    wire_dtype: Optional[torch.dtype] = None
    """The dtype that travels, for compressors that only cast floating-point tensors."""
    codec: Optional[str] = None
    """The core's codec of float32, for compressors that leave it to the core."""
    feeds_back: bool = False
    """The residual of ``codec`` is added to this rank's next contribution: an optimizer keeps
    it."""

    @staticmethod
    def compress(tensor: torch.Tensor) -> Tuple[torch.Tensor, Any]:
        """A tensor that is to be reduced, of any shape and dtype, as (the tensor that travels,
        context for :meth:`decompress`). The former has the same shape on every rank."""
        raise NotImplementedError

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: Any) -> torch.Tensor:
        """Turns the reduced ``tensor`` back into the shape and dtype that there were; ``ctx`` is
        what :meth:`compress` returned."""
        raise NotImplementedError


class NoneCompressor(Compressor):
    """The tensor travels as it is."""

    @staticmethod
    def compress(tensor: torch.Tensor) -> Tuple[torch.Tensor, Any]:
        return tensor, None

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: Any) -> torch.Tensor:
        return tensor


class _CastCompressor(Compressor):
    """Larger floating-point tensors travel as ``wire_dtype``."""

    wire_dtype: torch.dtype

    @classmethod
    def compress(cls, tensor: torch.Tensor) -> Tuple[torch.Tensor, Any]:
        dtype = cls.wire_dtype
        if not tensor.dtype.is_floating_point or tensor.dtype.itemsize <= dtype.itemsize:
            return tensor, None
        return tensor.to(dtype), tensor.dtype

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: Any) -> torch.Tensor:
        return tensor if ctx is None else tensor.to(ctx)


class FP16Compressor(_CastCompressor):
    """float32 and float64 tensors travel as float16."""

    wire_dtype = torch.float16


class BF16Compressor(_CastCompressor):
    """float32 and float64 tensors travel as bfloat16, which keeps the range of float32."""

    wire_dtype = torch.bfloat16


class CodecCompressor(NoneCompressor):
    """float32 tensors on the CPU are encoded by ``codec`` and reduced in float32, so that sums do
    not overflow; other tensors travel as they are. By :meth:`Compression.of`. A parameter that
    no rank has used gets zeros for a gradient, not None."""


class Compression:
    """The compressors there are.

    Example:
        >>> total = hvd.allreduce(tensor, compression=hvd.Compression.bf16)
        >>> optimizer = hvd.DistributedOptimizer(sgd, compression=hvd.Compression.of("qsgd@bits=4"))
    """

    none: Type[Compressor] = NoneCompressor
    fp16: Type[Compressor] = FP16Compressor
    bf16: Type[Compressor] = BF16Compressor

    @staticmethod
    def of(codec: str, error_feedback: Optional[bool] = None) -> Type[Compressor]:
        """The compressor that leaves it to a codec of the core.

        Args:
            codec: "int8", "bf16", "fp16", "qsgd@bits=4", "topk@bits=2", "int8@block=512", ...
            error_feedback: add what was left out to what is sent next (Seide et al. 2014,
                doi:10.21437/Interspeech.2014-274; Karimireddy et al. 2019,
                doi:10.48550/arXiv.1901.09847). It takes the memory of the gradients once more, and
                a DistributedOptimizer, which keeps it. None: with topk, which needs it.

        Raises:
            InvalidArgument: no such codec; says what there is, and the nearest.
            Unsupported: a codec that is right in expectation needs no error feedback.
        """
        if not isinstance(codec, str):
            raise InvalidArgument(f"a codec is a name such as \"int8\", not {codec!r}")
        feeds_back = codec.split("@")[0] == "topk" if error_feedback is None else error_feedback
        _native.codec_check(codec, feeds_back)
        fields = {"codec": codec, "feeds_back": feeds_back, "__doc__": CodecCompressor.__doc__}
        name = f"{codec} with error feedback" if feeds_back else codec
        return type(name, (CodecCompressor,), fields)


def check_compression(given: Any) -> Type[Compressor]:
    """``given``, which is a compressor.

    Raises:
        InvalidArgument: (a ValueError) it is none.
    """
    if isinstance(given, type) and issubclass(given, Compressor):
        return given
    raise InvalidArgument(
        "compression must be Compression.none, .fp16, .bf16, .of(codec) or a class of your own "
        f"derived from covey.torch.Compressor, not {given!r}"
    )


def codec_of(compression: Type[Compressor], codec: Optional[str]) -> Optional[str]:
    """The codec of one operation, after which nothing is kept.

    Raises:
        InvalidArgument: it is said twice, or ``compression`` is no compressor.
        Unsupported: (a ValueError) something would have to be kept.
    """
    check_compression(compression)
    codec = None if codec is None else text_of("codec", codec)
    if codec is not None and compression is not Compression.none:
        raise InvalidArgument(f"give compression or codec, not both: codec is {codec!r}")
    if compression.feeds_back:
        raise Unsupported(
            f"{compression.codec} with error feedback keeps what it leaves out for the next step: "
            "that is for a DistributedOptimizer; for one operation say error_feedback=False"
        )
    return codec or compression.codec
