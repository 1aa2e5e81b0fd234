"""The figures of `covey bench waiting` as a table, as JSON and as a picture."""

from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Optional

import covey


class Line(NamedTuple):
    """One figure.

    Attributes:
        name: the contestant.
        value: the measured figure.
        wanted: the figure to reach; None of a method that is there for contrast.
        bound: the best possible figure; None where that is not another number than `wanted`.
        busy: processor time in parts of the cores.
        raw: the measurements behind it.
    """

    name: str
    value: float
    wanted: Optional[float]
    bound: Optional[float]
    busy: float
    raw: Dict[str, Any]


class Panel(NamedTuple):
    """A question and its figures. `less`: whether what is wanted is at most that."""

    title: str
    unit: str
    less: bool
    lines: List[Line]


def table(about: Dict[str, Any], panels: List[Panel]) -> List[str]:
    """Lines for a person."""
    lines = [f"waiting: {about['cores']} cores, covey {covey.__version__}; sleeping stands for "
             "computing; methods as they are by default"]
    for panel in panels:
        lines.append(f"{panel.title}; {panel.unit}")
        for line in panel.lines:
            sign = "<=" if panel.less else ">="
            wanted, missed = " " * 16, ""
            if line.wanted is not None:
                holds = line.value <= line.wanted if panel.less else line.value >= line.wanted
                wanted, missed = f"wanted {sign} {line.wanted:6.2f}", "" if holds else "  MISSED"
            bound = f"  possible {line.bound:6.2f}" if line.bound is not None else ""
            lines.append(f"  {line.name:12}{line.value:7.2f}  {wanted}{bound}"
                         f"  cores busy {line.busy:4.0%}{missed}")
    return lines


def as_json(about: Dict[str, Any], panels: List[Panel]) -> Dict[str, Any]:
    """Everything, the length of each step in seconds."""
    found = [{**panel._asdict(), "lines": [line._asdict() for line in panel.lines]}
             for panel in panels]
    return {**about, "panels": found}


def draw(panels: List[Panel], path: str) -> Optional[str]:
    """Writes a picture. Returns why not, or None."""
    try:
        import matplotlib
    except ImportError:
        return "matplotlib is not installed"
    matplotlib.use("Agg")
    from matplotlib import pyplot

    size = (8, 2.6 * len(panels))
    figure, rows = pyplot.subplots(len(panels), figsize=size, layout="constrained")
    for axes, panel in zip(rows, panels):
        places = range(len(panel.lines))
        axes.barh(places, [line.value for line in panel.lines], color="tab:blue", alpha=0.6)
        for at, colour, label in (
            ([line.wanted for line in panel.lines], "tab:red", "wanted"),
            ([line.bound for line in panel.lines], "black", "possible at most"),
        ):
            there = [place for place in places if at[place] is not None]
            if there:
                low, high = [p - 0.4 for p in there], [p + 0.4 for p in there]
                axes.vlines([at[p] for p in there], low, high, colour, label=label)
        axes.set_yticks(places, [line.name for line in panel.lines])
        axes.invert_yaxis()
        axes.set_title(panel.title, fontsize="medium")
        axes.set(xlabel=panel.unit)
        axes.grid(axis="x", alpha=0.3)
        axes.legend(fontsize="small", loc="lower left")
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
    return None
