"""Horovod's variables, HOROVOD_*: which `coveyrun` takes over, ignores with a line, or refuses.

The one table of them: the launcher acts by it, and the guide shows it. Flags of `horovodrun` with
the same meaning stand for their variable, as they do there (`covey.cli.horovod`).
"""

from __future__ import annotations

from typing import Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from covey.launch.check import nearest
from covey.launch.spec import LaunchError

PREFIX = "HOROVOD_"
# Variables that launchers set for ranks, coveyrun among them: none is a user's wish.
PLACES = tuple(
    f"{PREFIX}{name}"
    for name in ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE", "CROSS_RANK", "CROSS_SIZE", "HOSTNAME")
)
MAPPED, IGNORED, REFUSED = "mapped", "ignored", "refused"
_LEVELS = {
    **dict.fromkeys(("trace", "debug"), "debug"),
    "info": "info",
    "warning": "warn",
    **dict.fromkeys(("error", "fatal"), "error"),
}
_LONGEST_S = 86400


class Variable(NamedTuple):
    """The fate of a variable.

    Attributes:
        fate: MAPPED, IGNORED or REFUSED.
        told: what it becomes; why it has no effect; what to do instead.
        value: of MAPPED: the value there of a value here, None for one without effect.
    """

    fate: str
    told: str
    value: Callable[[str], Optional[str]] = lambda text: text


class Given(NamedTuple):
    """A variable's value, and how the user has put it: its name, or the flag that stands for it."""

    said: str
    variable: str
    value: str


class Taken(NamedTuple):
    """The values after the mapping.

    Attributes:
        mapped: by variable of Covey, or flag of coveyrun.
        lines: on what is ignored, for the user.
    """

    mapped: Dict[str, str]
    lines: List[str]


def _seconds(text: str) -> Optional[str]:
    """0 is Horovod's word for none."""
    count = float(text)
    return f"{min(count, _LONGEST_S):g}s" if count > 0 else f"{_LONGEST_S}s"


def _is_on(text: str) -> bool:
    return text.strip().lower() not in ("", "0", "false")


def _timeline(text: str) -> Optional[str]:
    """The folder in the place of a file; DYNAMIC leaves the beginning to the script."""
    return None if text == "DYNAMIC" else text[: -len(".json")] if text.endswith(".json") else text


def _ignored(reason: str, *names: str) -> Dict[str, Variable]:
    return {PREFIX + name: Variable(IGNORED, reason) for name in names}


_BUILDING = "it is for the building of Horovod"
VARIABLES: Dict[str, Variable] = {
    "HOROVOD_TIMELINE": Variable(MAPPED, "--timeline", _timeline),
    "HOROVOD_FUSION_THRESHOLD": Variable(
        MAPPED, "COVEY_FUSION_THRESHOLD", lambda text: str(int(text))
    ),
    "HOROVOD_STALL_CHECK_TIME_SECONDS": Variable(MAPPED, "COVEY_STALL_WARNING", _seconds),
    "HOROVOD_STALL_CHECK_DISABLE": Variable(
        MAPPED, "COVEY_STALL_WARNING", lambda text: f"{_LONGEST_S}s" if _is_on(text) else None
    ),
    "HOROVOD_LOG_LEVEL": Variable(
        MAPPED, "COVEY_LOG_LEVEL", lambda text: _LEVELS[text.strip().lower()]
    ),
    "HOROVOD_START_TIMEOUT": Variable(MAPPED, "COVEY_START_TIMEOUT", _seconds),
    "HOROVOD_GLOO_IFACE": Variable(MAPPED, "--network"),
    "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": Variable(
        REFUSED,
        "no stall ends a job: choose a method with max_wait, such as eager, or leave it out",
    ),
    "HOROVOD_ELASTIC": Variable(
        REFUSED, "say coveyrun --min-np N, and ranks may come and go; leave the variable out"
    ),
    **_ignored("there is no cycle", "CYCLE_TIME", "TIMELINE_MARK_CYCLES"),
    **_ignored("signatures are cached per stream: COVEY_CACHE_CAPACITY", "CACHE_CAPACITY"),
    **_ignored(
        "what travels how is chosen by size and memory",
        *("HIERARCHICAL_ALLREDUCE", "HIERARCHICAL_ALLGATHER", "TORUS_ALLREDUCE"),
        *("NUM_NCCL_STREAMS", "BATCH_D2D_MEMCOPIES", "DISABLE_GROUP_FUSION"),
        *("ENABLE_ASYNC_COMPLETION", "ADASUM_MPI_CHUNK_SIZE", "CCL_CACHE"),
    ),
    **_ignored(
        "nothing is tuned while a job runs",
        *("AUTOTUNE", "AUTOTUNE_LOG", "AUTOTUNE_WARMUP_SAMPLES", "AUTOTUNE_STEPS_PER_SAMPLE"),
        *("AUTOTUNE_BAYES_OPT_MAX_SAMPLES", "AUTOTUNE_GAUSSIAN_PROCESS_NOISE"),
    ),
    **_ignored(
        "no MPI, Gloo or oneCCL is underneath",
        *("MPI_THREADS_DISABLE", "CONTROLLER", "CPU_OPERATIONS"),
    ),
    **_ignored("max_wait of a method bounds how long a rank waits", "GLOO_TIMEOUT_SECONDS"),
    **_ignored("say coveyrun --elastic-timeout S", "ELASTIC_TIMEOUT"),
    **_ignored("the scheduler places the one thread of a rank", "THREAD_AFFINITY"),
    **_ignored("neither messages nor lines of output have the time", "LOG_HIDE_TIME"),
    **_ignored("groups need no registration", "DYNAMIC_PROCESS_SETS"),
    **_ignored("XLA compiles no operation of Covey", "ENABLE_XLA_OPS"),
    **_ignored("no range of NVTX is recorded; --timeline has a trace", "DISABLE_NVTX_RANGES"),
    **_ignored(
        _BUILDING,
        *("GPU_OPERATIONS", "GPU_ALLREDUCE", "GPU_ALLGATHER", "GPU_BROADCAST", "GPU_ALLTOALL"),
        *("GPU_REDUCESCATTER", "WITH_MPI", "WITH_GLOO", "WITH_TENSORFLOW", "WITH_PYTORCH"),
        *("WITH_MXNET", "WITH_NVTX", "WITHOUT_MPI", "WITHOUT_GLOO", "WITHOUT_TENSORFLOW"),
        *("WITHOUT_PYTORCH", "WITHOUT_MXNET", "WITHOUT_NVTX", "NCCL_HOME", "NCCL_INCLUDE"),
        *("NCCL_LIB", "NCCL_LINK", "NVTX_INCLUDE", "CUDA_HOME", "ROCM_HOME", "MPICXX_SHOW"),
        *("BUILD_ARCH_FLAGS", "CMAKE", "DEBUG", "SKIP_COMPILE", "ALLOW_MIXED_GPU_IMPL"),
    ),
}
"""By name, all variables of Horovod 0.28.1 for a job or a build."""


def in_environment(environ: Mapping[str, str]) -> List[Given]:
    """Horovod's variables among these, without those that launchers set."""
    names = sorted(name for name in environ if name.startswith(PREFIX) and name not in PLACES)
    return [Given(name, name, environ[name]) for name in names]


def take(given: Sequence[Given], environ: Mapping[str, str]) -> Taken:
    """Maps them; the last value of a variable wins. A COVEY_* variable that is set wins over all.

    Raises:
        LaunchError: one is refused, with what to do instead; or a value is none.
    """
    mapped: Dict[str, str] = {}
    reasons: Dict[str, List[str]] = {}
    for one in given:
        known = VARIABLES.get(one.variable)
        if known is None:
            near = nearest(one.variable, list(VARIABLES))
            reasons.setdefault(f"there is no such variable{near}", []).append(one.said)
        elif known.fate == REFUSED and _is_on(one.value):
            raise LaunchError(f"{one.said}: {known.told}")
        elif known.fate == IGNORED:
            reasons.setdefault(known.told, []).append(one.said)
        elif known.fate == MAPPED:
            target, value = _mapped(one, known)
            if value is not None and _knob(target) not in environ:
                mapped[target] = value
    return Taken(mapped, [_line(said, reason) for reason, said in reasons.items()])


def _knob(target: str) -> str:
    """The variable of Covey for a flag of coveyrun, or that one itself."""
    return f"COVEY_{target[2:].upper()}" if target.startswith("--") else target


def _mapped(one: Given, known: Variable) -> Tuple[str, Optional[str]]:
    try:
        return known.told, known.value(one.value)
    except (KeyError, ValueError):
        raise LaunchError(f"{one.said}: {one.value!r} is no value of it") from None


def _line(said: Sequence[str], reason: str) -> str:
    return f"{', '.join(said)} {'is' if len(said) == 1 else 'are'} ignored: {reason}"
