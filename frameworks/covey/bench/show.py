"""A bench result as a table, as JSON and as a picture."""

from __future__ import annotations

import json
import os
import platform
import time
from typing import Any, Dict, List, Optional, Sequence

from covey.bench.contest import Row


def describe(kind: str, ranks: int) -> Dict[str, Any]:
    """What has to be known to read the figures. Call it before measuring."""
    return {
        "bench": kind,
        "ranks": ranks,
        "cores": len(os.sched_getaffinity(0)),
        "machine": platform.machine(),
        "system": platform.release(),
        "when": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "load": round(os.getloadavg()[0], 2),
    }


def _time(seconds: float) -> str:
    if seconds < 1e-3:
        return f"{seconds * 1e6:.1f} us"
    return f"{seconds * 1e3:.2f} ms"


def _aligned(cells: List[List[str]]) -> List[str]:
    """Rows of cells as lines: the first column to the left, the others to the right."""
    widths = [max(len(line[i]) for line in cells) for i in range(len(cells[0]))]
    lines = []
    for line in cells:
        rest = [cell.rjust(width) for cell, width in zip(line[1:], widths[1:])]
        lines.append("  ".join([line[0].ljust(widths[0]), *rest]).rstrip())
    return lines


def _times(row: Row, name: str) -> str:
    return f"{_time(row.minimum(name))} / {_time(row.median(name))}"


def _ratio(row: Row, name: str, named: bool) -> str:
    ratio = row.ratio(name)
    if ratio is None:
        return ""
    return f"{ratio:.2f} x {row.bases[name]}" if named else f"x{ratio:.2f}"


def table(about: Dict[str, Any], versions: Dict[str, str], rows: Sequence[Row]) -> List[str]:
    """Lines for a person: minimum / median, and the median ratio to the base."""
    libraries = ", ".join(f"{name}: {version}" for name, version in versions.items())
    lines = [
        f"{about['bench']}: {about['ranks']} ranks on {about['cores']} cores; minimum / median",
        libraries,
    ]
    if about["load"] > 0.5 * about["cores"]:
        lines.append(f"the machine was busy already (load {about['load']}): distrust the figures")
    names = list(rows[0].seconds)
    if len(rows) == 1:
        (row,) = rows
        lines.append(f"{row.label}; a barrier takes {_time(min(row.barrier_s))}")
        cells = [[name, _times(row, name), _ratio(row, name, True)] for name in names]
        return lines + _aligned(cells)
    cells = [["", *names, "barrier"]]
    for row in rows:
        columns = [f"{_times(row, name)} {_ratio(row, name, False)}".strip() for name in names]
        cells.append([row.label, *columns, _time(min(row.barrier_s))])
    return lines + _aligned(cells)


def as_json(about: Dict[str, Any], rows: Sequence[Row]) -> str:
    """Everything, samples included; times in microseconds."""
    found = []
    for row in rows:
        contestants = {
            name: {
                "min_us": round(row.minimum(name) * 1e6, 3),
                "median_us": round(row.median(name) * 1e6, 3),
                "samples_us": [[round(s * 1e6, 3) for s in turn] for turn in turns],
            }
            for name, turns in row.seconds.items()
        }
        found.append(
            {
                "label": row.label,
                "size_bytes": row.size_bytes,
                "barrier_us": [round(s * 1e6, 3) for s in row.barrier_s],
                "contestants": contestants,
            }
        )
    return json.dumps({**about, "rows": found}, indent=1) + "\n"


def draw(about: Dict[str, Any], rows: Sequence[Row], path: str) -> Optional[str]:
    """Writes a picture. Returns why not, or None."""
    try:
        import matplotlib
    except ImportError:
        return "matplotlib is not installed"
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 4.5), layout="constrained")
    if len(rows) > 1:
        for name in rows[0].seconds:
            sizes = [row.size_bytes for row in rows]
            medians = [row.median(name) * 1e6 for row in rows]
            least = [row.minimum(name) * 1e6 for row in rows]
            (line,) = axes.plot(sizes, medians, "o-", label=name)
            axes.fill_between(sizes, least, medians, alpha=0.2, color=line.get_color())
        axes.set(xscale="log", yscale="log", xlabel="bytes", ylabel="us (minimum to median)")
        axes.set_xticks([row.size_bytes for row in rows], [row.label for row in rows], rotation=30)
        axes.minorticks_off()
        axes.legend()
    else:
        names = [name for name in rows[0].seconds][::-1]
        medians = [rows[0].median(name) * 1e3 for name in names]
        least = [rows[0].minimum(name) * 1e3 for name in names]
        axes.barh(names, medians, color="tab:blue", alpha=0.4, label="median")
        axes.barh(names, least, color="tab:blue", label="minimum", height=0.5)
        axes.set(xlabel="ms per step", title=rows[0].label)
        axes.legend()
    axes.grid(alpha=0.3)
    figure.suptitle(f"covey bench {about['bench']}, {about['ranks']} ranks")
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
    return None
