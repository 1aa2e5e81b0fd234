"""Moving Python objects between the ranks of a job.

Objects travel as bytes tensors, written by cloudpickle where it is installed, else by pickle. They
come from other ranks of the same job, that is, from the same program of the same user.
"""

from __future__ import annotations

import pickle
from typing import Any, List, Optional, Tuple

from covey import _native
from covey.arguments import group_id, whole_of
from covey.collectives import ALLGATHER, BROADCAST, How
from covey.errors import Exhausted, InvalidArgument, OperationError
from covey.group import Group, world
from covey.state import state

_UINT8 = 4
_UNWRITTEN = b"!"
"""Begins the words that travel instead of an object. Pickles begin otherwise."""

try:
    from cloudpickle import dumps as _cloud_dumps
except ImportError:
    _cloud_dumps = None


def _dumps(obj: Any) -> bytes:
    if _cloud_dumps is not None:
        return bytes(_cloud_dumps(obj, protocol=pickle.HIGHEST_PROTOCOL))
    return pickle.dumps(obj, protocol=pickle.HIGHEST_PROTOCOL)


def _written(obj: Any) -> Tuple[bytearray, Optional[Exception]]:
    """The bytes of ``obj``, or of the reason why there are none, and that: the other ranks wait for
    bytes, and hear of it so."""
    try:
        return bytearray(_dumps(obj)), None
    except Exception as error:  # pylint: disable=broad-except  # Objects may raise what they like.
        words = f"{type(error).__name__}: {error}"
        return bytearray(_UNWRITTEN + words.encode("utf-8", "replace")), error


def _read(data: Any, rank: int, what: str) -> Any:
    """The object of ``rank``. Raises OperationError: that rank could not write it."""
    if bytes(data[:1]) == _UNWRITTEN:
        why = bytes(data[1:]).decode("utf-8", "replace")
        raise OperationError(f"{what}: rank {rank} cannot pickle its object: {why}", rank)
    return pickle.loads(data)


def _broadcast_bytes(data: bytearray, root: int, name: Optional[str], group: Group) -> None:
    """Overwrites ``data``, of one length everywhere, with the root's."""
    head = How(BROADCAST, "broadcast_object", root=root).head(group, name)
    _native.submit1(*head, _UINT8, data, None, (len(data),), data).wait()


def _room(length: int, root: int) -> bytearray:
    try:
        return bytearray(length)
    except (MemoryError, OverflowError) as error:
        raise Exhausted(
            f"the object of rank {root} has {length} bytes, which have no room here", root
        ) from error


def broadcast_object(
    obj: Any = None, root_rank: int = 0, name: Optional[str] = None, process_set: Group = world
) -> Any:
    """The object of rank ``root_rank``, on every rank.

    Args:
        obj: any object that can be pickled; read on the root only. Lambdas and classes of functions
            need cloudpickle.
        root_rank: a global rank, a member of ``process_set``.
        name: of the operation; without one it takes its turn among the unnamed operations.
        process_set: the ranks that take part; this rank must be one of them.

    Returns:
        On the root ``obj`` itself, elsewhere a copy.

    Raises:
        InvalidArgument: (a ValueError) ``root_rank`` is no member.
        OperationError: the root cannot pickle its object; there what pickle says is raised.
        Mismatch, Aborted: as every operation.

    Example:
        >>> config = covey.broadcast_object(config, root_rank=0, name="config")
    """
    place = state.require()
    group_id(process_set)  # Refuses what is none.
    root_rank = whole_of("root_rank", root_rank)
    if root_rank not in process_set.ranks:
        raise InvalidArgument(
            f"broadcast_object: root_rank {root_rank!r} is not one of {process_set.ranks}"
        )
    is_root = place.rank == root_rank
    data, error = _written(obj) if is_root else (bytearray(), None)
    length = bytearray(len(data).to_bytes(8, "little"))
    base = How(BROADCAST, "broadcast_object").stream(name)
    _broadcast_bytes(length, root_rank, base and base + ".length", process_set)
    if not is_root:
        data = _room(int.from_bytes(length, "little"), root_rank)
    _broadcast_bytes(data, root_rank, base and base + ".bytes", process_set)
    if error is not None:
        raise error
    return obj if is_root else _read(data, root_rank, "broadcast_object")


def allgather_object(obj: Any, name: Optional[str] = None, process_set: Group = world) -> List[Any]:
    """The objects of all ranks, as a list in rank order.

    Args:
        obj: any object that can be pickled, as :func:`broadcast_object`.
        name: of the operation; without one it takes its turn among the unnamed operations.
        process_set: the ranks that take part; this rank must be one of them.

    Raises:
        OperationError: a rank cannot pickle its object; there what pickle says is raised.
        Mismatch, Aborted: as every operation.

    Example:
        >>> hosts = covey.allgather_object(socket.gethostname(), name="hosts")
    """
    data, error = _written(obj)
    how = How(ALLGATHER, "allgather_object")
    head = how.head(process_set, how.stream(name))
    native = _native.submit1(*head, _UINT8, data, None, (len(data),), data)
    native.wait()
    memory, _, _, rows = native._take_result(0, process_set.size(), 1)
    if error is not None:
        raise error
    data_of_all = memoryview(memory)
    objects, begin = [], 0
    for rank, row in zip(process_set.ranks, rows):
        objects.append(_read(data_of_all[begin : begin + row], rank, "allgather_object"))
        begin += row
    return objects
