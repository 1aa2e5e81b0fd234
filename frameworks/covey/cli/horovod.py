"""The flags of horovodrun and mpirun that coveyrun does not have: those that stand for a variable
of Horovod, whose fate they have, and those that are refused, with their replacements."""

from __future__ import annotations

import argparse
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from covey.as_horovod.variables import Given

_MIB = 1 << 20


class Flag(NamedTuple):
    """A flag for a variable without its prefix; `value` is that of a flag that takes none."""

    name: str
    variable: str
    value: Optional[str] = None
    scale: int = 1


FLAGS: Tuple[Flag, ...] = (
    Flag("--fusion-threshold-mb", "FUSION_THRESHOLD", scale=_MIB),
    Flag("--cycle-time-ms", "CYCLE_TIME"),
    Flag("--cache-capacity", "CACHE_CAPACITY"),
    Flag("--disable-cache", "CACHE_CAPACITY", "0"),
    Flag("--hierarchical-allreduce", "HIERARCHICAL_ALLREDUCE", "1"),
    Flag("--no-hierarchical-allreduce", "HIERARCHICAL_ALLREDUCE", "0"),
    Flag("--hierarchical-allgather", "HIERARCHICAL_ALLGATHER", "1"),
    Flag("--no-hierarchical-allgather", "HIERARCHICAL_ALLGATHER", "0"),
    Flag("--torus-allreduce", "TORUS_ALLREDUCE", "1"),
    Flag("--no-torus-allreduce", "TORUS_ALLREDUCE", "0"),
    Flag("--autotune", "AUTOTUNE", "1"),
    Flag("--no-autotune", "AUTOTUNE", "0"),
    Flag("--autotune-log-file", "AUTOTUNE_LOG"),
    Flag("--autotune-warmup-samples", "AUTOTUNE_WARMUP_SAMPLES"),
    Flag("--autotune-steps-per-sample", "AUTOTUNE_STEPS_PER_SAMPLE"),
    Flag("--autotune-bayes-opt-max-samples", "AUTOTUNE_BAYES_OPT_MAX_SAMPLES"),
    Flag("--autotune-gaussian-process-noise", "AUTOTUNE_GAUSSIAN_PROCESS_NOISE"),
    Flag("--timeline-filename", "TIMELINE"),
    Flag("--timeline-mark-cycles", "TIMELINE_MARK_CYCLES", "1"),
    Flag("--no-timeline-mark-cycles", "TIMELINE_MARK_CYCLES", "0"),
    Flag("--stall-check", "STALL_CHECK_DISABLE", "0"),
    Flag("--no-stall-check", "STALL_CHECK_DISABLE", "1"),
    Flag("--stall-check-warning-time-seconds", "STALL_CHECK_TIME_SECONDS"),
    Flag("--stall-check-shutdown-time-seconds", "STALL_SHUTDOWN_TIME_SECONDS"),
    Flag("--gloo", "CONTROLLER", "gloo"),
    Flag("--mpi", "CONTROLLER", "mpi"),
    Flag("--jsrun", "CONTROLLER", "mpi"),
    Flag("--tcp", "CONTROLLER", "mpi"),
    Flag("--mpi-args", "CONTROLLER"),
    Flag("--binding-args", "CONTROLLER"),
    Flag("--mpi-threads-disable", "MPI_THREADS_DISABLE", "1"),
    Flag("--no-mpi-threads-disable", "MPI_THREADS_DISABLE", "0"),
    Flag("--num-nccl-streams", "NUM_NCCL_STREAMS"),
    Flag("--thread-affinity", "THREAD_AFFINITY"),
    Flag("--gloo-timeout-seconds", "GLOO_TIMEOUT_SECONDS"),
    Flag("--log-level", "LOG_LEVEL"),
    Flag("--log-with-timestamp", "LOG_HIDE_TIME", "0"),
    Flag("--log-without-timestamp", "LOG_HIDE_TIME", "1"),
    Flag("--log-hide-timestamp", "LOG_HIDE_TIME", "1"),
    Flag("--no-log-hide-timestamp", "LOG_HIDE_TIME", "0"),
    Flag("--prefix-output-with-timestamp", "LOG_HIDE_TIME", "0"),
    Flag("-prefix-timestamp", "LOG_HIDE_TIME", "0"),
)

_ABSENT: Tuple[Tuple[str, Tuple[str, ...]], ...] = (
    (
        "a host that was lost is tried again after 5 s, then 10 s, 20 s, ... 300 s; leave it out",
        ("--blacklist-cooldown-range", "--cooldown-range"),
    ),
    (
        "there is no MPI underneath; leave it out",
        (
            *("-mca", "--mca", "-bind-to", "--bind-to", "-map-by", "--map-by", "--oversubscribe"),
            "--allow-run-as-root",
        ),
    ),
    ("lines begin with the rank anyway; leave it out", ("--tag-output",)),
    ("give the options here", ("--config-file",)),
    ("covey build says what can be built besides", ("--check-build", "-cb")),
    ("it is --version", ("-v",)),
    ("it is -np N", ("--nproc-per-node", "--nproc_per_node", "--np")),
)

REFUSED: Dict[str, str] = {flag: reason for reason, flags in _ABSENT for flag in flags}
"""By flag, why it is refused."""


class _Note(argparse.Action):
    """Notes a flag of horovodrun in `given`, for covey.as_horovod.variables."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: Any = None) -> None:
        flag = next(one for one in FLAGS if one.name == option_string)
        text = str(values) if flag.value is None else flag.value
        if flag.scale != 1:
            try:
                text = str(round(float(text) * flag.scale))
            except ValueError:
                parser.error(f"{flag.name}: {text} is not a number")
        given: List[Given] = [*(namespace.given or ()), Given(flag.name, variable_of(flag), text)]
        namespace.given = given


def variable_of(flag: Flag) -> str:
    """The whole name of its variable."""
    return f"HOROVOD_{flag.variable}"


def describe(parser: argparse.ArgumentParser) -> None:
    """Adds the flags, which --help does not list."""
    parser.set_defaults(given=())
    for flag in FLAGS:
        takes: Dict[str, Any] = {"metavar": "VALUE"} if flag.value is None else {"nargs": 0}
        add = parser.add_argument
        add(flag.name, action=_Note, dest="given", help=argparse.SUPPRESS, **takes)
