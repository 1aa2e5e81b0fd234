"""How large classes are, in C++ and in Python. A struct is plain data: any number of fields."""

from __future__ import annotations

import ast
import re
from typing import Iterator, List, NamedTuple, Tuple

from tidy import source
from tidy.source import Finding

MEMBERS = 25
FUNCTIONS = 40

# What a later part of the design replaces as a whole: core/replicated/replica.h, the facade of
# rounds, and the step machine of the adapters.
EXEMPT = ("Replica", "RoundsPort", "Progress")

_CLASS = re.compile(r"\b(class|struct)\s+(?:\[\[\w+\]\]\s*)?(?:\w+::)*(\w+)[^;{}()=]*\{")
_NO_MEMBER = re.compile(r"\s*(?:using|typedef|friend|enum|class|struct|union|template|static_assert"
                        r"|static\s+constexpr|(?:inline\s+)?constexpr)\b")


class Size(NamedTuple):
    is_data: bool  # a struct
    name: str
    line: int
    members: int
    functions: int


def _statements(body: str) -> Iterator[str]:
    """Those of a class's own level; what stands in nested braces is left out."""
    depth, text = 0, ""
    for letter in body:
        if letter == "{":
            depth += 1
            text += "{" if depth == 1 else ""
        elif letter == "}":
            depth -= 1
            if depth == 0:
                text += "}"
                if text.strip() == "{}":  # The body, behind an initializer list with braces.
                    text = ""
                elif re.search(r"\)[^()]*\{\}$", text) and not _NO_MEMBER.match(text):
                    yield text  # A function with its body; an initializer goes on to its `;`.
                    text = ""
        elif depth == 0 and letter == ";":
            yield text
            text = ""
        elif depth == 0:
            text += letter


def _without_labels(text: str) -> str:
    return re.sub(r"\b(?:public|private|protected)\s*:", "", text)


def _is_function(text: str) -> bool:
    text = re.sub(r"^\s*template\s*<[^{}]*?>\s*(?=[\w\[])", "", text)
    if _NO_MEMBER.match(text):
        return False
    head = re.split(r"=(?!=)|\{", text.replace("operator==", "operatorEq"), maxsplit=1)[0]
    return re.search(r"[\w\])>]\s*\(", head) is not None and "std::function<" not in head


def cpp_sizes(text: str) -> Iterator[Size]:
    """The sizes of the classes in ``text``, C++ without comments and strings."""
    for match in _CLASS.finditer(text):
        if re.search(r"\benum\s*$", text[:match.start()]):
            continue
        depth, end = 1, match.end()
        while depth > 0 and end < len(text):
            depth += {"{": 1, "}": -1}.get(text[end], 0)
            end += 1
        members = functions = 0
        for statement in _statements(text[match.end():end - 1]):
            statement = _without_labels(statement)
            if not statement.strip():
                continue
            if _is_function(statement):
                functions += 1
            elif not _NO_MEMBER.match(statement):
                members += 1
        line = text.count("\n", 0, match.start()) + 1
        yield Size(match.group(1) == "struct", match.group(2), line, members, functions)


def _python_sizes(path: str) -> Iterator[Size]:
    for node in ast.walk(ast.parse(source.read(path))):
        if not isinstance(node, ast.ClassDef):
            continue
        functions: List[ast.AST] = [
            it for it in node.body if isinstance(it, (ast.FunctionDef, ast.AsyncFunctionDef))
        ]
        own = {
            it.attr
            for function in functions
            for it in ast.walk(function)
            if isinstance(it, ast.Attribute)
            and isinstance(it.ctx, ast.Store)
            and isinstance(it.value, ast.Name)
            and it.value.id == "self"
        }
        yield Size(False, node.name, node.lineno, len(own), len(functions))


def _sizes() -> Iterator[Tuple[str, Size]]:
    for path in source.files(".cc", ".h"):
        yield from ((path, size) for size in cpp_sizes(source.code(path)))
    for path in source.files(".py"):
        yield from ((path, size) for size in _python_sizes(path))


def too_large() -> Iterator[Finding]:
    """Classes with more than 25 data members or 40 functions, outside of tests."""
    for path, size in _sizes():
        if path.startswith("tests/") or size.name in EXEMPT:
            continue
        members = 0 if size.is_data else size.members
        for number, most, what in ((members, MEMBERS, "data members"),
                                   (size.functions, FUNCTIONS, "functions")):
            if number > most:
                yield Finding("class size", path, size.line,
                              f"{size.name} has {number} {what}, {most} are allowed: it holds a "
                              "second noun", number - most)
