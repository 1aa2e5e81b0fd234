"""Notices and warnings of Covey's Python, on stderr, one line each. Internal.

``log_level=error`` and ``off`` (``coveyrun --quiet``) silence them; errors are exceptions.
"""

from __future__ import annotations

import os
import sys
import warnings
from typing import Mapping

from covey.state import state

_SILENT = ("off", "error")


def is_shown() -> bool:
    """Whether ``log_level`` admits notices and warnings: its default does."""
    configured = state.settings.get("log_level")
    return admits(os.environ) if configured is None else str(configured) not in _SILENT


def admits(environ: Mapping[str, str]) -> bool:
    """The same of a process with these variables: of the launcher's ranks, and so of itself."""
    return environ.get("COVEY_LOG_LEVEL", "") not in _SILENT


def tell(*lines: str, label: str = "covey: ") -> None:
    """Something to know, of the job as a whole; the caller says it on one rank."""
    if is_shown():
        sys.stderr.write("".join(f"{label}{line}\n" for line in lines))


def warn(text: str) -> None:
    """Something that this rank has met, in the form of the core's warnings."""
    place = state.place
    rank = "" if place is None else f" rank {place.rank}"
    tell(text, label=f"covey{rank} warning: ")


def warn_as_python(text: str, calls: int) -> None:
    """As one of Python's ``warnings``, which scripts written for Horovod filter or record, of the
    line that has made the last but ``calls`` calls."""
    if is_shown():
        warnings.warn(text, stacklevel=calls + 2)
