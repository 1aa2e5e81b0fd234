"""The limits that control groups set for this process. Internal."""

from __future__ import annotations

import os
from typing import Dict, Iterator, List, Optional, Tuple

# Version 1 writes "no limit" as the largest multiple of a page.
_NO_BYTES = 1 << 62


def limits(root: str = "/sys/fs/cgroup", groups: str = "/proc/self/cgroup") -> Dict[str, float]:
    """By name, where there is a limit: memory (bytes), pids, cpus (cores), and memory_used and
    pids_used beside them.

    The narrowest limit of the group and of those above counts, with the use of that group.
    """
    found: Dict[str, float] = {}
    for folder in _folders(root, groups):
        for name, limit, used in (
            ("memory", _number(folder, "memory.max"), _number(folder, "memory.current")),
            (
                "memory",
                _number(folder, "memory.limit_in_bytes"),
                _number(folder, "memory.usage_in_bytes"),
            ),
            ("pids", _number(folder, "pids.max"), _number(folder, "pids.current")),
            ("cpus", _quota(folder), None),
        ):
            if limit is None or limit >= _NO_BYTES or limit >= found.get(name, _NO_BYTES):
                continue
            found[name] = limit
            if used is not None:
                found[f"{name}_used"] = used
    return found


def _folders(root: str, groups: str) -> Iterator[str]:
    """The folder of each group of this process, and those above it."""
    for controllers, path in _of_process(groups):
        base = root
        for controller in controllers:
            if os.path.isdir(os.path.join(root, controller)):
                base = os.path.join(root, controller)
        parts = [part for part in path.split("/") if part not in ("", "..")]
        for length in range(len(parts), -1, -1):
            yield os.path.join(base, *parts[:length])


def _of_process(groups: str) -> List[Tuple[List[str], str]]:
    try:
        with open(groups, encoding="utf-8", errors="replace") as file:
            lines = [line.rstrip("\n").split(":", 2) for line in file]
    except OSError:
        return []
    return [(words[1].split(","), words[2]) for words in lines if len(words) == 3]


def _words(folder: str, name: str) -> List[str]:
    try:
        with open(os.path.join(folder, name), encoding="ascii", errors="replace") as file:
            return file.read().split()
    except OSError:
        return []


def _number(folder: str, name: str) -> Optional[float]:
    words = _words(folder, name)
    return float(words[0]) if words and words[0].isdigit() else None


def _quota(folder: str) -> Optional[float]:
    """Cores: microseconds of a period."""
    words = _words(folder, "cpu.max")  # Version 1 has a file for each.
    words = words or _words(folder, "cpu.cfs_quota_us") + _words(folder, "cpu.cfs_period_us")
    if len(words) != 2 or not all(map(str.isdigit, words)) or int(words[1]) == 0:
        return None
    return int(words[0]) / int(words[1])
