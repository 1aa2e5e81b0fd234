"""The options of a distributed optimizer of Keras, most of them Horovod's. Internal."""

from __future__ import annotations

from typing import Any

import keras

from covey.errors import InvalidArgument, Unsupported
from covey.method import parsed
from covey.reduce_op import Average, Sum, core_code


def check_options(optimizer: Any, op: int, factor: float, num_groups: Any, groups: Any) -> None:
    """Refuses what there is not.

    Raises:
        InvalidArgument, Unsupported: (ValueErrors) name what is wrong, and what to use.
    """
    if not isinstance(optimizer, keras.optimizers.Optimizer):
        is_class = isinstance(optimizer, type)
        what = f"the class {optimizer.__name__}" if is_class else f"a {type(optimizer).__name__}"
        raise InvalidArgument(
            "optimizer must be one of Keras 3, such as keras.optimizers.SGD(0.1), or its name, "
            f"not {what}"
        )
    core_code(op)
    if op not in (Average, Sum):
        raise Unsupported("op must be Average or Sum")
    if factor != 1.0:
        raise Unsupported(
            "gradient_predivide_factor is 1 here; for sums that overflow use "
            "hvd.DistributedGradientTape, which has it"
        )
    if groups is not None and not isinstance(groups, int):
        raise Unsupported("groups must be a number or None: all gradients travel together")
    if not isinstance(num_groups, int) or num_groups < 0:
        raise InvalidArgument(f"num_groups must be 0 or more, not {num_groups!r}")


def check_passes(passes: int) -> int:
    """Of backward passes for a step. Raises InvalidArgument (a ValueError): it is not 1 or more."""
    if not isinstance(passes, int) or passes < 1:
        raise InvalidArgument(f"backward_passes_per_step must be 1 or more, not {passes!r}")
    return passes


def with_codec(method: str, compression: Any, codec: Any) -> str:
    """The whole text ``method``, with ``codec``, which the class ``compression`` stands for; "" is
    none.

    Raises:
        InvalidArgument: (a ValueError) both name a codec, or the method has none.
        Unsupported: (a ValueError) ``codec`` is None: another compression.

    Example:
        >>> with_codec("allreduce", Compression.fp16, "fp16")  # doctest: +SKIP
        'allreduce:codec=fp16'
    """
    if codec is None:
        raise Unsupported(
            f"compression={compression!r}: use Compression.fp16 or .bf16, or codec= of the method"
        )
    if not codec:
        return method
    if "codec=" in method:
        raise InvalidArgument(f"give compression or codec, not both: the method is {method}")
    head, then, rest = method.partition("then=")
    head = head.rstrip(",:")
    text = f"{head}{',' if ':' in head else ':'}codec={codec}" + (f",{then}{rest}" if then else "")
    parsed(text)
    return text
