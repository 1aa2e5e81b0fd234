"""Files of runs that are whole or not there, and statistics over paired seeds."""

from __future__ import annotations

import datetime
import itertools
import json
import os
import pathlib
import statistics
import subprocess
from typing import Any, Dict, Sequence, Tuple

import torch

import covey


_VERSIONS = ("covey", "torch")


def load(path: str, settings: Dict[str, Any]) -> Dict[str, Any]:
    """What the file holds, if it is of these settings; without figures when there is no file."""
    try:
        with open(path, encoding="utf-8") as file:
            run = dict(json.load(file))
    except FileNotFoundError:
        return {"settings": settings, "results": {}}
    if run["settings"] != settings:
        raise SystemExit(f"{path} is of other settings: remove it, or take another --out")
    return run


def stamp() -> Dict[str, str]:
    """By what figures are measured: commit ("+" where files differ from it), day, versions."""
    folder = pathlib.Path(__file__).parent
    git = ["git", "-C", str(folder), "describe", "--always", "--dirty=+"]
    commit = subprocess.run(git, capture_output=True, text=True, check=False).stdout.strip()
    day = datetime.date.today().isoformat()
    versions = {"covey": covey.__version__, "torch": torch.__version__}
    return {"commit": commit or "unknown", "date": day, **versions}


def stamped(run: Dict[str, Any]) -> str:
    """The same of a run that was saved, as one line."""
    return ", ".join(f"{key} {value}" for key, value in run.get("measured", {}).items())


def check(run: Dict[str, Any], path: str) -> None:
    """Refuses to add figures to those of another commit or another torch: the stamp is of all."""
    had, now = run.get("measured", {}), stamp()
    if had and any(had[key] != now[key] for key in ("commit", *_VERSIONS)):
        raise SystemExit(
            f"{path} was measured by {stamped(run)}, and here is commit {now['commit']}, torch "
            f"{now['torch']}: remove it, or take another --out"
        )


def save(run: Dict[str, Any], path: str) -> None:
    """Whole, or not at all; stamped. Refuses what `check` refuses: call that before measuring."""
    check(run, path)
    run["measured"] = stamp()
    with open(f"{path}.part", "w", encoding="utf-8") as file:
        file.write(json.dumps(run) + "\n")
    os.replace(f"{path}.part", path)


def bootstrap(values: Sequence[float]) -> Tuple[float, float, float]:
    """Mean of a few paired differences, and its 95 % interval from every resample there is.

    With n values these are n^n, all of them while n is at most 6.

    Example:
        >>> bootstrap([1.0, 1.0, 4.0])
        (2.0, 1.0, 4.0)
    """
    means = sorted(
        statistics.fmean(some) for some in itertools.product(values, repeat=len(values))
    )
    low, high = (means[round(part * (len(means) - 1))] for part in (0.025, 0.975))
    return statistics.fmean(values), low, high
