"""Adapters over core/api/covey_trainer.h: they copy and update, and know no method. What is not in
docstrings and comments names none, and no thread and no time-out."""

from __future__ import annotations

import ast
import pathlib
import re
from typing import Iterator, Set

from tidy import source
from tidy.source import Finding

ADAPTERS = (
    "frameworks/covey/keras/torch_optimizer.py",
    "frameworks/covey/keras/torch_trainer.py",
    "frameworks/covey/keras/wrapped.py",
    "frameworks/covey/numpy_trainer.py",
    "frameworks/covey/tensorflow/optimizer.py",
    "frameworks/covey/tensorflow/trainer.py",
    "frameworks/covey/torch/trainer/core_trainer.py",
    "frameworks/covey/torch/trainer/mixed.py",
    "frameworks/covey/torch/trainer/model_exchange.py",
    "frameworks/covey/torch/trainer/actions.py",
    "frameworks/covey/torch/trainer/version_gradients.py",
    "frameworks/covey/trainer_loop.py",
)
_BANNED = {"threading", "Thread", "timeout", "timeout_s", "max_wait", "max_wait_s"}


def methods() -> Set[str]:
    """The names of Covey's methods: each has a file."""
    return {pathlib.Path(path).stem for path in source.files(".cc")
            if path.startswith("ops/methods/")}


def _docstrings(tree: ast.AST) -> Set[int]:
    """The nodes, by identity, that are docstrings."""
    return {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }


def _words(node: ast.AST) -> Set[str]:
    """The identifiers and words of a node."""
    if isinstance(node, ast.Name):
        return {node.id}
    if isinstance(node, ast.Attribute):
        return {node.attr}
    if isinstance(node, (ast.arg, ast.keyword)):
        return {node.arg or ""}
    if isinstance(node, ast.alias):
        return set(node.name.split("."))
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return set(re.findall(r"\w+", node.value))
    return set()


def found_in(path: str, text: str) -> Iterator[Finding]:
    """The offences of one adapter."""
    tree = ast.parse(text)
    documented, banned = _docstrings(tree), _BANNED | methods()
    for node in ast.walk(tree):
        for word in sorted(_words(node) & banned) if id(node) not in documented else ():
            yield Finding("adapter", path, getattr(node, "lineno", 1),
                          f"{word} is the core's affair: an adapter does the actions it is given")


def know_no_method() -> Iterator[Finding]:
    """Of all adapters."""
    for path in ADAPTERS:
        yield from found_in(path, source.read(path))
