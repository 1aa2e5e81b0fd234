"""The rules of the protocol: core/PROTOCOL.md, the comments that name them, the mutants that remove
them. Each of the three knows the others."""

from __future__ import annotations

import functools
import pathlib
import re
import sys
from typing import Dict, Iterator, List, Set, Tuple

from tidy import source
from tidy.source import Finding

sys.path.insert(0, str(source.ROOT / "tests/sim/mutants"))
import mutate  # noqa: E402

PAGE = "core/PROTOCOL.md"
ABOVE = 3  # lines above a change within which the rule is named
_MODULES = ("agree", "api", "base", "codec", "device", "engine", "gossip", "kernels", "method",
            "native", "neighbors", "partial", "plan", "replicated", "run", "shm", "train",
            "transport")
_ID = re.compile(rf"\b(?:{'|'.join(_MODULES)})-[A-Z]\d{{1,2}}[a-z]?\b")
_BARE = re.compile(r"(?<![\w.-])[A-Z]\d{1,2}[a-z]?\b(?![\w.]*\()")
_DEFINED = re.compile(r"\*\*(\S+?)\*\*")
_GUARD = re.compile(r"`([\w/.]+)`")
_GUARDED_BY = "*Guarded by:*"
_MUTANTS = ("tests/sim/mutants/", "tests/mutants/", "tests/orders/mutants/")
_CODE = ("core/", "ops/", "frameworks/native/")
_HISTORY = re.compile(r"\b(?:Corrected|Added):")


@functools.lru_cache(maxsize=None)
def _page() -> Dict[str, Tuple[int, str]]:
    """Rule -> the line where core/PROTOCOL.md says it, and the paragraph it stands in."""
    found: Dict[str, Tuple[int, str]] = {}
    lines = source.lines(PAGE) + ("",)
    begin = 0
    for number, line in enumerate(lines):
        if line.startswith("  "):
            continue
        text = " ".join(line.strip() for line in lines[begin:number])
        for match in _DEFINED.finditer(text) if text.startswith("- **") else ():
            found[match.group(1)] = (begin + 1, text)
        begin = number
    return found


def _guards(text: str) -> List[str]:
    """The mutants and tests that a rule's paragraph names."""
    return _GUARD.findall(text.partition(_GUARDED_BY)[2])


@functools.lru_cache(maxsize=None)
def _mutants() -> Dict[str, str]:
    """Mutant -> the path of its text."""
    return {pathlib.Path(path).stem: path for path in source.files(".txt")
            if path.startswith(_MUTANTS)}


def _comments() -> Iterator[Tuple[str, int, str]]:
    """Path, number and text of the comments of each line of the code that has rules."""
    for path in source.files(*source.CPP):
        if path.startswith(_CODE):
            for number, line in enumerate(source.comments(path), 1):
                if line.strip():
                    yield path, number, line


def changed_lines(text: str, change: mutate.Change) -> List[int]:
    """The lines that a change of a mutant begins with, in the file of this text."""
    old, new = change.old.splitlines(), change.new.splitlines()
    same = 0
    while same < min(len(old) - 1, len(new)) and old[same] == new[same]:
        same += 1
    return [source.line_of(text, match.start()) + same
            for match in re.finditer(re.escape(change.old), text)]


def near_mutants() -> Iterator[Finding]:
    """Lines that mutants change, without the rule that the mutant guards close above them."""
    guarded = {name: rule for rule, (_, text) in _page().items() for name in _guards(text)}
    for name, path in _mutants().items():
        rule = guarded.get(name, "")
        for change in mutate.read_changes(source.read(path)):
            if change.path not in source.files(*source.CPP):
                yield Finding("mutant", path, 1, f"there is no {change.path}")
                continue
            comments = source.comments(change.path)
            numbers = changed_lines(source.read(change.path), change)
            if len(numbers) != change.count:
                yield Finding("mutant", path, 1, f"no longer applies to {change.path}")
            for line in numbers:
                near = " ".join(comments[max(0, line - 1 - ABOVE) : line])
                if rule not in _ID.findall(near):
                    yield Finding("rule id", change.path, line, f"the mutant {name} changes this: "
                                  f"say in a comment within {ABOVE} lines above, by name, why "
                                  f"{rule or 'its rule'} of {PAGE} holds")


def of_page() -> Iterator[Finding]:
    """Rules that core/PROTOCOL.md does not say, mutants that it does not name just once, and rules
    without a guard or a motive."""
    rules, mutants = _page(), _mutants()
    for path, number, line in _comments():
        for match in _ID.finditer(line):
            if match.group() not in rules:
                yield Finding("rule", path, number, f"{PAGE} has no {match.group()}")
    named: Set[str] = set()
    for line, text in sorted(set(rules.values())):
        if "*Why" not in text or not _guards(text):
            yield Finding("rule", PAGE, line, "a rule without its motive, or without a guard")
        for name in _guards(text):
            if name in named & mutants.keys():
                yield Finding("mutant", PAGE, line, f"{name} guards another rule, too")
            is_test = any((source.ROOT / (name + end)).exists() for end in ("", ".cc", ".py"))
            if name not in mutants and not is_test:
                yield Finding("mutant", PAGE, line, f"there is no mutant or test {name}")
            named.add(name)
    for name in sorted(mutants.keys() - named):
        yield Finding("mutant", mutants[name], 1, f"no rule of {PAGE} names {name}")
    for rule, (line, _) in rules.items():
        if not _ID.fullmatch(rule):
            yield Finding("rule", PAGE, line, f"{rule} does not begin with a module")


def bare() -> Iterator[Finding]:
    """Rules named without their module: another module has one of the same letter and number."""
    short = {rule.split("-", 1)[1] for rule in _page()}
    for path, number, line in _comments():
        for match in _BARE.finditer(line):
            if match.group() in short:
                yield Finding("rule", path, number, f"{match.group()}: of which module?")


def history() -> Iterator[Finding]:
    """Texts that correct or complete an earlier text, which no reader has."""
    for path in source.files(".md", *source.CPP):
        lines = source.lines(path) if path.endswith(".md") else source.comments(path)
        for number, line in enumerate(lines if path.startswith("core/") else (), 1):
            if _HISTORY.search(line):
                yield Finding("history", path, number, "say the rule as it is now: what it was "
                              "before stands in git")
