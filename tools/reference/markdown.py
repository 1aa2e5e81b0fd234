"""Docstrings as Markdown."""

from __future__ import annotations

import inspect
import re
import textwrap
from typing import Any, Callable, List

from tools.reference.docstring import Docstring, parse

WIDTH = 100
Link = Callable[[str], str]


def inline(text: str, link: Link) -> str:
    """Text with the marks of Markdown; `link` makes one of the name that a reference has."""
    text = re.sub(r":(?:func|class|meth|attr|data|mod):`~?([\w.]+)`", lambda it: link(it[1]), text)
    text = re.sub(r"``(.+?)``", r"`\1`", text, flags=re.S)
    return re.sub(r"(?<![^\s(,])(\*{1,2})(?=\w+[^\w*])", lambda it: it[1].replace("*", r"\*"), text)


def cell(text: str, link: Link) -> str:
    """Text for a cell of a table."""
    return inline(" ".join(text.split()), link).replace("|", r"\|")


def docstring(text: str, link: Link) -> List[str]:
    """The lines of a whole docstring."""
    parts = parse(text)
    lines = prose(parts.text, link)
    for section in ("Args", "Attributes", "Returns", "Yields", "Raises"):
        lines += _section(parts, section, link)
    for paragraph in "\n".join(parts.sections.get("", [])).split("\n\n"):
        lines += prose(paragraph, link)
    example = parts.sections.get("Example")
    shown = [line.replace("  # doctest: +SKIP", "") for line in example or ()]
    return lines + (["", "```pycon", *shown, "```"] if shown else [])


def prose(text: str, link: Link) -> List[str]:
    """Paragraphs, lists, and blocks of code behind a double colon."""
    lines: List[str] = []
    for paragraph in text.split("\n\n"):
        if not paragraph.strip():
            continue
        if paragraph.startswith("    "):
            code = textwrap.dedent(paragraph).splitlines()
            is_next = lines[-1:] == ["```"]
            lines[-1:] = (
                ["", *code, "```"] if is_next else [*lines[-1:], "", "```python", *code, "```"]
            )
        else:
            lines += ["", *inline(paragraph.replace("::", ":"), link).splitlines()]
    return lines


def _section(parts: Docstring, section: str, link: Link) -> List[str]:
    if section not in parts.sections:
        return []
    items = parts.items(section)
    if section in ("Returns", "Yields") or not any(names for names, _ in items):
        whole = " ".join(line.strip() for line in parts.sections[section])
        return ["", *_wrapped(f"**{section}:** {inline(whole, link)}", "")]
    lines = ["", f"**{section}:**", ""]
    for names, text in items:
        head = ", ".join(f"`{name}`" for name in re.split(r", *", names) if name)
        told = inline(" ".join(text.split()), link)
        lines += _wrapped(f"- {head}: {told}" if head else f"- {told}", "  ")
    return lines


def _wrapped(text: str, indent: str) -> List[str]:
    options: Any = {"break_long_words": False, "break_on_hyphens": False}
    return textwrap.wrap(text, WIDTH, subsequent_indent=indent, **options)


def signature(name: str, value: inspect.Signature) -> List[str]:
    """A call, as the lines of a block of code."""
    plain = [
        one.replace(annotation=_unquoted(one.annotation), default=_named(one.default))
        for one in value.parameters.values()
    ]
    whole = value.replace(parameters=plain, return_annotation=_unquoted(value.return_annotation))
    text = f"{name}{whole}"
    if len(text) <= WIDTH:
        return ["```python", text, "```"]
    parts = _parameters(whole)
    result = text[text.rindex(")") :]
    return ["```python", f"{name}(", *(f"    {part}," for part in parts), result, "```"]


def _parameters(whole: inspect.Signature) -> List[str]:
    """Each as it is written, with the marks of those by name only and by place only."""
    parts: List[str] = []
    kinds = [one.kind for one in whole.parameters.values()]
    for number, one in enumerate(whole.parameters.values()):
        is_first = one.kind not in kinds[:number]
        if one.kind == one.KEYWORD_ONLY and is_first and one.VAR_POSITIONAL not in kinds:
            parts.append("*")
        parts.append(str(one))
    return parts


class _Written:
    """A text of a signature, as the source has it."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


def _unquoted(annotation: Any) -> Any:
    """An annotation without the quotes around it; default values keep theirs."""
    text = annotation if isinstance(annotation, str) else ""
    return _Written(text.replace("'", "").replace('"', "")) if text else annotation


def _named(default: Any) -> Any:
    """A default value; of a class the name."""
    is_class = inspect.isclass(default) and default is not inspect.Parameter.empty
    return _Written(default.__name__) if is_class else default
