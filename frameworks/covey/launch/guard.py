"""Whether a script starts ranks that would start ranks: they import it. Internal."""

from __future__ import annotations

import ast
import sys
from types import FrameType
from typing import Optional

UNGUARDED = (
    "covey.run: this script calls covey.run whenever it is imported, and the ranks import it: put "
    'the call under `if __name__ == "__main__":`, or install cloudpickle'
)


def refuse_unguarded() -> None:
    """Ends a main script, in one line, that has called `covey.run` outside of its guard. The ranks
    refuse a script without source."""
    frame = _of_main(sys._getframe(1))
    if frame is None:
        return
    try:
        with open(frame.f_code.co_filename, "rb") as file:
            tree = ast.parse(file.read())
    except (OSError, SyntaxError, ValueError):
        return
    if not is_guarded(tree, frame.f_lineno):
        sys.exit(UNGUARDED)


def _of_main(frame: Optional[FrameType]) -> Optional[FrameType]:
    while frame is not None:
        if frame.f_code.co_name == "<module>" and frame.f_globals.get("__name__") == "__main__":
            return frame
        frame = frame.f_back
    return None


def is_guarded(tree: ast.Module, line: int) -> bool:
    """Whether what a script does in that line depends on its name.

    Example:
        >>> is_guarded(ast.parse("x = 1\\nif __name__ == '__main__':\\n  f()"), 3)
        True
    """
    for node in ast.walk(tree):
        if not isinstance(node, ast.If):
            continue
        parts = list(ast.walk(node.test))
        if not any(isinstance(part, ast.Name) and part.id == "__name__" for part in parts):
            continue
        end = node.end_lineno or line
        leaves_before = end < line and any(isinstance(part, ast.NotEq) for part in parts)
        if node.lineno <= line <= end or leaves_before:
            return True
    return False
