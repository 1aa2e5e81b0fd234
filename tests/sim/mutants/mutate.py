"""Writes copies of source files in which a variable takes one rule away.

    mutate.py OUT PATH MUTANT...               the file at PATH with all these mutants
    mutate.py OUT --table NAME=FOCUS=SEEDS...  the variables themselves, see mutants.h
    mutate.py OUT --switches NAME...           the same in C: the environment says which is true

A mutant is a text: a comment says which rule it removes; `@@ path` begins a file, `@@ path N` one
in which the text occurs N times; then lines of `-` are to be found there, as they stand, and
replaced by the lines of `+` below them. A text that is not found just so is an error: a change of
the source comes with one of the mutant.

Each function that a mutant changes has its changed body in front of its own, behind
`if (mutant_NAME)`: so one build holds all mutants, and with no variable set it is the source.
Elsewhere, as in a list of initialisers, the lines of `+` ask for the variable themselves, and are
there in every case.
"""

from __future__ import annotations

import pathlib
import re
import sys
from typing import Dict, List, NamedTuple

_NO_VALUE = re.compile(r"(?:static |inline )*void\b|(\w+)::~?\1\(")


class Change(NamedTuple):
    """`old` occurs `count` times in `path` and becomes `new`."""

    path: str
    count: int
    old: str
    new: str


class Body(NamedTuple):
    """The lines of a function between its braces."""

    returns: bool  # a value
    begin: int  # lines of the source
    end: int
    text: str


def read_changes(mutant: str) -> List[Change]:
    """The changes of a mutant's text."""
    changes = []
    path, count, old, new = "", 1, "", ""
    for line in mutant.splitlines() + ["@@ end"]:
        begins = line.startswith("@@ ") or (line.startswith("-") and new)
        if begins and old:
            changes.append(Change(path, count, old, new))
            old, new = "", ""
        if line.startswith("@@ "):
            words = line.split()
            path, count = words[1], int(words[2]) if len(words) > 2 else 1
        elif line.startswith("-"):
            old += line[1:] + "\n"
        elif line.startswith("+"):
            new += line[1:] + "\n"
        elif not line.startswith("#") and line:
            raise ValueError(f"neither comment, path, old nor new: {line}")
    return changes


def bodies_of(text: str) -> List[Body]:
    """The bodies of the functions, as clang-format lays them out: the first and the last line of
    a function begin in the first column, and the last is a brace."""
    bodies = []
    lines = text.splitlines(keepends=True)
    head = 0
    for at, line in enumerate(lines):
        if re.match(r"[\w\[~:<]", line) and not line.startswith(("template", "namespace")):
            head = at
        if line != "}\n" or not re.match(r".*\w.*\(", lines[head]):
            continue
        begin = head
        while not lines[begin].endswith("{\n"):
            begin += 1
        returns = _NO_VALUE.match(lines[head]) is None
        bodies.append(Body(returns, begin + 1, at, "".join(lines[begin + 1 : at])))
    return bodies


def replaced(text: str, change: Change) -> str:
    """The text with the change."""
    found = text.count(change.old)
    if found != change.count:
        raise ValueError(f"{change.path} has {found} times, not {change.count}:\n{change.old}")
    return text.replace(change.old, change.new)


def mutate(text: str, changes: List[Change]) -> List[str]:
    """The changed bodies, in their order."""
    bodies = [body.text for body in bodies_of(text)]
    for change in changes:
        text = replaced(text, change)
        if sum(body.count(change.old) for body in bodies) != change.count:
            raise ValueError(f"not in the body of a function of {change.path}:\n{change.old}")
        bodies = [body.replace(change.old, change.new) for body in bodies]
    return bodies


def merge(text: str, mutants: Dict[str, List[str]], is_c: bool) -> str:
    """The source with all mutants. `mutants`: their bodies, by name."""
    scope = "covey::" if 'extern "C" {' in text and not is_c else ""
    lines = text.splitlines(keepends=True)
    for index, body in reversed(list(enumerate(bodies_of(text)))):
        ways = []
        for name, bodies in mutants.items():
            if bodies[index] != body.text:
                end = "" if body.returns else "return;\n"
                ways.append(f"if ({scope}mutant_{name}) {{\n{bodies[index]}{end}}}\n")
        lines[body.begin : body.begin] = ways
    variables = "".join(f"extern bool mutant_{name};\n" for name in mutants)
    if is_c:
        return "#include <stdbool.h>\n" + variables + "".join(lines)
    return f"namespace covey {{\n{variables}}}\n" + "".join(lines)


def table(rows: List[str]) -> str:
    """The variables, and what is known of each mutant."""
    variables = lines = ""
    for name, focus, seeds in (row.split("=") for row in rows):
        variables += f"bool mutant_{name} = false;\n"
        lines += f'    {{"{name}", "{focus}", {{{seeds}}}, &mutant_{name}}},\n'
    return (
        f'#include "tests/sim/mutants/mutants.h"\n\nnamespace covey {{\n{variables}\n'
        f"const std::vector<Mutant> kMutants = {{\n{lines}}};\n}}\n"
    )


def switches(names: List[str]) -> str:
    """The variables, in C."""
    variables = "".join(f"bool mutant_{name};\n" for name in names)
    choices = "".join(f'  mutant_{name} = strcmp(chosen, "{name}") == 0;\n' for name in names)
    return (
        "#include <stdbool.h>\n#include <stdlib.h>\n#include <string.h>\n"
        f"{variables}__attribute__((constructor)) static void Choose(void) {{\n"
        f'  const char* chosen = getenv("MUTANT");\n  if (chosen == NULL) return;\n{choices}}}\n'
    )


def mutated(path: str, mutants: List[str]) -> str:
    """The source at `path` with all these mutants."""
    text = pathlib.Path(path).read_text(encoding="utf-8")
    changes: Dict[str, List[Change]] = {}
    for mutant in mutants:
        name = pathlib.Path(mutant).stem
        mine = read_changes(pathlib.Path(mutant).read_text(encoding="utf-8"))
        changes[name] = []
        for change in (change for change in mine if change.path == path):
            if f"mutant_{name}" in change.new:
                text = replaced(text, change)
            else:
                changes[name].append(change)
    bodies = {name: mutate(text, mine) for name, mine in changes.items()}
    return merge(text, bodies, path.endswith(".c"))


def main(out: str, path: str, mutants: List[str]) -> None:
    """Writes the file OUT."""
    made = {"--table": table, "--switches": switches}
    text = made[path](mutants) if path in made else mutated(path, mutants)
    pathlib.Path(out).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    try:
        main(sys.argv[1], sys.argv[2], sys.argv[3:])
    except ValueError as error:
        sys.exit(f"a mutant no longer applies: {error}")
