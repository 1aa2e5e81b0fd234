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
from covey.torch.method_arrays import numbers_at
from covey.torch.sources import view_of

_ANCHOR, _LEFT_OUT = "anchor", "left_out"  # In a checkpoint.
_CORES_ANCHOR = "codec's anchor"  # Before the residual, if there is one.


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
    trainer = optimizer._covey_trainer
    if trainer is not None and trainer.position.has_state:
        for word, numbers in _of_models(optimizer).items():
            for number, plan in enumerate(trainer.plans):
                if plan.dtype == torch.float32:
                    named[f"models {number} {word}"] = numbers[number][: plan.flags_offset].clone()
    return named


def put_back(optimizer: Any, named: Mapping[str, torch.Tensor]) -> None:
    """As ``kept`` has it; a missing entry leaves nothing out, and the anchor of the models is
    unknown."""
    for bucket in _buckets(optimizer):
        for name, left_out in bucket.left_out.items():
            left_out.copy_(named.get(f"gradient {name}", torch.zeros(())))
    if not any(name.endswith(f" {_ANCHOR}") for name in named):
        return
    trainer = optimizer._covey_trainer
    for word, numbers in _of_models(optimizer).items():
        for number, plan in enumerate(trainer.plans):
            put = named.get(f"models {number} {word}")
            if put is not None:
                numbers[number][: plan.flags_offset].copy_(put)
    trainer.restore(trainer.position._replace(has_state=1))


@contextlib.contextmanager
def carried(optimizer: Any) -> Iterator[None]:
    """Within it the buckets are made anew: residuals of codecs are still to be sent then."""
    left = {n: it for b in _buckets(optimizer) for n, it in b.left_out.items()}
    yield
    for bucket in _buckets(optimizer):
        for name, left_out in bucket.left_out.items():
            before = left.get(name)
            if before is not None and before.shape == left_out.shape:
                left_out.copy_(before)


@torch.no_grad()
def give_back(optimizer: Any) -> None:
    """Before its trainer is closed: what a codec has left out of the models is in them again."""
    trainer = optimizer._covey_trainer
    if trainer is None or not trainer.position.has_state:
        return
    left_out = _of_models(optimizer).get(_LEFT_OUT, [])
    for plan, numbers in zip(trainer.plans, left_out):
        for slot in plan.slots if plan.dtype == torch.float32 else ():
            slot.parameter.data.add_(view_of(numbers, slot))


def _of_models(optimizer: Any) -> Dict[str, List[torch.Tensor]]:
    """The anchor, and the residual if the codec has one, of the models by plan, where they lie."""
    trainer, plan = optimizer._covey_trainer, optimizer._covey_progress.plan
    if not plan.codec or plan.in_rounds or plan.payload == GRADIENTS:
        return {}
    arrays = trainer.arrays()
    names = [name for name, _, _ in arrays]
    of_models = arrays[names.index(_CORES_ANCHOR) :] if _CORES_ANCHOR in names else []
    addresses = trainer.spans(of_model=True)
    return {
        word: [
            numbers_at(at + address - min(addresses), plan)
            for address, plan in zip(addresses, trainer.plans)
        ]
        for word, (_, at, _) in zip((_ANCHOR, _LEFT_OUT), of_models)
    }


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
        f"parameters of {there} only: leave out codec (compression=Compression.fp16 or .bf16 goes "
        "everywhere)"
    )
