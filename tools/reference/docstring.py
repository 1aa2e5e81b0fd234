"""The parts of a docstring, and the names that it links to."""

from __future__ import annotations

import re
from typing import Dict, List, NamedTuple, Tuple

SECTIONS = ("Args", "Attributes", "Returns", "Raises", "Example")
_HEAD = re.compile(rf"({'|'.join(SECTIONS)}):")
_LINK = re.compile(r":(?:func|class|meth|attr|data|mod):`~?([\w.]+)`")
_ITEM = re.compile(r"([*\w][\w, .*()]*?):(?=\s|$)")


class Docstring(NamedTuple):
    """A docstring, cut into its parts.

    Attributes:
        text: all that stands before the first section.
        sections: by their heads, such as "Args": the lines below, without their indent.
    """

    text: str
    sections: Dict[str, List[str]]

    @property
    def summary(self) -> str:
        """The first paragraph, as one line."""
        return " ".join(self.text.split("\n\n")[0].split())

    def items(self, section: str) -> List[Tuple[str, str]]:
        """The (names, text) of a section that is a list; a line without a name has "" there."""
        found: List[Tuple[str, str]] = []
        for line in self.sections.get(section, []):
            item = _ITEM.match(line)
            if item:
                found.append((item.group(1), line[item.end() :].strip()))
            elif found and line.startswith(" "):
                found[-1] = (found[-1][0], f"{found[-1][1]} {line.strip()}".strip())
            else:
                found.append(("", line.strip()))
        return found

    def names(self, section: str) -> List[str]:
        """The names that a section explains."""
        listed = [name for names, _ in self.items(section) for name in re.split(r"[, ]+", names)]
        return [name.lstrip("*") for name in listed if name]


def parse(text: str) -> Docstring:
    """The parts of a docstring as `inspect.getdoc` gives it."""
    body: List[str] = []
    sections: Dict[str, List[str]] = {}
    lines = body
    for line in text.splitlines():
        head = _HEAD.fullmatch(line)
        if head:
            lines = sections.setdefault(head.group(1), [])
        elif line.startswith(" ") or not line:
            lines.append(line[4:] if lines is not body else line)
        else:
            lines = lines if lines is body else _after(sections)
            lines.append(line)
    return Docstring("\n".join(body).strip(), {k: _trimmed(v) for k, v in sections.items()})


def _after(sections: Dict[str, List[str]]) -> List[str]:
    """Where a paragraph goes that stands behind the sections."""
    return sections.setdefault("", [])


def _trimmed(lines: List[str]) -> List[str]:
    while lines and not lines[-1]:
        lines.pop()
    return lines


def links(text: str) -> List[str]:
    """The names that a docstring refers to, such as "allreduce"."""
    return _LINK.findall(text)
