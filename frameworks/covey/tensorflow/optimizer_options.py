"""The options of a distributed optimizer of Keras on TensorFlow. Internal."""

from __future__ import annotations

from typing import Any, Type

import keras

from covey.errors import Unsupported
from covey.keras import options
from covey.keras.options import with_codec
from covey.tensorflow.compression import BF16Compressor, Compressor, FP16Compressor

_CODECS = {Compressor: "", FP16Compressor: "fp16", BF16Compressor: "bf16"}


def check_options(optimizer: Any, op: int, factor: float, num_groups: Any, groups: Any) -> None:
    """Refuses what there is not.

    Raises:
        InvalidArgument, Unsupported: (ValueErrors) name what is wrong, and what to use.
    """
    if keras.backend.backend() != "tensorflow":
        raise Unsupported(
            f"Keras runs on {keras.backend.backend()} here: covey.tensorflow needs "
            "KERAS_BACKEND=tensorflow; covey.keras works on torch too"
        )
    options.check_options(optimizer, op, factor, num_groups, groups, has_adasum=True)


def with_compression(method: str, compression: Type[Compressor]) -> str:
    """``with_codec`` of a class of ``covey.tensorflow.Compression``."""
    return with_codec(method, compression, _CODECS)
