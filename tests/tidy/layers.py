"""The folders of core as layers, from what their files include; and units, which are a header and
its .cc. Run as a program it draws the picture of core/README.md anew."""

from __future__ import annotations

import functools
import pathlib
import re
import sys
from typing import Dict, Iterator, List, Set

if __name__ == "__main__":
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from tidy import includes, source
from tidy.source import Finding

README = "core/README.md"
DEEPEST = 10  # headers above each other that a .cc includes
FOLDERS, ARROWS, LAYERS = 13, 50, 8
_PICTURE = re.compile(r"(?<=```layers\n).*?(?=```)", re.DOTALL)
_CODE = ("core/", "ops/", "frameworks/")


@functools.lru_cache(maxsize=None)
def _included(path: str) -> List[str]:
    """Our files that it includes."""
    return [name for _, name, _ in includes.includes(path) if (source.ROOT / name).is_file()]


def arrows() -> Dict[str, Set[str]]:
    """Folder of core -> the folders of core that its files include."""
    found: Dict[str, Set[str]] = {}
    for path in source.files(".h", ".cc"):
        if path.startswith("core/"):
            own = path.split("/")[1]
            for name in _included(path):
                if name.startswith("core/") and name.split("/")[1] != own:
                    found.setdefault(own, set()).add(name.split("/")[1])
                    found.setdefault(name.split("/")[1], set())
    return found


def picture() -> str:
    """A line for each layer, the highest first: its folders, and what each includes."""
    graph = arrows()

    @functools.lru_cache(maxsize=None)
    def height(folder: str) -> int:
        return max((1 + height(other) for other in graph[folder]), default=0)

    lines = []
    for layer in range(max(map(height, graph)), -1, -1):
        for folder in sorted(folder for folder in graph if height(folder) == layer):
            below = sorted(graph[folder], key=lambda other: (-height(other), other))
            lines.append(f"{layer} {folder:10} -> {' '.join(below)}".rstrip(" ->"))
    return "\n".join(lines) + "\n"


def folders() -> Iterator[Finding]:
    """Folders of core that include each other, too many of them, or drawn otherwise."""
    graph = arrows()
    circle = includes.circle(graph)
    if circle:
        yield Finding("layers", README, 1, f"core's folders include each other: {circle}")
        return
    drawn = picture()
    count = sum(map(len, graph.values()))
    layers = 1 + int(drawn.split()[0])
    for what, number, most in (("folders", len(graph), FOLDERS), ("arrows", count, ARROWS),
                               ("layers", layers, LAYERS)):
        if number > most:
            yield Finding("layers", README, 1, f"core has {number} {what}, {most} are allowed")
    known = _PICTURE.search(source.read(README))
    if known is None or known.group() != drawn:
        yield Finding("layers", README, 1, "`python tests/tidy/layers.py` draws core's layers anew")


def units() -> Iterator[Finding]:
    """Units that include each other: foo.{h,cc} needs bar.h, and bar.{h,cc} foo.h."""
    graph: Dict[str, Set[str]] = {}
    for path in source.files(*source.CPP):
        if path.startswith(_CODE):
            own = path.rsplit(".", 1)[0]
            others = {name.rsplit(".", 1)[0] for name in _included(path)}
            graph.setdefault(own, set()).update(others - {own})
    circle = includes.circle(graph)
    if circle:
        yield Finding("units", circle[0] + ".h", 1, f"include each other: {' '.join(circle)}: "
                      "move what they have in common to a third")


def depths() -> Iterator[Finding]:
    """What a .cc includes lies above too many headers, each of which includes the next."""

    @functools.lru_cache(maxsize=None)
    def depth(path: str) -> int:
        return max((1 + depth(name) for name in _included(path)), default=0)

    for path in source.files(".cc", ".c"):
        if path.startswith(_CODE) and depth(path) > DEEPEST:
            yield Finding("depth", path, 1, f"includes {depth(path)} levels of headers, {DEEPEST} "
                          "are allowed: name a class instead of including it")


if __name__ == "__main__":
    file = source.ROOT / README
    file.write_text(_PICTURE.sub(lambda _: picture(), file.read_text("utf-8")), encoding="utf-8")
