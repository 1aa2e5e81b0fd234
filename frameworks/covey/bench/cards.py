"""The needs of `covey bench --device cuda`, and the measured hardware: the card, its driver.

Nothing here needs a card; torch is imported where it is asked.
"""

from __future__ import annotations

import ctypes
import os
import re
from typing import Any, Dict, Optional, Sequence, Tuple

from covey.plugin_path import plugin_folders

FILE_NAME = "libcovey_cuda.so"
DEVICES = ("cpu", "cuda")
KINDS = ("allreduce", "step", "kernels")
"""The benches that there are for cards."""
PATHS = ("nccl", "ipc", "staged")
"""Of the knob cuda_path, the ones to measure, as far as this Covey has them."""
_DRIVER = "/proc/driver/nvidia/version"


def missing(torch: Any) -> Optional[str]:
    """One line that says why nothing can be measured on a card here; None: it can.

    `torch`: the module, None where there is none.
    """
    if torch is None:
        return "torch is not installed"
    if torch.version.cuda is None:
        return f"torch {torch.__version__} has no CUDA: this takes a torch that was built with it"
    if not torch.cuda.is_available():
        return (
            f"no GPU: torch {torch.__version__}, built with CUDA {torch.version.cuda}, reaches "
            "none here (is there a driver? what does CUDA_VISIBLE_DEVICES allow?)"
        )
    return None


def find() -> Optional[str]:
    """Where the plug-in is."""
    paths = [os.path.join(folder, FILE_NAME) for folder in plugin_folders()]
    return next((path for path in paths if os.path.exists(path)), None)


def without_kernels() -> Optional[str]:
    """One line that says why there are no kernels to be measured; None: there are."""
    path = find()
    if path is None:
        return f"there is no {FILE_NAME} in {', '.join(plugin_folders())}"
    if ctypes.CDLL(path).covey_cuda_bench_has_kernels():
        return None
    return (
        f"{path} was built without nvcc and has no kernels: build Covey where there is one (12 or "
        "later), or name a folder with such a plug-in in COVEY_PLUGIN_PATH"
    )


def driver_version(text: str) -> str:
    """The version in what the kernel's module says of itself.

    Example:
        >>> driver_version("NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue")
        '550.54.15'
    """
    found = re.search(r"\b\d+\.\d+(\.\d+)?\b", text)
    return found.group() if found is not None else "unknown"


def describe(torch: Any) -> Dict[str, str]:
    """The facts beside the figures. REQUIRES: nothing is `missing`."""
    try:
        with open(_DRIVER, encoding="utf-8") as file:
            driver = driver_version(file.read())
    except OSError:
        driver = "unknown"
    names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    cards = ", ".join(f"{names.count(name)} x {name}" for name in sorted(set(names)))
    return {"card": cards, "driver": driver, "cuda": torch.version.cuda}


def paths_of(knobs: Sequence[Dict[str, Any]]) -> Tuple[str, ...]:
    """The PATHS that are choices of the knob cuda_path, given all knobs."""
    choices = [knob["unit"].split("|") for knob in knobs if knob["name"] == "cuda_path"]
    return tuple(path for path in PATHS for named in choices if path in named)


def nccl_is_absent(ranks: int, cards: int) -> Optional[str]:
    """Why torch's NCCL cannot take part; None: it can. It wants a card for each rank."""
    if ranks <= cards:
        return None
    return f"it needs a GPU for each rank, and there are {cards} for {ranks} ranks"


def detour(path: str, before: Dict[str, Any], after: Dict[str, Any]) -> Optional[str]:
    """The notice when nothing went by `path`, given covey.stats() before and after; None: it did.

    A request for a path may get the staged one: alone, or where the machine forbids it.
    """
    if path == "staged":
        counts = [f"exchanges_{other}" for other in PATHS if other != path]
        strays = [name for name in counts if after.get(name, 0) != before.get(name, 0)]
        return f"not staged alone: {', '.join(strays)} rose" if strays else None
    counter = f"exchanges_{path}"
    if after.get(counter, 0) != before.get(counter, 0):
        return None
    return f"nothing went by {path}: this is another path"
