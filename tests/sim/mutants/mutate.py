"""Writes copies of source files with one rule removed: mutate.py MUTANT OUT FILE...

A mutant is a text: a comment says which rule it removes; `@@ path` begins a file, `@@ path N` one
in which the text occurs N times; then lines of `-` are to be found there, as they stand, and
replaced by the lines of `+` below them. A text that is not found just so is an error: whoever
changes the source changes the mutant.
"""

from __future__ import annotations

import pathlib
import sys
from typing import Dict, List, NamedTuple


class Change(NamedTuple):
    """`old` occurs `count` times in `path` and becomes `new`."""

    path: str
    count: int
    old: str
    new: str


def read_changes(mutant: str) -> List[Change]:
    """The changes of a mutant's text."""
    changes = []
    path, count, old, new = "", 1, "", ""
    for line in mutant.splitlines() + ["@@ end"]:
        begins = line.startswith("@@ ") or (line.startswith("-") and new)
        if begins and old:
            changes.append(Change(path, count, old, new))
            old, new = "", ""
        if line.startswith("@@ "):
            words = line.split()
            path, count = words[1], int(words[2]) if len(words) > 2 else 1
        elif line.startswith("-"):
            old += line[1:] + "\n"
        elif line.startswith("+"):
            new += line[1:] + "\n"
        elif not line.startswith("#") and line:
            raise ValueError(f"neither comment, path, old nor new: {line}")
    return changes


def mutate(texts: Dict[str, str], changes: List[Change]) -> None:
    """Applies the changes to the texts by path."""
    for change in changes:
        found = texts[change.path].count(change.old)
        if found != change.count:
            raise ValueError(f"{change.path} has {found} times, not {change.count}:\n{change.old}")
        texts[change.path] = texts[change.path].replace(change.old, change.new)


def main(mutant: str, out: str, paths: List[str]) -> None:
    """Writes OUT/PATH for every path, as seen from the root of the tree."""
    texts = {path: pathlib.Path(path).read_text(encoding="utf-8") for path in paths}
    changes = read_changes(pathlib.Path(mutant).read_text(encoding="utf-8"))
    if {change.path for change in changes} != set(paths):
        raise ValueError(f"{mutant} changes other files than {' '.join(paths)}")
    mutate(texts, changes)
    for path, text in texts.items():
        file = pathlib.Path(out) / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    try:
        main(sys.argv[1], sys.argv[2], sys.argv[3:])
    except ValueError as error:
        sys.exit(f"{sys.argv[1]} no longer applies: {error}")
