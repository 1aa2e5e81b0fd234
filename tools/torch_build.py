"""Which build of torch pip will install, said before anything is downloaded.

`torch_build.py REQUIREMENTS [cpu|cuda]` prints pip's arguments for it, one a line, and one sentence
for the user on stderr. Run by tools/setup with the Python that gets it. PyPI has the build with
CUDA; pip takes the one without where it is told of it (an index or a folder in pip's configuration
or environment), since 2.13.0+cpu counts as newer than 2.13.0.
"""

from __future__ import annotations

import pathlib
import re
import subprocess
import sys
from typing import List, Tuple

CPU_INDEX = "https://download.pytorch.org/whl/cpu"

# Gigabytes to download, and in .venv with everything else: measured with MEASURED.
MEASURED = "2.13.0"
SIZES = {"cpu": (0.2, 1.1), "cuda": (2.7, 4.9)}


def version_of(requirements: pathlib.Path) -> str:
    """The exact version of torch that is asked for."""
    found = re.search(r"^torch==(\S+)$", requirements.read_text(encoding="utf-8"), re.M)
    if found is None:
        raise SystemExit(f"torch_build: {requirements} has no line torch==VERSION")
    return found.group(1)


def kind_of(version: str) -> str:
    """The build that a version names."""
    return "cpu" if version.endswith("+cpu") else "cuda"


def choose(version: str, asked: str, listed: List[str]) -> Tuple[str, List[str]]:
    """The version to install, and pip's arguments. `asked` is cpu, cuda or empty: pip's own choice
    of what it lists, newest first."""
    builds = [it for it in listed if it.partition("+")[0] == version]
    if asked == "cpu":
        chosen = f"{version}+cpu"
        index = [] if chosen in builds else ["--extra-index-url", CPU_INDEX]
        return chosen, [f"torch=={chosen}", *index]
    wanted = [it for it in builds if not asked or kind_of(it) == asked]
    chosen = wanted[0] if wanted else version
    # Three: equal as text, or 2.13.0 would match 2.13.0+cpu.
    return chosen, [f"torch==={chosen}"]


def sentence(chosen: str) -> str:
    """What the user is told."""
    kind = kind_of(chosen)
    download, installed = SIZES[kind]
    title = "without CUDA" if kind == "cpu" else "with CUDA"
    text = f"torch {chosen}, the build {title}: about {download} GB to download, {installed} GB in"
    text += " .venv with all the rest"
    if kind == "cuda":
        text += f" (--torch cpu takes the one of {SIZES['cpu'][0]} GB)"
    return text


def listed_by_pip() -> List[str]:
    """Every version that pip would find, newest first; none where it cannot say."""
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    done = subprocess.run(
        [*pip, "index", "versions", "torch"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        encoding="utf-8",
        check=False,
    )
    found = re.search(r"^Available versions: (.*)$", done.stdout, re.M)
    return found.group(1).split(", ") if found else []


def main(arguments: List[str]) -> None:
    version = version_of(pathlib.Path(arguments[0]))
    asked = arguments[1] if len(arguments) > 1 else ""
    chosen, pip_arguments = choose(version, asked, listed_by_pip())
    print(f"setup: {sentence(chosen)}", file=sys.stderr)
    print("\n".join(pip_arguments))


if __name__ == "__main__":
    main(sys.argv[1:])
