"""The command `covey`, in this process."""

from __future__ import annotations

import contextlib
import io
from typing import Any

from covey.cli import main


def covey(*arguments: str) -> Any:
    """(exit code, stdout, stderr) of the command `covey`."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = main(list(arguments))
        except SystemExit as end:
            code = end.code
    return code, out.getvalue(), err.getvalue()
