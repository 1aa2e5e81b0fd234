"""Imports in Python: each is used."""

from __future__ import annotations

import ast
import re
from typing import Iterator, Set

from tidy import source
from tidy.source import Finding


def _names_in(tree: ast.AST) -> Set[str]:
    """The names that a module reads, also in texts: ``__all__``, annotations, `{name}`."""
    found = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.update(re.findall(r"\w+", node.value) if len(node.value) < 200 else ())
    return found


def found_in(path: str, text: str) -> Iterator[Finding]:
    """Imports that nothing uses. One for its effect, or for those that import it from there, has
    `# noqa: F401` in its line."""
    tree, lines = ast.parse(text), text.splitlines()
    used = _names_in(tree)
    for node in ast.walk(tree):
        if not isinstance(node, (ast.Import, ast.ImportFrom)):
            continue
        if getattr(node, "module", "") == "__future__" or "noqa: F401" in lines[node.lineno - 1]:
            continue
        for alias in node.names:
            name = (alias.asname or alias.name).partition(".")[0]
            if name not in used and name != "*":
                why = f"{name} is imported and not used: leave it out"
                yield Finding("imports", path, node.lineno, why)


def unused() -> Iterator[Finding]:
    """Of the whole tree."""
    for path in source.files(".py"):
        if not path.endswith("__init__.py"):
            yield from found_in(path, source.read(path))
