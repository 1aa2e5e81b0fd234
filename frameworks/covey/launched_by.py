"""Which launcher has started this process, and as which rank: as environment variables tell it.

Internal.
"""

from __future__ import annotations

import os
import re
import stat
from typing import Mapping, Tuple

from covey.errors import InvalidArgument, shown

# A launcher tells the ranks their number and how many they are.
_PLACES = (
    ("RANK", "WORLD_SIZE"),  # torchrun, and scripts that set them for env://
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),  # srun
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),  # Open MPI's mpirun
    ("PMI_RANK", "PMI_SIZE"),  # MPICH's and Intel MPI's
)
_OF_PMI = {"PMIX_RANK", "PMI_RANK"}
OF_TORCHRUN = "TORCHELASTIC_RESTART_COUNT"


def under_coveyrun(environ: Mapping[str, str]) -> bool:
    """Whether this process is a rank that coveyrun has started, and not one that another launcher
    has started within it: coveyrun says RANK and WORLD_SIZE too, and nothing of torchrun's."""
    if "COVEY_SHM_FD" not in environ or OF_TORCHRUN in environ:
        return False
    pairs = (("RANK", "COVEY_RANK"), ("WORLD_SIZE", "COVEY_SIZE"))
    return all(environ.get(name, environ.get(ours)) == environ.get(ours) for name, ours in pairs)


def check_passed_on(environ: Mapping[str, str], name: str) -> None:
    """The descriptor that coveyrun has left a rank under the number in ``name`` is here.

    Raises:
        InvalidArgument: (a ValueError) it is not: this process is a rank's child.
    """
    text = environ[name]
    try:
        mode = os.fstat(int(text)).st_mode
        if stat.S_ISREG(mode) or stat.S_ISSOCK(mode):
            return
    except (ValueError, OSError, OverflowError):
        pass
    rank = shown(environ.get("COVEY_RANK", "?"), kept="")
    raise InvalidArgument(
        f"this process is a child of rank {rank}, and no rank: {name}={shown(text, kept='')} of "
        'the rank is not open here; put init() under if __name__ == "__main__":, or, for a job of '
        "its own, unset the variables COVEY_* (a script that starts the training passes "
        "descriptors on by close_fds=False)"
    )


def by_torchrun(environ: Mapping[str, str]) -> bool:
    """Whether torchrun has started this process as one of several."""
    return environ.get("WORLD_SIZE", "1") != "1" and OF_TORCHRUN in environ


def by_mpi(environ: Mapping[str, str]) -> bool:
    """Whether mpirun has started this process, or srun with PMI, whose variables it then sets."""
    sizes = {size for _, size in _PLACES[1:]}
    if not _OF_PMI & environ.keys():
        sizes -= {_PLACES[1][1]}
    return bool(sizes & environ.keys())


def by_variables(environ: Mapping[str, str]) -> bool:
    """Whether only RANK and WORLD_SIZE say that this process is one of several."""
    several = "RANK" in environ and environ.get("WORLD_SIZE", "1") != "1"
    return several and "COVEY_SIZE" not in environ and not by_mpi(environ)


def place_of(environ: Mapping[str, str]) -> Tuple[int, int]:
    """(rank, size) as the launcher of this process told it; Covey's own variables win.

    Raises:
        InvalidArgument: (a ValueError) they were not told, or are no place.
    """
    for rank_name, size_name in (("COVEY_RANK", "COVEY_SIZE"), *_PLACES):
        if rank_name not in environ or size_name not in environ:
            continue
        rank, size = environ[rank_name], environ[size_name]
        if 0 <= number_of(rank) < number_of(size):
            return int(rank), int(size)
        told = shown(f"{rank_name}={rank} and {size_name}={size}", kept="")
        raise InvalidArgument(f"{told} are no place in a job")
    known = ", ".join(f"{rank} and {size}" for rank, size in _PLACES)
    raise InvalidArgument(
        "COVEY_RENDEZVOUS is set, but nothing says which rank this is: start it with torchrun, "
        f"srun or mpirun, or set COVEY_RANK and COVEY_SIZE (looked for: {known})"
    )


def number_of(text: str) -> int:
    """-1: it is none, or none that a job has."""
    return int(text) if re.fullmatch(r"[0-9]{1,9}", text) else -1
