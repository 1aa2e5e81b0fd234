"""Figures of the guide, as SVG: each is drawn from a table of the page that shows it."""

from __future__ import annotations

import math
import pathlib
import re
from typing import Callable, Dict, List, NamedTuple, Sequence, Tuple

_ROOT = pathlib.Path(__file__).resolve().parents[2]
_BYTES_HEAD = "| hosts | a rank sends, the leader too | a leader that makes all sums |"
_PAGE = "examples/guide/benchmarks.md"
_WAITING_HEAD = (
    "| situation | `allreduce` | `eager` | `wagma` | `diloco:H=4` | `adpsgd` | `swarm` |"
)
_WAITING_ROWS = {
    "a rank stopped for 5 s": "one rank of 8 is stopped for 5 s: longest step of the others",
    "a host unplugged for 5 s": (
        "a host with two ranks is unplugged for 5 s: longest step of the others"
    ),
}
_MAX_WAIT_S = 1.0  # of the waiting rows

_WIDTH, _HEIGHT = 720, 400
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 204, 48, 48  # Margins; the right one has the names of lines.
_INK, _GRID = "#374151", "#e5e7eb"
_BARS = ("#2563eb", "#d97706")
_FONT = 'font-family="sans-serif" font-size="13"'


class Line(NamedTuple):
    """A line of a figure: its name, its colour, and its points (x, y)."""

    name: str
    colour: str
    points: Sequence[Tuple[float, float]]


def figures() -> Dict[str, str]:
    """Every figure, by its path in the repository."""
    return {
        "examples/guide/bytes_per_rank.svg": bytes_per_rank(_text_of(_PAGE)),
        "examples/guide/waiting_between_hosts.svg": waiting_between_hosts(_text_of(_PAGE)),
    }


def bytes_per_rank(page: str) -> str:
    """The bytes that a rank sends for a version against the number of hosts.

    Args:
        page: the text of the guide's page with the table: sums, in columns, by hosts.
    """
    rows = [[number(cell) for cell in row] for row in rows_of(page, _BYTES_HEAD)]
    colours = ("#2563eb", "#6b7280")
    names = ("any rank, the leader too", "a leader that makes all sums")
    lines = [
        Line(name, colour, [(row[0], row[1 + i]) for row in rows])
        for i, (name, colour) in enumerate(zip(names, colours))
    ]
    return drawn("Sums that a rank sends for a version, by the number of hosts", lines)


def waiting_between_hosts(page: str) -> str:
    """The longest step of the ranks without a fault, by method, while others have one.

    Args:
        page: the text of the guide's page with the table: seconds, in columns by method.

    Raises:
        ValueError: the table lacks a row that the figure shows.
    """
    rows = {row[0]: row[1:] for row in rows_of(page, _WAITING_HEAD)}
    lacking = [row for row in _WAITING_ROWS.values() if row not in rows]
    if lacking:
        raise ValueError(f"{_PAGE} has no row {lacking[0]}")
    methods = [name.strip(" `") for name in _WAITING_HEAD.strip("|").split("|")[1:]]
    bars = {name: [number(cell) for cell in rows[row]] for name, row in _WAITING_ROWS.items()}
    title = "Longest step of the other ranks in seconds, 4 hosts with 2 ranks each"
    return barred(title, methods, bars, (_MAX_WAIT_S, "max_wait"))


def _text_of(path: str) -> str:
    return (_ROOT / path).read_text(encoding="utf-8")


def rows_of(page: str, head: str) -> List[List[str]]:
    """The cells of the table under `head`.

    Raises:
        ValueError: the page has no such table.
    """
    if head not in page:
        raise ValueError(f"no page has a table with the head {head}")
    rows = []
    for line in page[page.index(head) :].splitlines()[2:]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip("|").split("|")])
    return rows


def number(cell: str) -> float:
    """The number in a cell, without its unit and its thousands' commas."""
    return float(re.sub(r"[^\d.]", "", cell))


def drawn(title: str, lines: Sequence[Line]) -> str:
    """Lines over logarithmic axes: powers of two from left to right, powers of ten upwards."""
    xs = sorted({x for line in lines for x, _ in line.points})
    top = 1.2 * max(y for line in lines for _, y in line.points)
    low = 10 ** math.floor(math.log10(min(y for line in lines for _, y in line.points)))
    right, bottom = _WIDTH - _RIGHT, _HEIGHT - _BOTTOM

    def scale(low: float, high: float, begin: float, end: float) -> Callable[[float], float]:
        return lambda v: begin + (end - begin) * math.log(v / low) / math.log(high / low)

    x_of, y_of = scale(xs[0], xs[-1], _LEFT, right), scale(low, top, bottom, _TOP)
    parts = _head(title)
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


def barred(
    title: str, names: Sequence[str], bars: Dict[str, List[float]], mark: Tuple[float, str]
) -> str:
    """A row for each name, with a bar of each kind, over a logarithmic axis.

    Args:
        names: of the rows, from above.
        bars: by kind the values, one for each name.
        mark: a value with a line of its own, and its name.
    """
    values = [value for kind in bars.values() for value in kind]
    low, high = 10 ** math.floor(math.log10(min(values))), 1.5 * max(values)
    left, right, bottom = _LEFT + 40, _WIDTH - _LEFT, _HEIGHT - _BOTTOM

    def x_of(value: float) -> float:
        return left + (right - left) * math.log(value / low) / math.log(high / low)

    parts = _head(title)
    for i in range(math.floor(math.log10(high / low)) + 1):
        x = x_of(low * 10**i)
        parts.append(f'<path d="M{x:.1f} {_TOP}V{bottom}" stroke="{_GRID}"/>')
        parts.append(_text(x, bottom + 18, f"{low * 10**i:g} s", _INK, "middle"))
    space = (bottom - _TOP) / len(names)
    thick = 0.8 * space / len(bars)
    for row, name in enumerate(names):
        top = _TOP + row * space + 0.1 * space
        parts.append(_text(left - 8, top + 0.4 * space + 4, name, _INK, "end"))
        for i, (kind, colour) in enumerate(zip(bars.values(), _BARS)):
            y, width = top + i * thick, x_of(kind[row]) - left
            size = f'x="{left}" y="{y:.1f}" width="{width:.1f}" height="{thick:.1f}"'
            parts.append(f'<rect {size} fill="{colour}"/>')
            label = f"{kind[row]:.2f}"
            parts.append(_text(left + width + 5, y + 0.5 * thick + 4, label, _INK, "start"))
    x = x_of(mark[0])
    parts.append(f'<path d="M{x:.1f} {_TOP - 6}V{bottom}" stroke="{_INK}" stroke-dasharray="4 3"/>')
    parts.append(_text(x, _TOP - 9, mark[1], _INK, "middle"))
    for i, (kind_name, colour) in enumerate(zip(bars, _BARS)):
        x, y = left + i * 220, bottom + 28
        parts.append(f'<rect x="{x}" y="{y}" width="12" height="12" fill="{colour}"/>')
        parts.append(_text(x + 18, y + 11, kind_name, _INK, "start"))
    return "\n".join([*parts, "</svg>"]) + "\n"


def _head(title: str) -> List[str]:
    """The first lines of a figure."""
    return [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" {_FONT}>',
        f"<title>{title}</title>",
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#ffffff"/>',
        f'<text x="{_LEFT}" y="24" fill="{_INK}" font-weight="bold">{title}</text>',
    ]


def _apart(ends: Sequence[float], least: float = 18) -> List[float]:
    """Heights of the names, each near the end of its line, none upon another."""
    placed: Dict[int, float] = {}
    for i in sorted(range(len(ends)), key=lambda i: -ends[i]):  # From below upwards.
        placed[i] = min([ends[i]] + [y - least for y in placed.values()])
    return [placed[i] for i in range(len(ends))]


def _text(x: float, y: float, text: str, colour: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" fill="{colour}" text-anchor="{anchor}">{text}</text>'
