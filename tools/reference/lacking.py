"""The parts that the documentation of a public name lacks."""

from __future__ import annotations

import importlib
import inspect
import re
from typing import List

from tools.reference import surface
from tools.reference.docstring import Docstring, parse
from tools.reference.surface import Name

_TENSORS = ("tensor", "tensors", "value", "values")
_SHAPE = re.compile(r"\bshapes?\b|\bdimensions?\b|\brows\b|\bscalar\b")
_DTYPE = re.compile(r"\bdtypes?\b|\bfloat32\b|\bfloating-point\b")
_ERRORS = re.compile(r"\b[Rr]aises?\b|\bErrors?\b|\bRaised\b")


def lacking(name: Name) -> List[str]:
    """The parts that the documentation of `name` and of its references lacks: "a summary",
    "an example", "the argument root_rank". A method of a class needs no example of its own."""
    own, all_texts = parse(name.text), surface.documents(name)
    if isinstance(name.value, property) and _is_attribute(name):
        return []
    if not own.text:
        return ["a docstring"]
    if inspect.ismodule(name.value):
        return []
    missing = [] if re.search(r"[.:)]$", own.summary) else ["a summary that is a sentence"]
    missing += [f"the argument {one}" for one in _arguments(name) if not _tells(one, all_texts)]
    if "." not in name.name and not any(_has_example(text) for text in all_texts):
        missing.append("an example")
    return missing + _of_data(name, all_texts) + _of_errors(name, all_texts)


def _is_attribute(name: Name) -> bool:
    """Whether the class of a property explains it."""
    kind, _, attribute = name.name.rpartition(".")
    owner = getattr(importlib.import_module(name.module), kind)
    return attribute in parse(inspect.getdoc(owner) or "").names("Attributes")


def _whole(text: Docstring) -> str:
    return "\n".join([text.text, *(line for part in text.sections.values() for line in part)])


def _arguments(name: Name) -> List[str]:
    if isinstance(name.value, property) or name.is_known or name.signature is None:
        return []
    return [one for one in name.signature.parameters if one not in ("self", "cls")]


def _tells(argument: str, texts: List[Docstring]) -> bool:
    """As an item of Args, or between double backticks."""
    shown = f"``{argument}``"
    sections = ("Args", "Attributes")
    return any(
        shown in _whole(text) or any(argument in text.names(section) for section in sections)
        for text in texts
    )


def _has_example(text: Docstring) -> bool:
    return ">>>" in _whole(text) or "::\n" in text.text or "Example" in text.sections


def _of_data(name: Name, texts: List[Docstring]) -> List[str]:
    if not set(_TENSORS) & set(_arguments(name)):
        return []
    found = "\n".join(map(_whole, texts))
    wanted = (("shapes", _SHAPE), ("dtypes", _DTYPE))
    return [f"the {what}" for what, pattern in wanted if not pattern.search(found)]


def _of_errors(name: Name, texts: List[Docstring]) -> List[str]:
    """A call with arguments can be wrong; one without cannot, as long as it says nothing."""
    if "." in name.name or not _arguments(name):
        return []
    tells = any("Raises" in one.sections or _ERRORS.search(_whole(one)) for one in texts)
    return [] if tells else ["the errors"]
