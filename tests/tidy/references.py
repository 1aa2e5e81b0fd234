"""Members that comments and pages name are there."""

from __future__ import annotations

import functools
import re
from typing import Dict, Iterator, List, NamedTuple, Set

from tidy import source
from tidy.source import Finding

_TYPE = re.compile(
    r"\b(?:class|struct|union|namespace)\s+(?:alignas\(\w+\)\s*)?(\w+)(?:\s+final)?\s*"
    r"(?::\s*(?!:)([^{;()]*))?\{"
)
_ENUM = re.compile(r"\benum\s+(?:class\s+)?(\w+)[^{;]*\{")
_NAMED = re.compile(r"\b([A-Z]\w*)::(~?\w+)")


class _Type(NamedTuple):
    words: Set[str]  # All that stand in its body, and in those of its functions.
    bases: Set[str]


def _body(text: str, begin: int) -> str:
    depth, at = 1, begin
    while depth and at < len(text):
        depth += {"{": 1, "}": -1}.get(text[at], 0)
        at += 1
    return text[begin:at]


@functools.lru_cache(maxsize=None)
def _types() -> Dict[str, _Type]:
    types: Dict[str, _Type] = {}
    for path in source.files(".h", ".cc"):
        text = source.code(path)
        for match in [*_TYPE.finditer(text), *_ENUM.finditer(text)]:
            found = types.setdefault(match.group(1), _Type(set(), set()))
            found.words.update(re.findall(r"\w+", _body(text, match.end())))
            if match.re is _TYPE and match.group(2):
                found.bases.update(re.findall(r"\w+", match.group(2)))
    return types


def _has(name: str, member: str, seen: Set[str]) -> bool:
    known = _types().get(name)
    if known is None or name in seen:
        return False
    seen.add(name)
    return member in known.words or any(_has(base, member, seen) for base in known.bases)


def _texts(path: str) -> List[str]:
    return [*(source.lines(path) if path.endswith(".md") else source.comments(path))]


def gone() -> Iterator[Finding]:
    """Names such as ``Class::Member`` where the class, and what it derives from, has no such."""
    for path in source.files(".md", *source.CPP):
        for number, line in enumerate(_texts(path), 1):
            for name, member in _NAMED.findall(line):
                if name in _types() and not _has(name, member.lstrip("~"), set()):
                    yield Finding("reference", path, number, f"{name} has no {member}")
