"""The environment of a rank, made by the launcher: the only place that writes COVEY_* variables.

The runtime refuses COVEY_* variables it does not know, so this list and its list must agree.
"""

from __future__ import annotations

import itertools
import os
from typing import Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from covey import as_horovod, by_method
from covey.launch.hosts import Place
from covey.launch.spec import JobSpec, LaunchError

# The first of these that is set decides: the user has chosen the threads.
THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "TF_NUM_INTRAOP_THREADS",
    "TF_NUM_INTEROP_THREADS",
)
# Variables of torchrun beside the place: a rank that has none of them was not started by it.
OF_TORCHRUN = (
    "TORCHELASTIC_RUN_ID",
    "TORCHELASTIC_RESTART_COUNT",
    "TORCHELASTIC_MAX_RESTARTS",
    "TORCHELASTIC_USE_AGENT_STORE",
)
# What launchers are told: how they find each other (a rank that has it does not look), and what
# they preload.
OF_LAUNCHERS = ("COVEY_RENDEZVOUS", "COVEY_SECRET_FILE", "COVEY_PRELOAD")
# The launcher may itself be a rank of a job on several hosts: these are of that job.
OF_HOSTS = ("COVEY_BOOK_FD", "COVEY_LISTEN_FD", "COVEY_WITNESS_FD", "GROUP_RANK")
OF_ELASTIC = "COVEY_ELASTIC_FD"  # Or a rank of an elastic one: likewise.

OF_EACH_RANK = (
    *("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "HOROVOD_RANK", "HOROVOD_SIZE"),
    *("HOROVOD_LOCAL_RANK", "HOROVOD_LOCAL_SIZE", "HOROVOD_CROSS_RANK", "HOROVOD_CROSS_SIZE"),
    *("COVEY_RANK", "COVEY_SIZE", "COVEY_LOCAL_RANK", "COVEY_LOCAL_SIZE", "COVEY_SHM_FD"),
    *("COVEY_SUMMARY_FD", "COVEY_LAUNCHER_PID", "COVEY_JOB", *OF_HOSTS, OF_ELASTIC),
)


def threads_per_rank(size: int) -> int:
    """Cores this process may use, divided among `size` ranks; at least 1."""
    return max(1, len(os.sched_getaffinity(0)) // size)


def gpus_of(base: Mapping[str, str], folder: str = "/proc/driver/nvidia/gpus") -> List[str]:
    """The GPUs that a process with the environment ``base`` may see, as CUDA_VISIBLE_DEVICES names
    them; ``folder`` is where the driver has an entry for each.

    Raises:
        LaunchError: there are none.
    """
    listed = base.get("CUDA_VISIBLE_DEVICES")
    if listed is not None:
        # Entries after -1 are hidden too.
        entries = [name.strip() for name in listed.split(",")]
        gpus = list(itertools.takewhile(lambda name: name not in ("", "-1"), entries))
        why = f"CUDA_VISIBLE_DEVICES={listed} shows none"
    else:
        found = os.listdir(folder) if os.path.isdir(folder) else []
        gpus = [str(number) for number in range(len(found))]
        why = f"there is none in {folder}"
    if not gpus:
        raise LaunchError(f"--bind-gpus: this machine has no GPU ({why})")
    return gpus


def place_variables(place: Place) -> Dict[str, str]:
    """A rank's place by the names that torch.distributed and scripts for Horovod read."""
    number, count = str(place.rank), str(place.size)
    local, local_count = str(place.local_rank), str(place.local_size)
    found = {
        "RANK": number,
        "WORLD_SIZE": count,
        "LOCAL_RANK": local,
        "LOCAL_WORLD_SIZE": local_count,
        "HOROVOD_RANK": number,
        "HOROVOD_SIZE": count,
        "HOROVOD_LOCAL_RANK": local,
        "HOROVOD_LOCAL_SIZE": local_count,
        "HOROVOD_CROSS_RANK": str(place.cross_rank),
        "HOROVOD_CROSS_SIZE": str(place.cross_size),
    }
    if place.local_size != place.size:
        found["GROUP_RANK"] = str(place.host)
    return found


class Descriptors(NamedTuple):
    """The descriptors of a rank: its host's memory, the summary, the book; -1: there is none, or
    none before the first world of an elastic job."""

    memory: int
    summary: int
    book: int = -1


def _set_store(env: Dict[str, str], spec: JobSpec, store: Optional[Tuple[str, int]]) -> None:
    """Where env:// of torch.distributed has its store, unless the user has said so. Variables that
    another launcher has set for this one as its rank are not the user's."""
    if "COVEY_SHM_FD" in env or OF_TORCHRUN[0] in env:
        for name in {*OF_TORCHRUN, "MASTER_ADDR", "MASTER_PORT"} - set(spec.extra_env):
            env.pop(name, None)
    if store is not None:
        env.setdefault("MASTER_ADDR", store[0])
        env.setdefault("MASTER_PORT", str(store[1]))


def rank_environment(
    base: Mapping[str, str],
    spec: JobSpec,
    place: Place,
    job_id: str,
    fds: Descriptors,
    store: Optional[Tuple[str, int]] = None,
) -> Dict[str, str]:
    """The environment of the rank at `place`: `base`, then what the launcher sets; the user's -x
    wins over all of it but COVEY_*.

    `store`: address and port that rank 0 may listen at; None: there is none that all ranks know.
    """
    env = {name: text for name, text in base.items() if name not in (*OF_HOSTS, OF_ELASTIC)}
    env.update(spec.extra_env)
    _set_store(env, spec, store)
    env.update(place_variables(place))
    env.update(spec.extra_env)
    if THREAD_VARIABLES[0] not in env:
        for name in THREAD_VARIABLES:
            env.setdefault(name, str(threads_per_rank(place.local_size)))
    env.setdefault("PYTHONUNBUFFERED", "1")
    env.update(spec.settings_env)
    as_horovod.take_part(env)
    by_method.take_part(env)
    for name in OF_LAUNCHERS:
        env.pop(name, None)
    env["COVEY_RANK"], env["COVEY_SIZE"] = str(place.rank), str(place.size)
    env["COVEY_LOCAL_RANK"], env["COVEY_LOCAL_SIZE"] = str(place.local_rank), str(place.local_size)
    env["COVEY_SHM_FD"], env["COVEY_SUMMARY_FD"] = str(fds.memory), str(fds.summary)
    if fds.book >= 0:
        env["COVEY_BOOK_FD"] = str(fds.book)
    env["COVEY_LAUNCHER_PID"] = str(os.getpid())
    env["COVEY_JOB"] = job_id
    if spec.gpus:
        env["CUDA_VISIBLE_DEVICES"] = spec.gpus[place.local_rank % len(spec.gpus)]
    if spec.timeline_dir is not None:
        env["COVEY_TIMELINE"] = os.path.abspath(spec.timeline_dir)
    return env


def in_common(envs: Sequence[Mapping[str, str]]) -> Dict[str, str]:
    """The variables that are the same in all of them."""
    common = set(envs[0].items()).intersection(*(env.items() for env in envs))
    return {name: value for name, value in envs[0].items() if (name, value) in common}
