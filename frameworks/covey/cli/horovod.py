"""The flags of horovodrun and mpirun that coveyrun does not have, and their replacements."""

from __future__ import annotations

from typing import Dict, Tuple

_ABSENT: Tuple[Tuple[str, Tuple[str, ...]], ...] = (
    ("say -H HOST:N for each host, or slots=N in the --hostfile", ("--slots-per-host",)),
    (
        "a changing number of ranks is not available yet",
        (
            *("--host-discovery-script", "--min-np", "--min-num-proc", "--max-np"),
            *("--max-num-proc", "--slots", "--reset-limit", "--elastic-timeout"),
            *("--blacklist-cooldown-range", "--cooldown-range"),
        ),
    ),
    (
        "there is no MPI underneath; leave it out",
        (
            *("--mpi", "--jsrun", "--mpi-args", "--mpi-threads-disable", "--tcp"),
            *("--no-mpi-threads-disable", "--binding-args", "-mca", "--mca", "-bind-to"),
            *("--bind-to", "-map-by", "--map-by", "--oversubscribe", "--allow-run-as-root"),
        ),
    ),
    ("there is no Gloo underneath; leave it out", ("--gloo",)),
    ("--start-timeout is how long ranks wait for each other", ("--gloo-timeout-seconds",)),
    ("there is no cycle; leave it out", ("--cycle-time-ms", "--timeline-mark-cycles")),
    ("there is no cycle; leave it out", ("--no-timeline-mark-cycles",)),
    ("there is no response cache; leave it out", ("--cache-capacity",)),
    (
        "nothing is tuned while a job runs; leave it out",
        ("--autotune", "--no-autotune", "--autotune-log-file", "--autotune-warmup-samples"),
    ),
    (
        "what travels how is chosen by size; leave it out",
        (
            *("--hierarchical-allreduce", "--no-hierarchical-allreduce"),
            *("--hierarchical-allgather", "--no-hierarchical-allgather"),
            *("--torus-allreduce", "--no-torus-allreduce", "--num-nccl-streams"),
            "--thread-affinity",
        ),
    ),
    ("say -x COVEY_FUSION_THRESHOLD=64MiB", ("--fusion-threshold-mb",)),
    ("say -x COVEY_LOG_LEVEL=debug", ("--log-level",)),
    ("say -x COVEY_STALL_WARNING=60s", ("--stall-check-warning-time-seconds",)),
    ("say -x COVEY_STALL_WARNING=86400s", ("--no-stall-check",)),
    (
        "a rank that does not come is named, and the job goes on; leave it out, or choose a method "
        "with max_wait",
        ("--stall-check", "--stall-check-shutdown-time-seconds"),
    ),
    ("lines begin with the rank alone; leave it out", ("--prefix-output-with-timestamp",)),
    ("lines begin with the rank anyway; leave it out", ("--tag-output",)),
    ("give the options here", ("--config-file",)),
    ("covey build says what can be built besides", ("--check-build", "-cb")),
    ("it is --version", ("-v",)),
    ("it is -np N", ("--nproc-per-node", "--nproc_per_node", "--np")),
)

REFUSED: Dict[str, str] = {flag: reason for reason, flags in _ABSENT for flag in flags}
"""By flag, why it is refused."""
