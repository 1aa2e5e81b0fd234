"""Figures of the guide, as SVG: each is drawn from a table of the page that shows it."""

from __future__ import annotations

import math
import pathlib
import re
from typing import Callable, Dict, List, NamedTuple, Sequence, Tuple

_ROOT = pathlib.Path(__file__).resolve().parents[2]
_PAGE = "examples/guide/clusters.md"
_HEAD = "| hosts | a rank sends, the leader too | a leader that makes all sums |"

_WIDTH, _HEIGHT = 720, 400
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 204, 48, 48  # Margins; the right one has the names of lines.
_INK, _GRID = "#374151", "#e5e7eb"
_FONT = 'font-family="sans-serif" font-size="13"'


class Line(NamedTuple):
    """A line of a figure: its name, its colour, and its points (x, y)."""

    name: str
    colour: str
    points: Sequence[Tuple[float, float]]


def figures() -> Dict[str, str]:
    """Every figure, by its path in the repository."""
    page = (_ROOT / _PAGE).read_text(encoding="utf-8")
    return {"examples/guide/bytes_per_rank.svg": bytes_per_rank(page)}


def bytes_per_rank(page: str) -> str:
    """The bytes that a rank sends for a version against the number of hosts.

    Args:
        page: the text of the guide's page with the table: sums, in columns, by hosts.
    """
    rows = rows_of(page, _HEAD)
    colours = ("#2563eb", "#6b7280")
    names = ("any rank, the leader too", "a leader that makes all sums")
    lines = [
        Line(name, colour, [(row[0], row[1 + i]) for row in rows])
        for i, (name, colour) in enumerate(zip(names, colours))
    ]
    return drawn("Sums that a rank sends for a version, by the number of hosts", lines)


def rows_of(page: str, head: str) -> List[List[float]]:
    """The numbers of the table under `head`, without units and thousands' commas.

    Raises:
        ValueError: the page has no such table.
    """
    if head not in page:
        raise ValueError(f"{_PAGE} has no table with the head {head}")
    rows = []
    for line in page[page.index(head) :].splitlines()[2:]:
        if not line.startswith("|"):
            break
        cells = line.replace(",", "").strip("|").split("|")
        rows.append([float(re.sub(r"[^\d.]", "", cell)) for cell in cells])
    return rows


def drawn(title: str, lines: Sequence[Line]) -> str:
    """Lines over logarithmic axes: powers of two from left to right, powers of ten upwards."""
    xs = sorted({x for line in lines for x, _ in line.points})
    top = 1.2 * max(y for line in lines for _, y in line.points)
    low = 10 ** math.floor(math.log10(min(y for line in lines for _, y in line.points)))
    right, bottom = _WIDTH - _RIGHT, _HEIGHT - _BOTTOM

    def scale(low: float, high: float, begin: float, end: float) -> Callable[[float], float]:
        return lambda v: begin + (end - begin) * math.log(v / low) / math.log(high / low)

    x_of, y_of = scale(xs[0], xs[-1], _LEFT, right), scale(low, top, bottom, _TOP)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" {_FONT}>',
        f"<title>{title}</title>",
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#ffffff"/>',
        f'<text x="{_LEFT}" y="24" fill="{_INK}" font-weight="bold">{title}</text>',
    ]
    for power in range(math.floor(math.log10(top / low)) + 1):
        value = low * 10**power
        y = y_of(value)
        parts.append(f'<path d="M{_LEFT} {y:.1f}H{right}" stroke="{_GRID}"/>')
        parts.append(_text(_LEFT - 8, y + 4, f"{value:,g}", _INK, "end"))
    for x in xs:
        parts.append(_text(x_of(x), bottom + 20, f"{x:,.0f}", _INK, "middle"))
    parts.append(_text((_LEFT + right) / 2, bottom + 40, "hosts, a rank on each", _INK, "middle"))
    for line, y in zip(lines, _apart([y_of(line.points[-1][1]) for line in lines])):
        points = " ".join(f"{x_of(a):.1f},{y_of(b):.1f}" for a, b in line.points)
        parts.append(
            f'<polyline points="{points}" fill="none" stroke="{line.colour}" stroke-width="2"/>'
        )
        parts.append(_text(right + 8, y + 4, line.name, line.colour, "start"))
    return "\n".join([*parts, "</svg>"]) + "\n"


def _apart(ends: Sequence[float], least: float = 18) -> List[float]:
    """Heights of the names, each near the end of its line, none upon another."""
    placed: Dict[int, float] = {}
    for i in sorted(range(len(ends)), key=lambda i: -ends[i]):  # From below upwards.
        placed[i] = min([ends[i]] + [y - least for y in placed.values()])
    return [placed[i] for i in range(len(ends))]


def _text(x: float, y: float, text: str, colour: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" fill="{colour}" text-anchor="{anchor}">{text}</text>'
