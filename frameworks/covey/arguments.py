"""Checks of what users give, by the names of the arguments. Internal.

Each returns the argument as Covey uses it, or raises InvalidArgument (a ValueError).
"""

from __future__ import annotations

import math
import operator
import os
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from covey.errors import InvalidArgument
from covey.group import Group


def text_of(name: str, value: Any) -> str:
    if isinstance(value, str):
        return value
    raise InvalidArgument(f"{name} must be a text or None, not {value!r}")


def part_name(name: Any, index: int, count: int) -> Optional[str]:
    """The name of one of the operations that a grouped call is made of; None: they have none."""
    return None if name is None else f"{text_of('name', name)}.{index}of{count}"


def truth_of(name: str, value: Any) -> bool:
    """A bool, also one of NumPy, or an integer."""
    if isinstance(value, int) or type(value).__name__ in ("bool", "bool_"):
        return bool(value)
    raise InvalidArgument(f"{name} must be True or False, not {value!r}")


def whole_of(name: str, value: Any) -> int:
    try:
        return operator.index(value)
    except TypeError:
        raise InvalidArgument(f"{name} must be an integer, not {value!r}") from None


def factor_of(name: str, value: Any) -> float:
    """A finite number that is not 0, which the core would read as "not given"."""
    try:
        factor = math.nan if isinstance(value, (str, bytes)) else float(value)
    except (TypeError, ValueError, RuntimeError):  # The last is that of torch's tensors.
        factor = math.nan
    if not math.isfinite(factor):
        raise InvalidArgument(f"{name} must be a finite number, not {value!r}")
    if factor == 0:
        raise InvalidArgument(f"{name} must not be 0")
    return factor


def scales_of(prescale: Any, postscale: Any) -> Tuple[float, float]:
    """The factors of a reduction, as :func:`factor_of`."""
    return factor_of("prescale_factor", prescale), factor_of("postscale_factor", postscale)


def many_of(given: Any, name: str = "tensors") -> Sequence[Any]:
    """A sequence as it is, else a list of what can be iterated."""
    if isinstance(given, (list, tuple)):
        return given
    try:
        return list(given)
    except TypeError:
        raise InvalidArgument(f"{name} must be a list, not {given!r}") from None


def list_of(name: str, given: Any) -> Sequence[Any]:
    """As :func:`many_of`, but a text is refused: its characters are no list."""
    if isinstance(given, (str, bytes)):
        raise InvalidArgument(f"{name} must be a list, not {given!r}")
    return many_of(given, name)


def path_of(name: str, value: Any) -> str:
    if isinstance(value, (str, os.PathLike)):
        return str(os.fspath(value))
    raise InvalidArgument(f"{name} must be a path, not {value!r}")


def dict_of(name: str, given: Any) -> Dict[str, Any]:
    """A dict with texts as keys."""
    if isinstance(given, Mapping) and all(isinstance(key, str) for key in given):
        return dict(given)
    raise InvalidArgument(f"{name} must be a dict with names as keys, not {given!r}")


def group_id(group: Group) -> int:
    """The number in the core of a process set."""
    try:
        return group.id
    except AttributeError:
        raise InvalidArgument(
            f"process_set must be a process set, such as covey.group([0, 1]), not {group!r}"
        ) from None


def split_counts(splits: Any) -> Optional[Tuple[int, ...]]:
    """The user's ``splits`` of an alltoall, as integers."""
    if splits is None:
        return None
    try:
        listed: List[Any] = splits.tolist() if hasattr(splits, "tolist") else splits
        return tuple(operator.index(count) for count in listed)
    except TypeError:
        raise InvalidArgument(
            f"splits must hold one integer for each rank of the process set, not {splits!r}"
        ) from None
