"""What a rank is told by the launcher: the only place that writes COVEY_* variables.

The runtime refuses COVEY_* variables it does not know, so this list and its list must agree.
"""

from __future__ import annotations

import itertools
import os
from typing import Dict, List, Mapping, Sequence

from covey.launch.spec import JobSpec, LaunchError

# The first of these decides: whoever set it has thought about threads.
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
# How launchers find each other; a rank that has one does not look.
OF_LAUNCHERS = ("COVEY_RENDEZVOUS", "COVEY_SECRET_FILE")


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
        # What follows an entry of -1 is hidden too.
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


def rank_environment(
    base: Mapping[str, str], spec: JobSpec, rank: int, size: int, job_id: str, fds: Sequence[int]
) -> Dict[str, str]:
    """The environment of `rank`: `base`, the user's -x, then what the launcher sets.

    `size` is that of the whole job, which is on one machine. `fds`: the job's memory, the summary.
    """
    env = dict(base)
    env.update(spec.extra_env)
    if THREAD_VARIABLES[0] not in env:
        for name in THREAD_VARIABLES:
            env.setdefault(name, str(threads_per_rank(size)))
    env.setdefault("PYTHONUNBUFFERED", "1")
    env.update(spec.settings_env)
    for name in OF_LAUNCHERS:
        env.pop(name, None)
    env["COVEY_RANK"] = env["COVEY_LOCAL_RANK"] = str(rank)
    env["COVEY_SIZE"] = env["COVEY_LOCAL_SIZE"] = str(size)
    env["COVEY_SHM_FD"], env["COVEY_SUMMARY_FD"] = (str(fd) for fd in fds)
    env["COVEY_LAUNCHER_PID"] = str(os.getpid())
    env["COVEY_JOB"] = job_id
    if spec.gpus:
        env["CUDA_VISIBLE_DEVICES"] = spec.gpus[rank % len(spec.gpus)]
    if spec.timeline_dir is not None:
        env["COVEY_TIMELINE"] = os.path.abspath(spec.timeline_dir)
    return env
