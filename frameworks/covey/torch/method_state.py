"""The arrays that a method keeps beside the model. Internal.

A method may replicate arrays on all ranks, such as an outer momentum. With a codec (``codec=`` in
its text) there are residuals: of gradients, by ``Compression.of``; models travel as what they have
moved since all were equal, the anchor.
"""

from __future__ import annotations

import contextlib
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Type

import torch

from covey.errors import InvalidArgument, Unsupported
from covey.method import DELTA, GRADIENTS, plans
from covey.torch.compression import Compression, Compressor
from covey.torch.layout import Named, tensor_at

# In a checkpoint; the first one also in the core, of a replicated model.
_ANCHOR, _LEFT_OUT = "anchor", "left_out"
_CORES_ANCHOR = "codec's anchor"  # Before the residual, if there is one.
_PREFIX = "method "  # Of the names of a method's arrays in a checkpoint.


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
            found.append(Compression.of(plan.codec) if plan.codec else Compression.none)
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
            slot.parameter.data.add_(slot.view(numbers))


def _of_models(optimizer: Any) -> Dict[str, List[torch.Tensor]]:
    """The anchor, and the residual if the codec has one, of the models by plan, where they lie."""
    trainer, plan = optimizer._covey_trainer, optimizer._covey_progress.plan
    if not plan.codec or plan.in_rounds or plan.payload == GRADIENTS:
        return {}
    arrays = trainer.arrays()
    names = [name for name, _, _ in arrays]
    of_models = arrays[names.index(_CORES_ANCHOR) :] if _CORES_ANCHOR in names else []
    return {
        word: arrays_like_model(trainer, address)
        for word, (_, address, _) in zip((_ANCHOR, _LEFT_OUT), of_models)
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


def arrays_like_model(trainer: Any, address: int) -> List[torch.Tensor]:
    """By plan of the trainer: an array at ``address`` that is laid out like its model."""
    places = trainer.spans(of_model=True)
    return [plan.at(address + it - min(places)) for plan, it in zip(trainer.plans, places)]


def replicated(optimizer: Any) -> Optional[List[torch.Tensor]]:
    """By plan, the model that all ranks have at this version; None: their own, or none yet."""
    trainer, arrays = optimizer._covey_trainer, _arrays(optimizer)
    if _ANCHOR not in arrays or not trainer.position.has_state:
        return None
    return arrays_like_model(trainer, arrays[_ANCHOR].data_ptr())


def _arrays(optimizer: Any) -> Dict[str, torch.Tensor]:
    """By name those of the method, as bytes, where they lie."""
    trainer = optimizer._covey_trainer
    if trainer is None or optimizer._covey_progress.plan.payload != DELTA:
        return {}
    arrays = trainer.arrays()
    return {name: tensor_at(address, length, torch.uint8) for name, address, length in arrays}


def kept_by_method(optimizer: Any) -> Dict[str, torch.Tensor]:
    """By their names in a checkpoint: copies of the arrays beside that model; most methods have
    none."""
    arrays = _arrays(optimizer)
    return {_PREFIX + name: it.clone() for name, it in arrays.items() if name != _ANCHOR}


def put_back_to_method(optimizer: Any, named: Mapping[str, torch.Tensor]) -> None:
    """As ``kept_by_method`` has it, among others."""
    for name, array in _arrays(optimizer).items():
        if _PREFIX + name in named:
            array.copy_(named[_PREFIX + name])
