"""Making the ranks start from the same state."""

from __future__ import annotations

from typing import Any, Callable, Iterable, List, Mapping, NamedTuple, Optional, Tuple, Union

import torch

from covey.arguments import whole_of
from covey.basics import rank
from covey.errors import InvalidArgument, Unsupported
from covey.group import Group, world
from covey.objects import allgather_object, broadcast_object  # noqa: F401  # As Horovod's module.
from covey.torch.equal_start import see_buffers
from covey.torch.ops import broadcast_async_

Named = Tuple[Optional[str], torch.Tensor]


def broadcast_parameters(
    params: Union[Mapping[str, torch.Tensor], Iterable[Any]],
    root_rank: int = 0,
    process_set: Group = world,
) -> None:
    """Overwrites tensors with those of rank ``root_rank``.

    Args:
        params: a dict such as ``model.state_dict()``, or an iterable of tensors or of
            (name, tensor) such as ``model.named_parameters()``. The same names, shapes and dtypes
            on every rank.
        root_rank: a global rank.
        process_set: the ranks that take part; this rank must be one of them.

    Raises:
        ValueError: ``params`` holds something that is no tensor.
        Unsupported: (a ValueError) names a tensor that cannot be sent, of complex64 for example.
        Mismatch: the ranks disagree on a tensor; the message names it.

    Example:
        >>> hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    """
    named = _named(params)
    for name, tensor in named:
        if not isinstance(tensor, torch.Tensor):
            raise ValueError(
                f"broadcast_parameters: {name or 'an element'} is a {type(tensor).__name__}, "
                "not a tensor; use broadcast_object for it"
            )
    _broadcast_all(named, root_rank, process_set)


def _broadcast_all(named: Iterable[Named], root_rank: int, process_set: Group) -> None:
    """All at once, but one that shares memory with others (tied weights) after those before it."""
    handles: List[Any] = []
    for name, tensor in named:
        try:
            handle = broadcast_async_(tensor, root_rank, name, process_set)
        except InvalidArgument:
            if not handles:
                raise
            while handles:
                handles.pop().wait()
            handle = broadcast_async_(tensor, root_rank, name, process_set)
        except Unsupported as refusal:
            raise Unsupported(f"{name or 'an element'}: {refusal}") from None
        handles.append(handle)
    for handle in handles:
        handle.wait()
    see_buffers()


def _named(params: Union[Mapping[str, torch.Tensor], Iterable[Any]]) -> List[Named]:
    if isinstance(params, Mapping):
        return sorted((name, value) for name, value in params.items() if value is not None)
    if isinstance(params, (torch.Tensor, str)):
        raise ValueError(f"invalid params of type: {type(params)}")
    try:
        items = [item if isinstance(item, tuple) else (None, item) for item in params]
    except TypeError:
        raise ValueError(f"invalid params of type: {type(params)}") from None
    return [(name, value) for name, value in items if value is not None]


class _TensorPlace(NamedTuple):
    """Stands for a tensor in a state that is sent as an object."""

    number: int


def broadcast_optimizer_state(
    optimizer: torch.optim.Optimizer,
    root_rank: int = 0,
    model: Optional[torch.nn.Module] = None,
    process_set: Group = world,
) -> None:
    """Gives every rank the optimizer state of rank ``root_rank``: options such as the learning
    rate, and everything the optimizer keeps per parameter.

    The other ranks need no state yet, and what they have is replaced. No step is taken.

    Args:
        optimizer: any torch optimizer, also a ``DistributedOptimizer``.
        root_rank: a global rank.
        model: accepted for Horovod's sake.
        process_set: the ranks that take part; this rank must be one of them.

    Raises:
        ValueError: ``optimizer`` is none, or the root's parameter groups do not fit this rank's.

    Example:
        >>> hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    """
    del model
    if not hasattr(optimizer, "state_dict") or not hasattr(optimizer, "load_state_dict"):
        raise InvalidArgument(
            f"optimizer must be a torch optimizer, not a {type(optimizer).__name__}"
        )
    is_root = rank() == whole_of("root_rank", root_rank)
    tensors: List[torch.Tensor] = []
    sent: Any = None
    if is_root:
        skeleton = _replaced(optimizer.state_dict(), torch.Tensor, lambda it: _take(it, tensors))
        sent = skeleton, [(tuple(it.shape), it.dtype) for it in tensors]
    skeleton, kinds = broadcast_object(sent, root_rank, "optimizer_state", process_set)
    if not is_root:
        tensors = [torch.empty(shape, dtype=dtype) for shape, dtype in kinds]
    named = ((f"optimizer_state.{index}", tensor) for index, tensor in enumerate(tensors))
    _broadcast_all(named, root_rank, process_set)
    if not is_root:
        state = _replaced(skeleton, _TensorPlace, lambda place: tensors[place.number])
        optimizer.load_state_dict(state)


def _take(tensor: torch.Tensor, tensors: List[torch.Tensor]) -> _TensorPlace:
    # All receive on the CPU: a rank without state yet cannot know which parts lie on a device.
    tensors.append(tensor.detach().cpu())
    return _TensorPlace(len(tensors) - 1)


def _replaced(value: Any, kind: type, made: Callable[[Any], Any]) -> Any:
    """``value`` with ``made(it)`` in the place of each ``it`` of that kind."""
    if isinstance(value, kind):
        return made(value)
    if isinstance(value, dict):
        return {key: _replaced(item, kind, made) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_replaced(item, kind, made) for item in value)
    return value
