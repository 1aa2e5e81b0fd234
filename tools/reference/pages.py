"""The pages of the guide that list every public name, made of the docstrings."""

from __future__ import annotations

import importlib
import inspect
from typing import Any, Dict, List, Optional, Tuple

from tools.reference import markdown, surface
from tools.reference.docstring import parse
from tools.reference.surface import Name

FOLDER = "examples/guide/api"
_HEAD = "Made of the docstrings by `tools/pages`; `help({module}.NAME)` shows the same."
_MORE = (
    "",
    "[Horovod's names](horovod.md), one by one, and [those of torch.distributed]"
    "(torch_distributed.md): what Covey has of each.",
)
_VARIANTS = {
    "_async_": "in place, returns a handle",
    "_async": "returns a handle",
    "_": "in place",
}


def file_of(module: str) -> str:
    """The page of a module, in FOLDER."""
    return f"{module.partition('.')[2].replace('.', '_') or module}.md"


def page(module: str) -> str:
    """The page of a module that can be imported here."""
    names = surface.names(module)
    own, elsewhere = _shared_out(module, names)
    text = inspect.getdoc(importlib.import_module(module)) or ""
    lines = [f"# {module}", "", _HEAD.format(module=module)]
    lines += markdown.prose(text, _linker(module, own))
    lines += ["", "## Names", "", "| name | |", "|---|---|", *_rows(module, own, elsewhere)]
    for name in own.values():
        lines += _chapter(module, name, own)
    return "\n".join(lines).rstrip() + "\n"


def index() -> str:
    """The page that lists the others."""
    rows = []
    for module in surface.MODULES:
        text = inspect.getdoc(importlib.import_module(module)) or ""
        first = parse(text).summary.split(". ")[0].rstrip(".:")
        told = markdown.cell(f"{first}.", lambda name: f"`{name}`")
        rows.append(f"| [`{module}`]({file_of(module)}) | {told} |")
    head = ["# API", "", _HEAD.format(module="MODULE"), "", "| module | |", "|---|---|"]
    return "\n".join([*head, *rows, *_MORE]) + "\n"


def _shared_out(module: str, names: List[Name]) -> Tuple[Dict[str, Name], Dict[str, str]]:
    """By name: what has a chapter here; and the other names, as rows of the table with a link to
    the page that has theirs. Four variants of a call are one chapter."""
    own: Dict[str, Name] = {}
    elsewhere: Dict[str, str] = {}
    by_name = {name.name: name for name in names}
    for name in names:
        base = base_of(name.name, by_name)
        home = _home(module, name)
        place = f"{file_of(home) if home else ''}#{base.lower()}"
        if inspect.ismodule(name.value):
            place, told = file_of(f"{module}.{name.name}"), "a module"
        elif base != name.name:
            told = f"`{base}`: {_VARIANTS[name.name[len(base):]]}"
        elif home is not None:
            told = f"as in `{home}`"
        else:
            own[name.name] = name
            continue
        elsewhere[name.name] = f"| [`{name.name}`]({place}) | {told} |"
    return own, elsewhere


def base_of(name: str, names: Any) -> str:
    """The call of which `name` is a variant: `allreduce` of `allreduce_async_`."""
    for ending in _VARIANTS:
        base = name[: -len(ending)]
        if name.endswith(ending) and base in names and _is_variant(names[name], base):
            return base
    return name


def _is_variant(name: Name, base: str) -> bool:
    return name.text.startswith(f"As :func:`{base}`")


def _home(module: str, name: Name) -> Optional[str]:
    """The module on whose page a name has its chapter, if that is another one: the first of those
    that have the same thing under this name."""
    for other in surface.MODULES[: surface.MODULES.index(module)]:
        given = getattr(importlib.import_module(other), name.name, None)
        if given is name.value and name.name in _public(other):
            return other
    return None


def _linker(module: str, own: Dict[str, Name]) -> markdown.Link:
    def link(name: str) -> str:
        home, _, last = name.rpartition(".")
        if name in surface.MODULES:
            return f"[`{name}`]({file_of(name)})"
        if home in surface.MODULES and home != module and last in _public(home):
            value = getattr(importlib.import_module(home), last)
            home = _home(home, Name(home, last, value)) or home
            return f"[`{name}`]({file_of(home)}#{last.lower()})"
        return f"[`{last}`](#{last.lower()})" if last in own else f"`{name}`"

    return link


def _public(module: str) -> List[str]:
    return list(importlib.import_module(module).__all__)


def _rows(module: str, own: Dict[str, Name], elsewhere: Dict[str, str]) -> List[str]:
    link = _linker(module, own)
    rows: Dict[str, str] = {}
    for name, one in own.items():
        summary = parse(one.text).summary.split(". ")[0].rstrip(".:")
        rows[name] = f"| [`{name}`](#{name.lower()}) | {markdown.cell(summary, link)} |"
    rows.update(elsewhere)
    return [rows[name] for name in sorted(rows)]


def _chapter(module: str, name: Name, own: Dict[str, Name]) -> List[str]:
    link = _linker(module, own)
    lines = ["", f"## {name.name}", ""]
    if name.signature is not None:
        lines += markdown.signature(name.name, name.signature)
    elif surface.is_error(name.value):
        bases = ", ".join(f"`{base.__name__}`" for base in name.value.__bases__)
        lines.append(f"An exception, derived from {bases}.")
    else:
        kind = "A class" if inspect.isclass(name.value) else "A constant"
        lines.append(f"{kind}: `{name.name}`.")
    lines += _variants(module, name) + markdown.docstring(name.text, link)
    for member in surface.members(name):
        if not member.is_known:
            lines += _member(member, link)
    return lines


def _variants(module: str, name: Name) -> List[str]:
    """A line on the variants of a call that the module has."""
    there = {one.name: one for one in surface.names(module)}
    found = []
    for end, how in _VARIANTS.items():
        variant = there.get(f"{name.name}{end}")
        if variant is not None and _is_variant(variant, name.name):
            found.append(f"`{variant.name}`: {how}")
    return ["", f"Variants: {'; '.join(reversed(found))}."] if found else []


def _member(member: Name, link: markdown.Link) -> List[str]:
    lines = ["", f"### {member.name}", ""]
    if isinstance(member.value, property) or member.signature is None:
        lines.append("A property.")
    else:
        lines += markdown.signature(member.name, member.signature)
    return lines + markdown.docstring(member.text, link)
