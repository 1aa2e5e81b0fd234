"""The variants of calling an operation: waiting for it or not, in place or not. Internal.

An operation is written once, as a function that begins it. Its first argument is a
:class:`CallVariant`, the others are the user's, and it returns a handle. `two_variants` and
`four_variants` make of it what users call::

    allgather, allgather_async = two_variants(collectives.allgather)

An object whose method it is may know a shortcut for most calls: `Requests.shortcut`.

The made functions have the name, the signature and the documentation they would have if they were
written out: for help() and editors, and by their types for a type checker.
"""

from __future__ import annotations

import inspect
import re
from typing import TYPE_CHECKING, Any, Callable, NamedTuple, Optional, Tuple, TypeVar

R = TypeVar("R")

if TYPE_CHECKING:
    from typing import Protocol

    from typing_extensions import Concatenate, ParamSpec

    P = ParamSpec("P")
    R_co = TypeVar("R_co", covariant=True)

    class InFlight(Protocol[R_co]):
        """An operation that ``wait`` ends."""

        def wait(self, timeout: Optional[float] = ...) -> R_co: ...
        def poll(self) -> bool: ...


class CallVariant(NamedTuple):
    """How an operation is called.

    Attributes:
        in_place: the tensor is overwritten.
        waits: the caller waits for it at once.
    """

    in_place: bool = False
    waits: bool = False

    def name_of(self, operation: str) -> str:
        """The name of the function: ``allreduce_async_``."""
        return operation + ("" if self.waits else "_async") + ("_" if self.in_place else "")


NOW = CallVariant(waits=True)
NOW_IN_PLACE = CallVariant(in_place=True, waits=True)
LATER = CallVariant()
LATER_IN_PLACE = CallVariant(in_place=True)


def bind(begin: Callable[Concatenate[CallVariant, P], R], variant: CallVariant) -> Callable[P, R]:
    """``begin`` called in this ``variant``; it returns what ``begin`` does."""

    short = _shortcut(begin, variant, False)

    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        return begin(variant, *args, **kwargs)

    def quick(*args: P.args, **kwargs: P.kwargs) -> R:
        return short(args, kwargs) or begin(variant, *args, **kwargs)

    return with_signature(call if short is None else quick, begin, variant)


def _ended(
    begin: Callable[Concatenate[CallVariant, P], InFlight[R]], variant: CallVariant
) -> Callable[P, R]:
    """``begin`` called in this ``variant``, and what it begins waited for."""

    short = _shortcut(begin, variant, True)

    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        return begin(variant, *args, **kwargs).wait()

    def quick(*args: P.args, **kwargs: P.kwargs) -> R:
        result = short(args, kwargs)
        return begin(variant, *args, **kwargs).wait() if result is None else result

    return with_signature(call if short is None else quick, begin, variant)


def _shortcut(begin: Any, variant: CallVariant, ends: bool) -> Any:
    """A function that does most calls without ``begin``, and answers None to others; None: there is
    none. ``ends``: it waits, and returns the result."""
    owner = getattr(begin, "__self__", None)
    return owner.shortcut(begin.__name__, variant, ends) if hasattr(owner, "shortcut") else None


def two_variants(
    begin: Callable[Concatenate[CallVariant, P], InFlight[R]]
) -> Tuple[Callable[P, R], Callable[P, InFlight[R]]]:
    """The functions ``name``, which waits, and ``name_async``, which returns a handle."""
    return _ended(begin, NOW), bind(begin, LATER)


def four_variants(
    begin: Callable[Concatenate[CallVariant, P], InFlight[R]]
) -> Tuple[
    Callable[P, R], Callable[P, R], Callable[P, InFlight[R]], Callable[P, InFlight[R]]
]:
    """The functions ``name``, ``name_``, ``name_async`` and ``name_async_``."""
    return (
        _ended(begin, NOW),
        _ended(begin, NOW_IN_PLACE),
        bind(begin, LATER),
        bind(begin, LATER_IN_PLACE),
    )


def with_signature(call: Any, begin: Any, variant: CallVariant) -> Any:
    """``call`` with the name, signature and documentation of ``begin`` in this ``variant``.

    A method says by ``module`` and ``tensor`` of its object where the function belongs and what T
    is in its annotations.
    """
    owner = getattr(begin, "__self__", None)
    base = begin.__name__.lstrip("_")
    tensor = getattr(owner, "tensor", "T")
    call.__name__ = call.__qualname__ = variant.name_of(base)
    call.__module__ = getattr(owner, "module", begin.__module__)
    signature = inspect.signature(begin)
    given = list(signature.parameters.values())[1:]
    given = [one.replace(annotation=re.sub(r"\bT\b", tensor, one.annotation)) for one in given]
    result = re.sub(r"\bT\b", tensor, signature.return_annotation)
    if variant.waits:  # what wait() of the handle returns
        result = re.sub(r"^HandleSet\[", "List[", re.sub(r"^\w*Handle\[(.*)\]$", r"\1", result))
    call.__signature__ = signature.replace(parameters=given, return_annotation=result)
    call.__annotations__ = {}
    call.__doc__ = begin.__doc__ if variant == NOW else _as_base(base, begin.__doc__ or "", variant)
    return call


def _as_base(base: str, text: str, variant: CallVariant) -> str:
    """The documentation of another variant: that of ``base`` without its result and example."""
    how = [f"As :func:`{base}`, in place." if variant.in_place else f"As :func:`{base}`."]
    if variant.in_place:
        how.append("What is given is overwritten and returned; no gradient flows.")
    if not variant.waits:
        how.append("Returns a handle at once: leave what was given alone until it has ended.")
    parts = inspect.cleandoc(text).split("\n\n")
    return "\n\n".join(["\n".join(how), *(p for p in parts if p.startswith(("Args:", "Raises:")))])
