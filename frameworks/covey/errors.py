"""Covey's errors, as exceptions.

Every exception of Covey is a :class:`CoveyError`. The classes that Horovod's users expect as
``ValueError`` are one too, so ``except ValueError`` keeps working.
"""

from __future__ import annotations

from typing import Dict, Type


class CoveyError(RuntimeError):
    """Base of all errors of Covey.

    Attributes:
        code: the ``covey_code`` of the C API.
        peer_rank: the rank that caused it, -1 when none did.

    Example:
        >>> try:
        ...     covey.allreduce(tensor, name="loss")
        ... except covey.Aborted as error:
        ...     print("rank", error.peer_rank, "is gone:", error)
    """

    code: int = 9

    def __init__(self, message: str, peer_rank: int = -1) -> None:
        super().__init__(message)
        self.peer_rank = peer_rank


class InvalidArgument(CoveyError, ValueError):
    """This call was wrong. Nothing was submitted."""

    code = 1


class NotInitialized(CoveyError, ValueError):
    """Called before ``init()`` or after ``shutdown()``."""

    code = 2


class OperationError(CoveyError):
    """An operation that was submitted has failed; its tensors hold no result."""


class Mismatch(OperationError):
    """The ranks disagree about an operation. It failed on every rank; later operations work."""

    code = 3


class Aborted(OperationError):
    """A rank died or left, so the operation cannot end. ``peer_rank`` names the rank."""

    code = 4


class Timeout(CoveyError, TimeoutError):
    """Not finished in the time given. The operation goes on and may be waited for again."""

    code = 5


class Unsupported(CoveyError, ValueError):
    """A dtype, operation or device that this build cannot do."""

    code = 6


class Exhausted(CoveyError, MemoryError):
    """Out of memory, or a bound of the configuration was hit."""

    code = 7


class Forked(CoveyError):
    """Called in a child of ``fork()``: the runtime belongs to the parent."""

    code = 8


class Internal(CoveyError):
    """A bug in Covey. Please report the message."""

    code = 9


class NotFinite(OperationError, ArithmeticError):
    """A rank has NaN or infinite numbers where ``check_nan`` looks for them: nothing was mixed.

    ``peer_rank`` is that rank, the message says in what, how many and at which step. A reduction
    failed on every rank; later operations work.
    """

    code = 10


class BadCheckpoint(InvalidArgument):
    """A file of a checkpoint is missing, cut short, changed or of another format.

    Nothing was loaded, on any rank; the message names the file.
    """


class NotSaved(CoveyError, OSError):
    """A rank could not write its part of a checkpoint: no rank has saved anything.

    ``peer_rank`` is that rank, the message says why. The checkpoint that was there still is.
    """


_CLASSES: Dict[int, Type[CoveyError]] = {
    kind.code: kind
    for kind in (
        InvalidArgument,
        NotInitialized,
        Mismatch,
        Aborted,
        Timeout,
        Unsupported,
        Exhausted,
        Forked,
        Internal,
        NotFinite,
    )
}


def from_code(code: int, peer_rank: int, message: str) -> CoveyError:
    """Makes the exception of a ``covey_code`` (called by the extension)."""
    return _CLASSES.get(code, Internal)(shown(message, "\t\n"), peer_rank)


def shown(text: str, kept: str = "\t") -> str:
    """Foreign ``text`` as it may be written to a terminal: control characters are escaped.

    Example:
        >>> shown("\x1b[2Jgone")
        '\\\\x1b[2Jgone'
    """
    return "".join(
        c if c.isprintable() or c in kept else c.encode("unicode_escape").decode() for c in text
    )
