"""The description of a part for `covey build`, and the search for its compiler. Internal."""

from __future__ import annotations

import shutil
from typing import List, NamedTuple, Tuple

from covey.launch.spec import LaunchError


class Part(NamedTuple):
    """One thing to compile.

    Attributes:
        file_name: of the result.
        command: compiles it; `-o FILE` is added.
        check: Python that raises when the result cannot be used.
        next_step: the advice to the user afterwards.
        before: commands that make what `command` compiles; all run in one empty folder.
    """

    file_name: str
    command: List[str]
    check: str
    next_step: str
    before: Tuple[List[str], ...] = ()


def find_compiler(name: str, usual: str, advice: str) -> str:
    """The path of a compiler; of the usual one the error has an advice."""
    found = shutil.which(name)
    if found is not None:
        return found
    raise LaunchError(f"there is no program {name}" if name != usual else advice)
