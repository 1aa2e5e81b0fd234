"""What a shared object needs and shows, as `readelf` tells it."""

from __future__ import annotations

import re
import subprocess
from typing import List, Set, Tuple


def _readelf(*arguments: str) -> str:
    command = ["readelf", "--wide", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def needed(path: str) -> Set[str]:
    """The libraries it names, such as "libc.so.6"."""
    return set(re.findall(r"\(NEEDED\).*\[(.+)\]", _readelf("--dynamic", path)))


def search_paths(path: str) -> List[str]:
    """Where it has the loader look for them (RUNPATH, RPATH)."""
    found = re.findall(r"\((?:RUNPATH|RPATH)\).*\[(.*)\]", _readelf("--dynamic", path))
    return [part for entry in found for part in entry.split(":")]


# Linkers add them to every shared object that has no version script.
_OF_THE_LINKER = {"_init", "_fini", "_end", "_edata", "__bss_start"}


def exported(path: str) -> Set[str]:
    """The symbols others can link with."""
    names = set()
    for line in _readelf("--dyn-syms", path).splitlines():
        columns = line.split()
        if len(columns) >= 8 and columns[4] != "LOCAL" and columns[6] not in ("UND", "Ndx"):
            names.add(columns[7].partition("@")[0])
    return names - _OF_THE_LINKER


def glibc_floor(path: str) -> Tuple[int, int]:
    """The oldest glibc it can be loaded with."""
    found = re.findall(r"Name: GLIBC_(\d+)\.(\d+)", _readelf("--version-info", path))
    return max(((int(major), int(minor)) for major, minor in found), default=(2, 0))
