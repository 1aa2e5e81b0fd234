"""Sizes and places: how long files and functions are, where tests and READMEs lie."""

from __future__ import annotations

import ast
import re
import subprocess
from typing import Iterator

from tidy import source
from tidy.source import Finding

FILE_LINES = 400
FUNCTION_LINES = 70
COLUMNS = 100
README_LINES = 120

_TOP_FILES = ("WORKSPACE", "BUILD", "README.md", "CHANGELOG.md", "LICENSE")
_CODE = source.CPP + (".py", ".bzl", ".sh", ".proto", "")


def _code_files() -> Iterator[str]:
    yield from source.files(*_CODE)


def file_length() -> Iterator[Finding]:
    """Files over 400 lines."""
    for path in _code_files():
        extra = len(source.lines(path)) - FILE_LINES
        if extra > 0:
            yield Finding("file length", path, FILE_LINES + 1, f"{extra} lines over {FILE_LINES}: "
                          "split it where a second noun begins", extra)


def columns() -> Iterator[Finding]:
    """Lines over 100 columns."""
    for path in _code_files():
        for number, line in enumerate(source.lines(path), 1):
            if len(line) > COLUMNS:
                text = f"{len(line)} columns, {COLUMNS} are allowed"
                yield Finding("columns", path, number, text)


def _function_too_long(path: str, line: int, name: str, length: int) -> Iterator[Finding]:
    extra = length - FUNCTION_LINES
    if extra > 0:
        yield Finding("function length", path, line, f"{name} has {length} lines, {FUNCTION_LINES} "
                      "are allowed: keep the branches here, move a loop out", extra)


def function_length() -> Iterator[Finding]:
    """Functions over 70 lines, in C++ and in Python."""
    for path in source.files(*source.CPP):
        for block in source.blocks(path):
            if block.kind == "function":
                name = re.search(r"([\w:~]+)\s*\(", block.head)
                yield from _function_too_long(path, block.head_line, name.group(1) if name else "?",
                                              block.last_line - block.head_line + 1)
    for path in source.files(".py"):
        for node in ast.walk(ast.parse(source.read(path))):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                length = (node.end_lineno or node.lineno) - node.lineno + 1
                yield from _function_too_long(path, node.lineno, node.name, length)


def headers() -> Iterator[Finding]:
    """A header begins with a comment on what it is, and its guard is its path."""
    for path in source.files(".h"):
        if not source.read(path).startswith(("//", "/*")):
            yield Finding("file comment", path, 1, "say first what this is, what it is not, which "
                          "thread it runs on and which invariants hold")
        guard = "COVEY_" + re.sub(r"\W", "_", path).upper() + "_"
        if f"#ifndef {guard}\n#define {guard}\n" not in source.read(path):
            yield Finding("guard", path, 1, f"the include guard is {guard}")


def test_places() -> Iterator[Finding]:
    """tests/unit mirrors the tree: core/agree/cache.cc, tests/unit/agree/cache_test.cc."""
    for path in source.files(".cc"):
        match = re.fullmatch(r"tests/unit/(.+)_test\.cc", path)
        if not match or match.group(1).startswith("issues/"):
            continue
        name = match.group(1)
        words = name.split("_")  # kernels_values_test.cc is another test of kernels
        stems = ["_".join(words[:count]) for count in range(len(words), 0, -1)]
        places = [f"{top}{stem}{end}" for stem in stems for top in ("core/", "")
                  for end in (".h", ".cc", "")]
        if not any((source.ROOT / place).exists() for place in places):
            yield Finding("test place", path, 1, f"neither core/{name} nor {name} exists: name the "
                          "test after what it tests")


def readmes() -> Iterator[Finding]:
    """Every top folder says what is in it, briefly."""
    for top in source.TOP_FOLDERS:
        path = f"{top}/README.md"
        if not (source.ROOT / path).exists():
            yield Finding("README", path, 1,
                          "missing: say what is here, what it may include, how to add one")
        elif len(source.lines(path)) > README_LINES:
            yield Finding("README", path, README_LINES + 1, f"over {README_LINES} lines: say less")


def top_level() -> Iterator[Finding]:
    """The top of the tree stays as README.md draws it: what is committed, not what a run left."""
    listing = subprocess.run(["git", "-C", str(source.ROOT), "ls-files"], capture_output=True,
                             text=True, check=False)
    for name in sorted({path.split("/")[0] for path in listing.stdout.splitlines()}):
        if not name.startswith(".") and name not in _TOP_FILES + source.TOP_FOLDERS:
            yield Finding("top level", name, 1,
                          "does not belong at the top: find its room in README.md")
