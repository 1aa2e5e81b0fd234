"""Checking that the ranks hold the same model."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Tuple

import torch

from covey.errors import InvalidArgument, Mismatch
from covey.group import Group, world
from covey.objects import allgather_object
from covey.torch.plain import digest

Digest = Tuple[str, str, str]  # Name, "dtype shape", hash of the bytes.


def check_replicas(model: Any, process_set: Group = world) -> None:
    """Checks that the parameters and buffers of ``model`` are bitwise equal on all ranks.

    Every rank must call it. It hashes each tensor, so it costs about a second per gigabyte.

    Args:
        model: a torch.nn.Module, or a dict of tensors such as a state dict.
        process_set: the ranks to compare; this rank must be one of them.

    Raises:
        InvalidArgument: (a ValueError) ``model`` is neither.
        Mismatch: names the first tensor that differs and which ranks agree with each other.

    Example:
        >>> covey.check_replicas(model)
    """
    everyone: List[List[Digest]] = allgather_object(
        _digests(model), "check_replicas", process_set
    )
    for index in range(max(len(digests) for digests in everyone)):
        values = [digests[index] if index < len(digests) else None for digests in everyone]
        if any(value != values[0] for value in values):
            raise Mismatch(_explain(index, values, process_set.ranks))


def _digests(model: Any) -> List[Digest]:
    tensors = model.state_dict() if isinstance(model, torch.nn.Module) else model
    if not isinstance(tensors, Mapping):
        raise InvalidArgument(
            f"model must be a torch.nn.Module or a dict of tensors, not a {type(model).__name__}"
        )
    return [
        (name, f"{tensor.dtype} {list(tensor.shape)}", digest(tensor.detach().cpu()))
        for name, tensor in tensors.items()
        if isinstance(tensor, torch.Tensor)
    ]


def _explain(index: int, values: List[Any], ranks: List[int]) -> str:
    names = sorted({value[0] for value in values if value is not None})
    camps: Dict[Any, List[int]] = {}
    for value, rank in zip(values, ranks):
        camps.setdefault(value, []).append(rank)
    parts = []
    for value, members in camps.items():
        who = f"rank{'s' if len(members) > 1 else ''} {', '.join(map(str, members))}"
        if value is None:
            parts.append(f"{who}: no such tensor")
        elif len(names) > 1:
            parts.append(f"{who}: {value[0]}, {value[1]}")
        else:
            parts.append(f"{who}: {value[1]}, hash {value[2][:8]}")
    return f"replicas differ first at tensor {index}, {' / '.join(names)}: {'; '.join(parts)}"
