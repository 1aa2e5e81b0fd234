"""Which gradient lies in which bucket, and where. Internal; no communication.

Backward produces gradients roughly in reverse order of the parameters, so buckets are filled in
that order: the first buckets are complete while backward still runs, and travel beside it. The
first one is small, so that the first transfer begins early.
"""

from __future__ import annotations

import collections
import ctypes
import hashlib
from typing import Any, Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple, Union

import torch

from covey.errors import InvalidArgument, Unsupported

FIRST_BUCKET_BYTES = 1 << 20
BUCKET_BYTES = 8 << 20
ALIGN_BYTES = 64  # Every gradient begins on a cache line.

Named = Tuple[str, torch.nn.Parameter]
Kind = Tuple[torch.device, torch.dtype]
Groups = Union[None, int, Sequence[Iterable[torch.nn.Parameter]]]


class Slot(NamedTuple):
    """One parameter's place in its bucket."""

    name: str
    parameter: torch.nn.Parameter
    offset: int  # In elements.

    def view(self, flat: torch.Tensor) -> torch.Tensor:
        """Its place in ``flat``, which is laid out like its bucket."""
        begin = flat.storage_offset() + self.offset
        return flat.as_strided(self.parameter.shape, gradient_strides(self.parameter), begin)


class BucketPlan(NamedTuple):
    """One bucket: gradients of one dtype on one device, then one flag per parameter and one more.

    The flags tell after a Sum or an Average whether any rank had a gradient for the parameter; the
    last one, whether any had one that is sparse, and travels by itself.
    """

    device: torch.device
    dtype: torch.dtype
    slots: Tuple[Slot, ...]
    flags_offset: int  # In elements; [len(slots) + 1] elements.
    length: int  # In elements, flags included.

    @property
    def parameters(self) -> List[torch.nn.Parameter]:
        """By slot."""
        return [slot.parameter for slot in self.slots]

    def views(self, flat: torch.Tensor) -> List[torch.Tensor]:
        """By slot: the places in ``flat`` [length]."""
        return [slot.view(flat) for slot in self.slots]

    def at(self, address: int, keep: Any = None) -> torch.Tensor:
        """[length] The bucket in memory of the core, as ``tensor_at``."""
        return tensor_at(address, self.length, self.dtype, keep)


def tensor_at(address: int, count: int, dtype: torch.dtype, keep: Any = None) -> torch.Tensor:
    """[count] The tensor in memory of the core. ``keep``: holds that memory for the tensor."""
    if count == 0:
        return torch.empty(0, dtype=dtype, device="cpu")
    memory: Any = (ctypes.c_char * (count * dtype.itemsize)).from_address(address)
    memory.keep = keep
    return torch.frombuffer(memory, dtype=dtype)


def parameters_of(optimizer: Any) -> List[torch.nn.Parameter]:
    """All of an optimizer, in the order of its groups."""
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def numbered(optimizer: Any) -> List[Named]:
    """The optimizer's parameters with names of their places."""
    return [
        (f"param.{g}.{i}", parameter)
        for g, group in enumerate(optimizer.param_groups)
        for i, parameter in enumerate(group["params"])
    ]


def rename(options: Dict[str, Any], named: Optional[Iterable[Named]]) -> Optional[List[Named]]:
    """Names given anew, or those there are and of what has been added to the model since."""
    known: Optional[List[Named]] = options["named_parameters"]
    if named is not None or known is None or options["model"] is None:
        return known if named is None else list(named)
    met = {id(parameter) for _, parameter in known}
    return known + [it for it in options["model"].named_parameters() if id(it[1]) not in met]


def name_parameters(optimizer: torch.optim.Optimizer, given: Optional[List[Named]]) -> List[Named]:
    """The optimizer's parameters with names, in the order of ``given``. Checks as Horovod does."""
    own = numbered(optimizer)
    for name, parameter in own:
        if parameter.device.type not in ("cpu", "cuda"):
            raise Unsupported(
                f"parameter {name} is on {parameter.device}: DistributedOptimizer works on "
                "parameters on the CPU or on CUDA"
            )
    if given is None:
        return own
    if any(not isinstance(item, tuple) or len(item) != 2 for item in given):
        raise InvalidArgument(
            "named_parameters should be a sequence of tuples (name, parameter), usually produced "
            "by model.named_parameters()"
        )
    count = collections.Counter(name for name, _ in given)
    twice = sorted(name for name in count if count[name] > 1)
    if twice:
        raise InvalidArgument(
            f"Parameter names in named_parameters must be unique. Found duplicates: "
            f"{', '.join(twice)}"
        )
    known = {id(parameter): name for name, parameter in reversed(given)}
    unnamed = [name for name, parameter in own if id(parameter) not in known]
    if unnamed:
        raise InvalidArgument(
            "named_parameters was specified, but one or more model parameters were not named: "
            f"{', '.join(unnamed)} (param.<group>.<index>)"
        )
    mine = {id(parameter) for _, parameter in own}
    return [
        (name, parameter)
        for name, parameter in given
        if id(parameter) in mine and known[id(parameter)] == name
    ]


def without(plan: BucketPlan, names: Sequence[str]) -> Optional[BucketPlan]:
    """``plan`` without the parameters of these names; None: there are no others."""
    rest = [(slot.name, slot.parameter) for slot in plan.slots if slot.name not in names]
    return _lay_out(rest) if rest else None


def plan_whole(named: Iterable[Named]) -> List[BucketPlan]:
    """One bucket per device and dtype."""
    parts: Dict[Kind, List[Named]] = {}
    for item in named:
        parts.setdefault(_kind(item[1]), []).append(item)
    return [_lay_out(part) for part in parts.values()]


def plan_buckets(
    named: Sequence[Named], bucket_bytes: int, groups: Groups = None
) -> List[BucketPlan]:
    """Divides parameters into buckets.

    Args:
        named: (name, parameter) in the order of the model.
        bucket_bytes: a bucket is closed before it would grow beyond this; a larger gradient has a
            bucket of its own.
        groups: None; or into how many buckets to divide evenly; or lists of parameters that are to
            share a bucket, the others being divided as usual. A bucket has one dtype and lies on
            one device, so mixed groups become several.

    Returns:
        The buckets in the order in which backward completes them.

    Raises:
        InvalidArgument: (a ValueError) wrong ``groups``.
    """
    if bucket_bytes < 1:
        raise InvalidArgument(f"bucket_bytes must be positive, not {bucket_bytes}")
    backward = list(reversed(named))
    if not groups:
        return _divide_by_bytes(backward, bucket_bytes)
    if isinstance(groups, int):
        if groups < 0:
            raise InvalidArgument(f"groups must be 1 or more, or lists of parameters, not {groups}")
        count, length = min(groups, len(backward)), len(backward)
        chosen = [backward[i * length // count : (i + 1) * length // count] for i in range(count)]
        rest: List[Named] = []
    else:
        chosen, rest = _divide_by_lists(backward, groups)
    plans = [plan for part in chosen for plan in plan_whole(part)]
    return plans + _divide_by_bytes(rest, bucket_bytes)


def _divide_by_lists(
    named: List[Named], groups: Sequence[Iterable[torch.nn.Parameter]]
) -> Tuple[List[List[Named]], List[Named]]:
    group_of: Dict[int, int] = {}
    for number, members in enumerate(groups):
        for parameter in members:
            if not isinstance(parameter, torch.Tensor):
                raise InvalidArgument("groups must be a number or lists of parameters")
            if group_of.setdefault(id(parameter), number) != number:
                raise InvalidArgument("a parameter is in two of the groups")
    chosen: List[List[Named]] = [[] for _ in groups]
    rest: List[Named] = []
    for name, parameter in named:
        number = group_of.get(id(parameter), -1)
        (rest if number < 0 else chosen[number]).append((name, parameter))
    return [part for part in chosen if part], rest


def _divide_by_bytes(named: List[Named], bucket_bytes: int) -> List[BucketPlan]:
    plans: List[BucketPlan] = []
    open_parts: Dict[Kind, List[Named]] = {}
    open_bytes: Dict[Kind, int] = {}
    limit = min(FIRST_BUCKET_BYTES, bucket_bytes)
    for name, parameter in named:
        kind = _kind(parameter)
        part = open_parts.setdefault(kind, [])
        length_bytes = parameter.numel() * parameter.element_size()
        if part and open_bytes[kind] + length_bytes > limit:
            plans.append(_lay_out(part))
            limit = bucket_bytes
            part = open_parts[kind] = []
        open_bytes[kind] = length_bytes + (open_bytes[kind] if part else 0)
        part.append((name, parameter))
    return plans + [_lay_out(part) for part in open_parts.values()]


def _kind(parameter: torch.Tensor) -> Kind:
    return parameter.device, parameter.dtype


def _lay_out(named: List[Named]) -> BucketPlan:
    align = max(ALIGN_BYTES // named[0][1].element_size(), 1)
    slots, offset = [], 0
    for name, parameter in named:
        slots.append(Slot(name, parameter, offset))
        offset += -(-parameter.numel() // align) * align
    length = offset + -(-(len(slots) + 1) // align) * align
    return BucketPlan(*_kind(named[0][1]), tuple(slots), offset, length)


def gradient_strides(parameter: torch.Tensor) -> Tuple[int, ...]:
    """The strides of the parameter's gradient in its bucket: its own where they leave no gaps."""
    if not parameter.is_contiguous():
        for layout in (torch.channels_last, torch.channels_last_3d):
            wanted = 4 if layout is torch.channels_last else 5
            if parameter.dim() == wanted and parameter.is_contiguous(memory_format=layout):
                return tuple(parameter.stride())
    strides, step = [], 1
    for extent in reversed(parameter.shape):
        strides.append(step)
        step *= max(extent, 1)
    return tuple(reversed(strides))


def describe(plans: Sequence[BucketPlan]) -> List[str]:
    """One line for each parameter, everything that must agree between the ranks: on which device
    it lies, but not the number of that."""
    return [
        f"{slot.name}: {str(plan.dtype)[6:]} {list(slot.parameter.shape)} "
        + ("" if plan.device.type == "cpu" else f"on {plan.device.type} ")
        + f"strides {list(gradient_strides(slot.parameter))} in bucket {number} at {slot.offset}"
        for number, plan in enumerate(plans)
        for slot in plan.slots
    ]


def digest(lines: Sequence[str]) -> bytes:
    """A hash of 16 bytes of ``lines``."""
    return hashlib.blake2b("\n".join(lines).encode(), digest_size=16).digest()


def first_difference(everyone: Sequence[Sequence[str]], ranks: Sequence[int]) -> str:
    """Says in one sentence where the descriptions of two ranks part."""
    for position in range(max(len(lines) for lines in everyone)):
        values = [lines[position] if position < len(lines) else "nothing" for lines in everyone]
        for rank, value in zip(ranks, values):
            if value != values[0]:
                return f"rank {ranks[0]} has {values[0]!r}, rank {rank} has {value!r}"
    return "no difference"
