"""Notices of a command on standard error. Internal."""

from __future__ import annotations

import contextlib
import sys

from covey.launch.output import Console, ConsoleGone


def say(program: str, *lines: str) -> None:
    """Lines that begin with the program's name. Where standard error takes none (a full disk, a
    reader that has gone) they are lost, and the command goes on."""
    with contextlib.suppress(ConsoleGone):
        prefix = f"{program}: ".encode(errors="replace")
        Console(sys.stderr).write([line.encode(errors="replace") for line in lines], prefix)
