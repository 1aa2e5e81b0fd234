"""A bench result as a table and as JSON."""

from __future__ import annotations

import json
import os
import platform
import statistics
import time
from typing import Any, Dict, List, Optional, Sequence

from covey.bench.contest import Row
from covey.bench.on_hosts import Where
from covey.bench.ratio import CONFIDENCE


def describe(kind: str, ranks: int, where: Optional[Where] = None) -> Dict[str, Any]:
    """The facts needed to read the figures. Call it before measuring. Cores and load are of this
    host, also where the ranks are on several ones."""
    return {
        "bench": kind,
        "ranks": ranks,
        **({} if where is None else where._asdict()),
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
    """Rows of cells as lines: the first and the last column to the left, the others right."""
    widths = [max(len(line[i]) for line in cells) for i in range(len(cells[0]))]
    lines = []
    for line in cells:
        middle = [cell.rjust(width) for cell, width in zip(line[1:-1], widths[1:])]
        lines.append("  ".join([line[0].ljust(widths[0]), *middle, line[-1]]).rstrip())
    return lines


def _ratio(row: Row, name: str) -> str:
    ratio = row.ratio(name)
    if ratio is None:
        return ""
    return f"{ratio.value:.2f} [{ratio.low:.2f}, {ratio.high:.2f}] x {row.bases[name]}"


def _last_column(row: Row, name: str) -> str:
    rate = row.gigabytes_per_s(name)
    words = [] if rate is None else [f"{rate:.3g} GB/s"]
    return ", ".join([*words, *filter(None, [_ratio(row, name)])])


def calibration(row: Row) -> str:
    """The state of the machine while the row was measured."""
    words = [f"a barrier {_time(min(row.barrier_s))}"]
    if max(row.flag_s) > 0:
        least, median = min(row.flag_s), statistics.median(row.flag_s)
        words.insert(0, f"a flag {least * 1e9:.0f} / {median * 1e9:.0f} ns")
    return ", ".join(words)


def table(about: Dict[str, Any], versions: Dict[str, str], rows: Sequence[Row]) -> List[str]:
    """Lines for a person: each contestant's minimum and median, and the ratio of medians to its
    base with a confidence interval; beside a workload its calibration."""
    where = f"{about['cores']} cores"
    if "hosts" in about:
        where = f"{about['hosts']} ({about['security']}; this host has {where})"
    libraries = ", ".join(f"{name}: {version}" for name, version in versions.items())
    ranks = f"{about['ranks']} rank{'s' * (about['ranks'] != 1)}"
    lines = [
        f"{about['bench']}: {ranks} on {where}; minimum / median, "
        f"ratio of medians [{CONFIDENCE:.0%} interval]",
        libraries,
    ]
    if about["load"] > 0.5 * about["cores"]:
        lines.append(f"the machine was busy already (load {about['load']}): distrust the figures")
    cells = [
        [
            "  " + name,
            _time(row.minimum(name)),
            "/",
            _time(row.median(name)),
            _last_column(row, name),
        ]
        for row in rows
        for name in row.seconds
    ]
    aligned = iter(_aligned(cells))
    for row in rows:
        lines.append(f"{row.label}; {calibration(row)}")
        lines += [next(aligned) for _ in row.seconds]
        lines += row.notes
    return lines


def _ratio_json(row: Row, name: str) -> Dict[str, Any]:
    ratio = row.ratio(name)
    if ratio is None:
        return {}
    numbers = {key: round(value, 4) for key, value in ratio._asdict().items()}
    return {"ratio": {"to": row.bases[name], **numbers}}


def _rate_json(row: Row, name: str) -> Dict[str, float]:
    rate = row.gigabytes_per_s(name)
    return {} if rate is None else {"gb_per_s": round(rate, 4)}


def as_json(about: Dict[str, Any], rows: Sequence[Row]) -> str:
    """Everything, samples included; times in microseconds."""
    found = []
    for row in rows:
        contestants = {
            name: {
                "min_us": round(row.minimum(name) * 1e6, 3),
                "median_us": round(row.median(name) * 1e6, 3),
                **_ratio_json(row, name),
                **_rate_json(row, name),
                "samples_us": [[round(s * 1e6, 3) for s in turn] for turn in turns],
            }
            for name, turns in row.seconds.items()
        }
        found.append(
            {
                "label": row.label,
                "size_bytes": row.size_bytes,
                "barrier_us": [round(s * 1e6, 3) for s in row.barrier_s],
                "flag_us": [round(s * 1e6, 4) for s in row.flag_s],
                "contestants": contestants,
                **({"notes": row.notes} if row.notes else {}),
            }
        )
    return json.dumps({**about, "rows": found}, indent=1) + "\n"
