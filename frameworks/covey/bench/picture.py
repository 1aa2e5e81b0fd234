"""A bench result as a picture. Needs matplotlib."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Sequence

from covey.bench.contest import IN_C, Row


WIDE = 30
"""From this ratio of the longest to the shortest on the axis is logarithmic."""


def merged(rows: Sequence[Row]) -> List[Row]:
    """One row per label, of several jobs: of a contestant that took part in each, the first."""
    found: Dict[str, Row] = {}
    for row in rows:
        whole = found.setdefault(row.label, Row(row.label, row.size_bytes))
        for name, turns in row.seconds.items():
            whole.seconds.setdefault(name, turns)
    return list(found.values())


def draw(about: Dict[str, Any], rows: Sequence[Row], path: str) -> Optional[str]:
    """Writes a picture. Returns why not, or None."""
    try:
        import matplotlib
    except ImportError:
        return "matplotlib is not installed"
    matplotlib.use("Agg")
    from matplotlib import pyplot

    together = merged(rows)
    one = len(together) > 1 and all(list(row.seconds) == list(together[0].seconds) for row in rows)
    panels = 1 if one else len(together)
    figure, grid = pyplot.subplots(
        panels, figsize=(9, 5 * panels), layout="constrained", squeeze=False
    )
    if one:
        _curves(grid[0][0], together)
    for (axes,), row in zip(grid, [] if one else together):
        _bars(axes, row)
    for (axes,) in grid:
        axes.grid(alpha=0.3)
    figure.suptitle(f"covey bench {about['bench']}, {about['ranks']} ranks")
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
    return None


def _curves(axes: Any, rows: Sequence[Row]) -> None:
    colours: Dict[str, str] = {}  # one each: a loop in C has its contestant's, dashed
    for name in rows[0].seconds:
        called = name.partition(IN_C)[0]
        style = "o-" if called == name else "o--"
        colour = colours.setdefault(called, f"C{len(colours)}")
        sizes = [row.size_bytes for row in rows]
        medians = [row.median(name) * 1e6 for row in rows]
        least = [row.minimum(name) * 1e6 for row in rows]
        axes.plot(sizes, medians, style, label=name, color=colour)
        axes.fill_between(sizes, least, medians, alpha=0.15, color=colour)
    axes.set(xscale="log", yscale="log", xlabel="bytes", ylabel="us (minimum to median)")
    axes.set_xticks([row.size_bytes for row in rows], [row.label for row in rows], rotation=30)
    axes.minorticks_off()
    axes.legend(fontsize="small", loc="center left", bbox_to_anchor=(1, 0.5))


def _bars(axes: Any, row: Row) -> None:
    names = list(row.seconds)[::-1]
    axes.barh(names, [row.median(name) * 1e3 for name in names], alpha=0.4, label="median")
    least = [row.minimum(name) * 1e3 for name in names]
    axes.barh(names, least, color="tab:blue", label="minimum", height=0.5)
    axes.set(xlabel="ms per step", title=row.label)
    medians = [row.median(name) for name in names]
    if max(medians) > WIDE * min(medians):
        axes.set_xscale("log")
    axes.legend(fontsize="small")
