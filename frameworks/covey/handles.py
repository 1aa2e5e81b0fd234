"""Operations in flight, as Python sees them."""

from __future__ import annotations

from typing import Any, Generic, List, Optional, Sequence, TypeVar

from covey import _native
from covey.errors import CoveyError, InvalidArgument

T = TypeVar("T")


Handle = _native.Handle


class HandleSet(Generic[T]):
    """Several operations in flight whose results form one list."""

    __slots__ = ("_handles", "_places")

    def __init__(
        self, handles: Sequence[Handle[Any]], places: Optional[Sequence[Sequence[int]]] = None
    ) -> None:
        """Internal.

        Args:
            handles: the operations.
            places: when given, the result of handles[i] is a list, and its element j is element
                places[i][j] of the results; else it is element i.
        """
        self._handles = list(handles)
        self._places = places

    def wait(self, timeout: Optional[float] = None) -> List[T]:
        """Waits for all and returns the list. Errors as :meth:`Handle.wait`: the first one met."""
        parts: List[Any] = []
        first_error: Optional[CoveyError] = None
        for handle in self._handles:
            try:
                parts.append(handle.wait(timeout))
            except CoveyError as error:
                first_error = first_error or error
        if first_error is not None:
            raise first_error
        if self._places is None:
            return parts
        results: List[Any] = [None] * sum(map(len, self._places))
        for places, part in zip(self._places, parts):
            for place, result in zip(places, part):
                results[place] = result
        return results

    def poll(self) -> bool:
        """Whether ``wait`` would return at once."""
        return all(handle.poll() for handle in self._handles)


def awaited(handle: Any) -> List[int]:
    """The ranks that an operation, or a set of them, waits for; empty: none are known, and they are
    asked for. Internal."""
    handles = handle._handles if isinstance(handle, HandleSet) else [handle]
    return sorted({rank for one in handles for rank in memoryview(one._awaited()).cast("i")})


def checked(handle: Any) -> Any:
    """``handle``, which is one. Raises InvalidArgument (a ValueError) when it is not."""
    if not (hasattr(handle, "wait") and hasattr(handle, "poll")):
        what = f"a {type(handle).__name__}"
        raise InvalidArgument(f"this takes what a function named ..._async returned, not {what}")
    return handle


def poll(handle: Any) -> bool:
    """Whether the operation of ``handle`` has ended, so that ``synchronize`` returns at once.

    Raises:
        InvalidArgument: (a ValueError) ``handle`` is what no ``..._async`` function returned.

    Example:
        >>> covey.poll(covey.allreduce_async(tensor))  # doctest: +SKIP
        True
    """
    return bool(checked(handle).poll())


def synchronize(handle: Any) -> Any:
    """Waits for the operation of ``handle`` and returns its result. Errors as :meth:`Handle.wait`.

    Example:
        >>> total = covey.synchronize(covey.allreduce_async(tensor, op=covey.Sum))
    """
    return checked(handle).wait()
