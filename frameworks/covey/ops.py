"""The operations of ``import covey``: each goes to the adapter of its tensor's framework.

A framework is imported when one of its tensors is seen, so ``import covey`` loads none.
"""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any, Dict, List, Optional, Sequence

from covey import collectives
from covey.group import Group, world
from covey.reduce_op import Average

_ADAPTERS = {"torch": "covey.torch", "numpy": "covey.numpy"}
_known: Dict[type, ModuleType] = {}


def _adapter_of_type(kind: type, what: str) -> ModuleType:
    found = _known.get(kind)
    if found is not None:
        return found
    for base in kind.__mro__:
        adapter = _ADAPTERS.get(base.__module__.split(".")[0])
        if adapter is not None:
            _known[kind] = importlib.import_module(adapter)
            return _known[kind]
    raise TypeError(f"covey works on torch tensors and numpy arrays, not on {what}")


def adapter_of(tensor: Any) -> ModuleType:
    """The adapter module of the framework of ``tensor``. Raises TypeError when there is none."""
    return _adapter_of_type(type(tensor), f"a {type(tensor).__name__}")


def adapter_of_dtype(dtype: Any) -> ModuleType:
    """The adapter module of the framework of ``dtype``; names and Python types are NumPy's."""
    if isinstance(dtype, (str, type)):
        return importlib.import_module("covey.numpy")
    return _adapter_of_type(type(dtype), f"the dtype {dtype!r}")


def _adapter_of_all(tensors: Sequence[Any]) -> ModuleType:
    adapters = {adapter_of(tensor) for tensor in tensors}
    if len(adapters) != 1:
        raise TypeError("a grouped operation needs at least one tensor, all of one framework")
    return adapters.pop()


def allreduce(
    tensor: Any,
    name: Optional[str] = None,
    op: int = Average,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    group: Group = world,
) -> Any:
    """``postscale_factor`` * ``op`` over the ranks of (``prescale_factor`` * tensor), a new tensor.

    Args:
        tensor: torch tensor or numpy array of any shape, the same on every rank; float32, float64,
            float16, bfloat16, uint8, int8, int32 or int64.
        name: of the operation; the same name on every rank finds together, in any order. Operations
            without a name must come in one order on every rank.
        op: Average, Sum, Min, Max or Product.
        prescale_factor: not 0.
        postscale_factor: not 0.
        group: the ranks that take part; this rank must be one of them.

    Returns:
        A tensor of the same framework, shape and dtype, bitwise equal on every rank.

    Raises:
        InvalidArgument, Unsupported: (ValueErrors) wrong here; nothing was submitted.
        Mismatch: the ranks disagree on shape, dtype, op or factors; later operations work.
        Aborted: a rank died or left.

    Example:
        >>> loss = covey.allreduce(loss, name="loss")
    """
    return adapter_of(tensor).allreduce(
        tensor,
        name=name,
        op=op,
        prescale_factor=prescale_factor,
        postscale_factor=postscale_factor,
        process_set=group,
    )


def allreduce_(
    tensor: Any,
    name: Optional[str] = None,
    op: int = Average,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    group: Group = world,
) -> Any:
    """As :func:`allreduce`, in place: ``tensor`` is overwritten and returned."""
    return adapter_of(tensor).allreduce_(
        tensor, None, name, op, prescale_factor, postscale_factor, group
    )


def allreduce_async(
    tensor: Any,
    name: Optional[str] = None,
    op: int = Average,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    group: Group = world,
) -> Any:
    """As :func:`allreduce`; returns a handle at once. Leave ``tensor`` alone until then."""
    return adapter_of(tensor).allreduce_async(
        tensor, None, name, op, prescale_factor, postscale_factor, group
    )


def allreduce_async_(
    tensor: Any,
    name: Optional[str] = None,
    op: int = Average,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    group: Group = world,
) -> Any:
    """As :func:`allreduce_`; returns a handle at once. Leave ``tensor`` alone until then."""
    return adapter_of(tensor).allreduce_async_(
        tensor, None, name, op, prescale_factor, postscale_factor, group
    )


def grouped_allreduce(
    tensors: Sequence[Any],
    name: Optional[str] = None,
    op: int = Average,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    group: Group = world,
) -> List[Any]:
    """As :func:`allreduce` for a list of tensors that travel together; returns the list.

    Tensors of different dtypes may be mixed: those of one dtype travel together.

    Example:
        >>> loss, hits = covey.grouped_allreduce([loss, hits], op=covey.Sum, name="metrics")
    """
    return _adapter_of_all(tensors).grouped_allreduce(
        tensors,
        name=name,
        op=op,
        prescale_factor=prescale_factor,
        postscale_factor=postscale_factor,
        process_set=group,
    )


def grouped_allreduce_(
    tensors: Sequence[Any],
    name: Optional[str] = None,
    op: int = Average,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    group: Group = world,
) -> List[Any]:
    """As :func:`grouped_allreduce`, in place."""
    return _adapter_of_all(tensors).grouped_allreduce_(
        tensors, None, name, op, prescale_factor, postscale_factor, group
    )


def grouped_allreduce_async(
    tensors: Sequence[Any],
    name: Optional[str] = None,
    op: int = Average,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    group: Group = world,
) -> Any:
    """As :func:`grouped_allreduce`; returns a handle at once."""
    return _adapter_of_all(tensors).grouped_allreduce_async(
        tensors, None, name, op, prescale_factor, postscale_factor, group
    )


def grouped_allreduce_async_(
    tensors: Sequence[Any],
    name: Optional[str] = None,
    op: int = Average,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    group: Group = world,
) -> Any:
    """As :func:`grouped_allreduce_`; returns a handle at once."""
    return _adapter_of_all(tensors).grouped_allreduce_async_(
        tensors, None, name, op, prescale_factor, postscale_factor, group
    )


def broadcast(
    tensor: Any, root_rank: int, name: Optional[str] = None, group: Group = world
) -> Any:
    """The tensor of rank ``root_rank``, as a new tensor on every rank.

    Args:
        tensor: torch tensor or numpy array of any shape, the same on every rank; the dtypes of
            :func:`allreduce`, and bool.
        root_rank: a global rank, also inside a group; a member of ``group``.
        name: as for :func:`allreduce`.
        group: the ranks that take part; this rank must be one of them.

    Raises:
        As :func:`allreduce`.

    Example:
        >>> seed = covey.broadcast(seed, root_rank=0, name="seed")
    """
    return adapter_of(tensor).broadcast(tensor, root_rank, name=name, process_set=group)


def broadcast_(
    tensor: Any, root_rank: int, name: Optional[str] = None, group: Group = world
) -> Any:
    """As :func:`broadcast`, in place: ``tensor`` is overwritten and returned."""
    return adapter_of(tensor).broadcast_(tensor, root_rank, name=name, process_set=group)


def broadcast_async(
    tensor: Any, root_rank: int, name: Optional[str] = None, group: Group = world
) -> Any:
    """As :func:`broadcast`; returns a handle at once."""
    return adapter_of(tensor).broadcast_async(tensor, root_rank, name=name, process_set=group)


def broadcast_async_(
    tensor: Any, root_rank: int, name: Optional[str] = None, group: Group = world
) -> Any:
    """As :func:`broadcast_`; returns a handle at once."""
    return adapter_of(tensor).broadcast_async_(tensor, root_rank, name=name, process_set=group)


def allgather(tensor: Any, name: Optional[str] = None, group: Group = world) -> Any:
    """The tensors of all ranks, concatenated on dimension 0 in rank order.

    Args:
        tensor: torch tensor or numpy array with at least one dimension; dimension 0 may differ
            between the ranks (and be 0), the others not. The dtypes of :func:`broadcast`.
        name: as for :func:`allreduce`.
        group: the ranks that take part; this rank must be one of them.

    Raises:
        As :func:`allreduce`.

    Example:
        >>> everyones = covey.allgather(mine, name="scores")
    """
    return adapter_of(tensor).allgather(tensor, name=name, process_set=group)


def allgather_async(tensor: Any, name: Optional[str] = None, group: Group = world) -> Any:
    """As :func:`allgather`; returns a handle at once."""
    return adapter_of(tensor).allgather_async(tensor, name=name, process_set=group)


def grouped_allgather(
    tensors: Sequence[Any], name: Optional[str] = None, group: Group = world
) -> List[Any]:
    """As :func:`allgather` for a list of tensors that travel together; returns the list."""
    return _adapter_of_all(tensors).grouped_allgather(tensors, name=name, process_set=group)


def grouped_allgather_async(
    tensors: Sequence[Any], name: Optional[str] = None, group: Group = world
) -> Any:
    """As :func:`grouped_allgather`; returns a handle at once."""
    return _adapter_of_all(tensors).grouped_allgather_async(
        tensors, name=name, process_set=group
    )


def barrier(group: Group = world) -> None:
    """Waits until every member of ``group`` has called this.

    Raises:
        Aborted: a rank died or left.

    Example:
        >>> covey.barrier()
    """
    collectives.barrier(group)
