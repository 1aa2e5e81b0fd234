"""The codec of a method: the effect of ``codec=`` in its text on a training. Internal.

With gradients it is ``Compression.of``; models travel as what they have moved since all were equal.
"""

from __future__ import annotations

import contextlib
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Type

import torch

from covey.errors import InvalidArgument, Unsupported
from covey.method import GRADIENTS, Plan, plans
from covey.torch.compression import Compression, Compressor
from covey.torch.layout import Named


def codec_of(plan: Plan) -> Optional[Type[Compressor]]:
    """The codec of a step's payload; None: none."""
    return Compression.of(plan.codec) if plan.codec else None


def compression_of(optimizer: Any, named: Sequence[Named]) -> Type[Compressor]:
    """The compressor of gradients that all ranks wait for: by the method, or the argument.

    Raises:
        InvalidArgument: (a ValueError) both say something; there is no float32 on the CPU.
        Unsupported: (a ValueError) two parts of a training say different things.
    """
    given: Type[Compressor] = optimizer._covey_options["compression"]
    method = optimizer._covey_progress.method
    if "codec=" not in method:
        return given
    group = optimizer._covey_options["process_set"]
    found: List[Type[Compressor]] = []
    is_coded = is_of_pairs = False
    for _, plan in plans(method, group.id):
        if plan.codec:
            is_coded, is_of_pairs = True, is_of_pairs or plan.in_pairs
        if plan.payload == GRADIENTS and not plan.in_rounds:
            found.append(codec_of(plan) or Compression.none)
    if is_coded and given is not Compression.none:
        raise InvalidArgument(
            f"give compression={given.__name__} or codec, not both: the method is {method}"
        )
    if is_coded:
        _check_can(method, named, is_of_pairs)
    names = list(dict.fromkeys(one.__name__ for one in found))
    if len(names) > 1:
        raise Unsupported(
            f"gradients travel by one codec from the first step to the last, not by "
            f"{' and '.join(names)}, as {method} has it"
        )
    return found[0] if found else given  # That of pairs is for the core alone.


def kept(optimizer: Any) -> Dict[str, torch.Tensor]:
    """The residuals of codecs up to now, and the anchors of models, by name: with them a training
    goes on as it was."""
    named: Dict[str, torch.Tensor] = {}
    for bucket in _buckets(optimizer):
        for name, left_out in bucket.left_out.items():
            named[f"gradient {name}"] = left_out
    for number, moved in enumerate(optimizer._covey_progress.moved):
        for name, tensor in moved.written().items():
            named[f"models {number} {name}"] = tensor
    return named


def put_back(optimizer: Any, named: Mapping[str, torch.Tensor]) -> None:
    """As ``kept`` has it; a missing entry leaves nothing out, and the anchor of the models is
    unknown."""
    for bucket in _buckets(optimizer):
        for name, left_out in bucket.left_out.items():
            left_out.copy_(named.get(f"gradient {name}", torch.zeros(())))
    for number, moved in enumerate(optimizer._covey_progress.moved):
        prefix = f"models {number} "
        moved.put({n[len(prefix):]: it for n, it in named.items() if n.startswith(prefix)})


@contextlib.contextmanager
def carried(optimizer: Any) -> Iterator[None]:
    """Within it the buckets are made anew: residuals of codecs are still to be sent then."""
    left = {n: it for b in _buckets(optimizer) for n, it in b.left_out.items()}
    with torch.no_grad():
        for moved in optimizer._covey_progress.moved:
            moved.give_back()
    yield
    for bucket in _buckets(optimizer):
        for name, left_out in bucket.left_out.items():
            before = left.get(name)
            if before is not None and before.shape == left_out.shape:
                left_out.copy_(before)


def _buckets(optimizer: Any) -> List[Any]:
    reducer = optimizer._covey_reducer
    return [] if reducer is None else list(reducer.buckets)


def _check_can(method: str, named: Sequence[Named], is_of_pairs: bool) -> None:
    """Models in pairs are encoded where the core has them, which is always in the host."""
    if any(it.dtype == torch.float32 and (it.is_cpu or is_of_pairs) for _, it in named):
        return
    there = ", ".join(sorted({f"{it.dtype} on {it.device.type}" for _, it in named}))
    raise InvalidArgument(
        f"the method {method} has a codec, which is for float32 on the CPU, and there are "
        f"parameters of {there} only: leave out codec"
    )
