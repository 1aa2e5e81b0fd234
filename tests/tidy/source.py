"""The source tree as the tidy rules see it: files, and C++ without comments and strings."""

from __future__ import annotations

import functools
import pathlib
import re
from typing import Iterator, List, NamedTuple, Tuple

# The tree itself, not Bazel's copy of declared files: so no file escapes by not being declared.
ROOT = pathlib.Path(__file__).resolve().parents[2]
TOP_FOLDERS = ("core", "ops", "frameworks", "proto", "tests", "tools", "examples")
CPP = (".cc", ".h", ".c", ".cu")
_BINARY = (".so", ".pyc", ".png", ".whl", ".zip")


class Finding(NamedTuple):
    """One offence. `size` is 1, or for lengths the number of lines too many."""

    rule: str
    path: str
    line: int
    text: str
    size: int = 1

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.text} [{self.rule}]"


@functools.lru_cache(maxsize=None)
def files(*suffixes: str) -> Tuple[str, ...]:
    """Files below the top folders, relative to the root. Without suffixes: all text files."""
    found = []
    for top in TOP_FOLDERS:
        for path in sorted((ROOT / top).rglob("*")):
            hidden = "__pycache__" in path.parts or path.suffix in _BINARY
            if path.is_file() and not hidden and (not suffixes or path.suffix in suffixes):
                found.append(path.relative_to(ROOT).as_posix())
    return tuple(found)


@functools.lru_cache(maxsize=None)
def read(path: str) -> str:
    """The text of a file."""
    return (ROOT / path).read_text(encoding="utf-8")


@functools.lru_cache(maxsize=None)
def lines(path: str) -> Tuple[str, ...]:
    """The lines of a file."""
    return tuple(read(path).splitlines())


_TOKENS = re.compile(
    r"//[^\n]*|/\*.*?\*/|R\"(?P<mark>[^(\s]*)\(.*?\)(?P=mark)\""
    r"|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])+'",
    re.DOTALL,
)


def _blank(match: "re.Match[str]") -> str:
    text = match.group()
    if text[0] == "/":
        return re.sub(r"[^\n]", " ", text)
    return text[0] + re.sub(r"[^\n]", " ", text[1:-1]) + text[-1]


@functools.lru_cache(maxsize=None)
def code(path: str) -> str:
    """C or C++ with comments and the insides of strings blanked; every line keeps its number."""
    # Digit separators (1'000) are no characters.
    return _TOKENS.sub(_blank, re.sub(r"(?<=\d)'(?=\d)", "0", read(path)))


@functools.lru_cache(maxsize=None)
def comments(path: str) -> Tuple[str, ...]:
    """The lines of C or C++ with everything but comments blanked."""
    text = re.sub(r"(?<=\d)'(?=\d)", "0", read(path))
    kept = list(re.sub(r"[^\n]", " ", text))
    for match in _TOKENS.finditer(text):
        if match.group()[0] == "/":
            kept[match.start() : match.end()] = match.group()
    return tuple("".join(kept).split("\n"))


def line_of(text: str, offset: int) -> int:
    """The number of the line that holds this offset."""
    return text.count("\n", 0, offset) + 1


class Block(NamedTuple):
    """A pair of braces of C++ and what stands before it since the last `;`, `{` or `}`."""

    head: str
    head_line: int
    first_line: int
    last_line: int
    outer: Tuple[str, ...]  # kinds of the blocks around it, outermost first
    kind: str  # "namespace", "type", "function" or "other"


def _kind_of(head: str, outer: Tuple[str, ...]) -> str:
    if "function" in outer:
        return "other"
    words = re.sub(r"template\s*<[^{}]*?>\s*(?=\w)", "", head).strip()
    if re.match(r"(inline\s+)?namespace\b", words) or words.startswith("extern"):
        return "namespace"
    if re.match(r"(typedef\s+)?(struct|class|union|enum)\b", words) and ")" not in words:
        return "type"
    if ")" in words and not re.search(r"(?<![=!<>])=(?!=)[^()]*$", words):
        return "function"
    return "other"


def blocks(path: str) -> Iterator[Block]:
    """All brace blocks of a C++ file. Preprocessor lines do not count as code."""
    text = re.sub(r"^[ \t]*#(?:[^\n\\]|\\.|\\\n)*", lambda m: re.sub(r"[^\n]", " ", m.group()),
                  code(path), flags=re.MULTILINE)
    stack: List[Tuple[str, int, int, Tuple[str, ...], str]] = []
    begin = 0
    for match in re.finditer(r"[{};]", text):
        if match.group() == "{":
            head = text[begin:match.start()]
            outer = tuple(entry[4] for entry in stack)
            lead = len(head) - len(head.lstrip())
            stack.append((head.strip(), line_of(text, begin + lead), line_of(text, match.start()),
                          outer, _kind_of(head, outer)))
        elif match.group() == "}" and stack:
            head, head_line, first_line, outer, kind = stack.pop()
            yield Block(head, head_line, first_line, line_of(text, match.start()), outer, kind)
        begin = match.end()
