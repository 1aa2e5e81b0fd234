"""The state of a training that can be written down: tensors, numbers, texts, and lists and dicts of
them; and the files of a checkpoint that hold it. Internal.

    model.pt        the state dict of the model: plain torch reads it
    optimizer.pt    the state dict of the optimizer: likewise
    rank0.pt ...    what the members of the group, by their number, have each for itself

They are read again by ``torch.load(weights_only=True)``, which runs nothing of a file's.
"""

from __future__ import annotations

import functools
import hashlib
import pathlib
from collections import Counter, OrderedDict
from typing import Any, Dict, Tuple

import torch

from covey import checkpoint_folder
from covey.errors import InvalidArgument

MODEL, OPTIMIZER = "model.pt", "optimizer.pt"
_SIMPLE = (type(None), bool, int, float, complex, str, bytes, torch.dtype, torch.device)


def plain(value: Any, where: str) -> Any:
    """A copy of ``value`` on the CPU, which nothing else changes. ``where``: what to call it.

    Raises:
        InvalidArgument: (a ValueError) there is something else in it: says where.

    Example:
        >>> plain({"epoch": 3, "lr": (0.1, 0.2)}, "mine")
        {'epoch': 3, 'lr': (0.1, 0.2)}
    """
    return _copy(value, where, {})


def _copy(value: Any, where: str, known: Dict[Any, torch.Tensor]) -> Any:
    if isinstance(value, torch.Tensor):
        return _tensor(value, where, known)
    if type(value) in _SIMPLE:
        return value
    if isinstance(value, dict):
        kind = type(value) if type(value) in (Counter, OrderedDict) else dict
        copy = kind()
        for key, item in value.items():
            if type(key) not in (str, int, float, bool, type(None)):
                raise _refusal(key, f"a key of {where}")
            copy[key] = _copy(item, f"{where}[{key!r}]", known)
        if hasattr(value, "_metadata"):  # Of a state dict: which version its modules are of.
            copy = OrderedDict(copy)
            setattr(copy, "_metadata", _copy(value._metadata, f"{where}._metadata", known))
        return copy
    if type(value) in (list, tuple, torch.Size, set):
        items = [_copy(item, f"{where}[{number}]", known) for number, item in enumerate(value)]
        return items if type(value) is list else type(value)(items)
    raise _refusal(value, where)


def _tensor(value: torch.Tensor, where: str, known: Dict[Any, torch.Tensor]) -> torch.Tensor:
    """One copy of tensors that are one: not of the memory that they are a part of."""
    if value.layout is not torch.strided:
        raise InvalidArgument(f"{where} is a sparse tensor, which a checkpoint cannot hold")
    key = (value.data_ptr(), value.dtype, value.shape, value.stride(), value.device)
    if value.numel() == 0 or key not in known:
        known[key] = value.detach().cpu().clone()
    return known[key]


def _refusal(value: Any, where: str) -> InvalidArgument:
    return InvalidArgument(
        f"{where} is a {type(value).__module__}.{type(value).__qualname__}: a checkpoint holds "
        "tensors, numbers, texts, None, and lists, tuples and dicts of them, or what has "
        "state_dict() and load_state_dict()"
    )


def digest(value: Any) -> str:
    """A hash of what ``plain`` gave: equal for equal bits, in whatever memory. About 1 s per GB."""
    hashed = hashlib.blake2b(digest_size=16)

    def add(item: Any) -> None:
        if isinstance(item, torch.Tensor):
            hashed.update(f"tensor {item.dtype} {tuple(item.shape)} ".encode())
            if item.numel():
                flat = item.contiguous().view(-1).view(torch.uint8)
                hashed.update(flat.numpy())
        elif isinstance(item, dict):
            hashed.update(f"dict {len(item)} ".encode())
            for key, part in item.items():
                hashed.update(f"{key!r} ".encode())
                add(part)
        elif isinstance(item, (list, tuple)):
            hashed.update(f"{type(item).__name__} {len(item)} ".encode())
            for part in item:
                add(part)
        else:
            hashed.update(f"{item!r} ".encode())

    add(value)
    return hashed.hexdigest()


def signature(tensors: Dict[str, Any]) -> Tuple[Tuple[str, str, Tuple[int, ...]], ...]:
    """Name, dtype and shape of each tensor.

    Example:
        >>> signature({"weight": torch.zeros(2, 3), "extra": None})
        (('weight', 'float32', (2, 3)),)
    """
    return tuple(
        (name, str(value.dtype).rpartition(".")[2], tuple(value.shape))
        for name, value in tensors.items()
        if isinstance(value, torch.Tensor)
    )


def rank_file(index: int) -> str:
    return f"rank{index}.pt"


def read(folder: pathlib.Path, name: str, entries: Dict[str, Any]) -> Any:
    """The content of a file, once it is known to be whole. Runs nothing of it.

    Raises:
        BadCheckpoint: (a ValueError) it is missing, shorter, longer, or changed.
    """
    load = functools.partial(torch.load, map_location="cpu", weights_only=True)
    return checkpoint_folder.read(folder, name, entries, load)
