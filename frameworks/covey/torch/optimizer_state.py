"""Optimizer state, averaged over the ranks. Internal.

Ranks may keep different things: an optimizer makes its state when a parameter has its first
gradient. Tensors become their mean (a rank without one counts as zeros), counts of steps and other
numbers their maximum. Other state, such as the history of LBFGS, is dropped with all that belongs
to its parameter. Each entry has a name that says all of its kind, alike on all ranks.
"""

from __future__ import annotations

import json
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

import torch

from covey import _native
from covey.errors import Unsupported
from covey.group import Group
from covey.names import next_prefix
from covey.objects import allgather_object
from covey.reduce_op import Average, Max, core_code
from covey.torch.layout import Named, tensor_at
from covey.torch.ops import allreduce
from covey.torch.tensors import CODES, refuse

_DTYPES = {code: dtype for dtype, code in CODES.items()}
_NUMBER, _OTHER = "number", "other"
_COUNT_KEY = "step"  # A tensor of torch's that counts.


class Entry(NamedTuple):
    """One: numbers on the CPU that the ranks can exchange."""

    numbers: torch.Tensor
    op: int


def entries_of(optimizer: Any, named: Sequence[Named]) -> Dict[str, Entry]:
    """Copies of this rank's optimizer state, by name.

    Raises:
        Unsupported: (a ValueError) names a tensor of a dtype that cannot be sent.
    """
    entries: Dict[str, Entry] = {}
    for number, (name, parameter) in enumerate(named):
        for key, value in optimizer.state.get(parameter, {}).items():
            if value is None:
                continue
            try:
                kind, entry = _entry_of(key, value)
            except Unsupported as refusal:
                what = f"{key} that the optimizer keeps for {name}"
                raise Unsupported(f"{what}: {refusal}") from None
            entries[json.dumps([number, key, *kind])] = entry
    return entries


def _entry_of(key: str, value: Any) -> Tuple[List[Any], Entry]:
    if isinstance(value, torch.Tensor):
        kind = [str(value.dtype)[len("torch."):], list(value.shape), not value.is_cpu]
        if key == _COUNT_KEY:
            return kind, Entry(value.detach().cpu().double().reshape(-1), Max)
        if value.dtype not in CODES or value.dtype == torch.bool:
            refuse(value)
        op = Average if value.is_floating_point() else Max
        return kind, Entry(value.detach().cpu().contiguous().clone().reshape(-1), op)
    if isinstance(value, (int, float)):
        return [_NUMBER], Entry(torch.tensor([float(value)], dtype=torch.float64), Max)
    return [_OTHER], Entry(torch.empty(0, dtype=torch.float64), Max)


def take(optimizer: Any, named: Sequence[Named], entries: Dict[str, torch.Tensor]) -> None:
    """The optimizer's state becomes ``entries``: those of any rank, as all have averaged them."""
    dropped = {json.loads(name)[0] for name in entries if json.loads(name)[2] == _OTHER}
    for name, numbers in entries.items():
        number, key, *kind = json.loads(name)
        parameter = named[number][1]
        if number in dropped:
            continue
        mine = optimizer.state.get(parameter, {}).get(key)
        if kind == [_NUMBER]:
            value = float(numbers)
            optimizer.state[parameter][key] = value if mine is None else type(mine)(value)
            continue
        dtype, shape, is_beside = kind
        agreed = numbers.to(getattr(torch, dtype)).reshape(shape)
        optimizer.state[parameter][key] = agreed.to(parameter.device) if is_beside else agreed
    for number in dropped:
        optimizer.state.pop(named[number][1], None)


def give(trainer: int, entries: Dict[str, Entry]) -> None:
    """Lists them to the core's trainer, within its action; they stay until ``taken``."""
    numbers = [entry.numbers for entry in entries.values()]
    _native.trainer_list(
        trainer,
        tuple(entries),
        tuple(it.data_ptr() for it in numbers),
        tuple(CODES[it.dtype] for it in numbers),
        tuple(it.numel() for it in numbers),
        tuple(core_code(entry.op) for entry in entries.values()),
    )


def taken(trainer: int) -> Dict[str, torch.Tensor]:
    """Within its action: copies of the averaged entries."""
    found: Dict[str, torch.Tensor] = {}
    for name, address, code, count in _native.trainer_listed(trainer):
        found[name] = tensor_at(address or 0, count, _DTYPES[code]).clone()
    return found


def average_state(
    optimizer: Any, named: Sequence[Named], group: Group, prefix: str = ""
) -> None:
    """The optimizer's state becomes the same on all members, which all call it.

    ``prefix``: of the names of the operations; empty: a new one. Raises as ``entries_of``.
    """
    prefix = prefix or next_prefix("state", group.ranks)
    mine = entries_of(optimizer, named)
    kinds = {name: (it.numbers.dtype, it.numbers.numel(), it.op) for name, it in mine.items()}
    everyone: List[Dict[str, Any]] = allgather_object(kinds, prefix, group)
    union = {name: kind for member in everyone for name, kind in member.items()}
    values: Dict[str, torch.Tensor] = {}
    for name, (dtype, count, op) in sorted(union.items()):
        own: Optional[Entry] = mine.get(name)
        numbers = torch.zeros(count, dtype=dtype) if own is None else own.numbers
        values[name] = numbers
        if count > 0:
            values[name] = allreduce(numbers, name=f"{prefix}.{name}", op=op, process_set=group)
    take(optimizer, named, values)
