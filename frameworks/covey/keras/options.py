"""The options of a distributed optimizer of Keras, most of them Horovod's. Internal."""

from __future__ import annotations

from typing import Any, Mapping

import keras

from covey.errors import InvalidArgument, Unsupported
from covey.group import Group
from covey.method import GRADIENTS, parsed, plans
from covey.reduce_op import Average, Sum, core_code, is_adasum
from covey.requests import check_predivisor


def check_options(
    optimizer: Any, op: int, factor: float, num_groups: Any, groups: Any, has_adasum: bool = False
) -> None:
    """Refuses what there is not; ``has_adasum``: on this backend.

    Raises:
        InvalidArgument, Unsupported: (ValueErrors) name what is wrong, and what to use.
    """
    if not isinstance(optimizer, keras.optimizers.Optimizer):
        is_class = isinstance(optimizer, type)
        kind = optimizer if is_class else type(optimizer)
        what = f"{'the class' if is_class else 'a'} {kind.__module__}.{kind.__name__}"
        raise InvalidArgument(
            "optimizer must be one of Keras 3, such as keras.optimizers.SGD(0.1), or its name, "
            f"not {what}"
        )
    if not (is_adasum(op) and has_adasum):
        core_code(op)
        if op not in (Average, Sum):
            raise Unsupported(f"op must be Average{', Adasum' * has_adasum} or Sum")
    check_predivisor(factor, op)
    if groups is not None and not isinstance(groups, (int, list, tuple)):
        raise InvalidArgument(f"groups is a number, lists of variables or None, not {groups!r}")
    if not isinstance(num_groups, int) or num_groups < 0:
        raise InvalidArgument(f"num_groups must be 0 or more, not {num_groups!r}")


def check_sums(text: str, group: Group) -> None:
    """Refuses a gradient_predivide_factor for a method whose updates are not by sums over all ranks
    of gradients.

    Raises:
        Unsupported: (a ValueError) names the method, whose whole text is ``text``.
    """
    if any(part.payload != GRADIENTS or part.in_rounds for _, part in plans(text, group.id)):
        raise Unsupported(
            f"gradient_predivide_factor must be 1 with the method {text}: it does not sum up the "
            "gradients of all ranks before each update"
        )


def check_updates(text: str, group: Group) -> None:
    """Refuses local variables for a method whose updates are not one for each step of a rank.

    Raises:
        Unsupported: (a ValueError) names the method, whose whole text is ``text``.
    """
    if any(part.payload == GRADIENTS and part.in_rounds for _, part in plans(text, group.id)):
        raise Unsupported(
            f"local variables do not go with the method {text}: its updates are not by the "
            "gradients of one step of this rank"
        )


def check_passes(passes: int) -> int:
    """The number of backward passes of a step. Raises InvalidArgument (a ValueError) below 1."""
    if not isinstance(passes, int) or passes < 1:
        raise InvalidArgument(f"backward_passes_per_step must be 1 or more, not {passes!r}")
    return passes


def with_codec(method: str, compression: Any, codecs: Mapping[Any, str]) -> str:
    """The whole text ``method``, with the codec that the class ``compression`` stands for by
    ``codecs``; "" is none.

    Raises:
        InvalidArgument: (a ValueError) both name a codec, or the method has none.
        Unsupported: (a ValueError) another compression.

    Example:
        >>> with_codec("allreduce", Compression.fp16, {Compression.fp16: "fp16"})  # doctest: +SKIP
        'allreduce:codec=fp16'
    """
    codec = codecs.get(compression) if isinstance(compression, type) else None
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
