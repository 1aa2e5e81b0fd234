"""The checks of single hosts: the needs of a rank on its host. Pure. Internal."""

from __future__ import annotations

import math
import re
from typing import Any, Dict, Iterator, Mapping

from covey.doctor.check import (
    FAILED,
    NOTE,
    OK,
    WARNING,
    Check,
    by_value,
    in_bytes,
    in_short,
    per_host,
)
from covey.doctor.facts import PLUGINS
from covey.doctor.visit import Findings

# Descriptors: of a rank, beside a connection to each rank of another host; of an agent, per rank.
_OF_A_RANK, _PER_RANK, _OF_AN_AGENT = 64, 4, 32
# Threads of a rank beside those of its share of the cores: the engine's, the framework's.
_THREADS = 8
# A rank that has imported PyTorch and trained a small model keeps 222 MiB of its own.
_LEAST_BYTES = 250 << 20
# PyTorch's DataLoader hands batches over in /dev/shm.
_LEAST_SHM = 1 << 30
# Devices of RDMA read and write locked memory alone: UCX registers what it sends.
_LEAST_LOCKED = 1 << 30
_FINDS_SILENCE = (6, 15)  # ops/transports/tcp/socket.cc: TCP_RTO_MAX_MS


def of_hosts(found: Findings) -> Iterator[Check]:
    """All checks of the hosts that have answered."""
    if not found.facts:
        return
    yield from _packages(found)
    yield from _plugins(found)
    yield from _folder(found)
    yield from _variables(found)
    yield from _cores(found)
    yield from _memory(found)
    yield from _limits(found)
    yield from _kernel(found)
    yield _shm(found)
    yield from _gpus(found)
    yield from _rdma(found)


def _packages(found: Findings) -> Iterator[Check]:
    names: Dict[str, None] = {}
    for facts in found.facts.values():
        names.update(dict.fromkeys(facts["packages"]))
    same, other = [], []
    for name in names:
        versions = {h: f["packages"].get(name, "none") for h, f in found.facts.items()}
        text = f"{name} {by_value(versions)}"
        (same if len(set(versions.values())) == 1 else other).append(text)
    builds = {h: hello["build"] or f"Covey {hello['version']}" for h, hello in found.hellos.items()}
    yield Check("versions", OK, "; ".join([by_value(builds), *same]))
    for text in other:
        yield Check("versions", WARNING, text, "install the same version on all hosts")


def _plugins(found: Findings) -> Iterator[Check]:
    if len(found.ranks) > 1:
        missing = [host for host, facts in found.facts.items() if not facts["plugins"]["tcp"]]
        if missing:
            yield Check(
                "plug-ins", FAILED, f"there is no libcovey_tcp.so on {in_short(missing)}",
                "install the wheel of Covey, or build it where OpenSSL's headers are",
            )  # fmt: skip
    slow = [host for host, facts in found.facts.items() if not facts["operations"]]
    if slow:
        seen = f"covey.tensorflow compiles its operations at its first import on {in_short(slow)}"
        yield Check("plug-ins", NOTE, seen, "covey build tensorflow does so now")
    for name in PLUGINS:
        there = per_host(found.facts, lambda facts, name=name: facts["plugins"][name])
        odd = {host: path for host, path in there.items() if path.endswith(")")}
        if odd:
            step = f"covey build {name} makes it anew" if name != "tcp" else "install the wheel"
            yield Check("plug-ins", WARNING, f"another build: {by_value(odd)}", step)
    lists = per_host(
        found.facts, lambda facts: ", ".join(n for n, path in facts["plugins"].items() if path)
    )
    state = OK if len({*lists.values()}) == 1 else NOTE
    yield Check("plug-ins", state, by_value({h: lists.get(h, "none") for h in found.facts}))


def _folder(found: Findings) -> Iterator[Check]:
    bad = per_host(found.facts, lambda facts: facts["folder"])
    if bad:
        step = "start coveyrun in a folder that every host has"
        yield Check("folder", FAILED, f"{found.cwd}: {by_value(bad)} ({in_short([*bad])})", step)
    else:
        yield Check("folder", OK, found.cwd)


def _variables(found: Findings) -> Iterator[Check]:
    said = [f"{name}={text}" for name, text in sorted(found.variables.items())]
    refused = per_host(found.facts, lambda facts: _refused_variable(facts["memory"]))
    if refused:
        yield Check("variables", FAILED, by_value(refused), "correct or unset it")
    else:
        yield Check("variables", OK, f"ranks get {', '.join(said) or 'no COVEY_*'}")
    for host, facts in found.facts.items():
        own = [f"{name}={text}" for name, text in sorted(facts["variables"].items())]
        if own:
            step = "the login sets it there (~/.bashrc, /etc/environment); -x NAME=VALUE wins"
            yield Check("variables", WARNING, f"{host} has its own {', '.join(own)}", step)


def _refused_variable(why: str) -> str:
    """The reason why there is no memory, where it is a variable."""
    return why if why.startswith("COVEY_") else ""


def _cores_of(facts: Mapping[str, Any]) -> float:
    return min(facts["cores"], facts["groups"].get("cpus", math.inf))


def _cores(found: Findings) -> Iterator[Check]:
    texts, crowded, quotas = {}, [], {}
    for host, facts in found.facts.items():
        ranks, cores = found.ranks[host], _cores_of(facts)
        texts[host] = f"{ranks} rank{'s' * (ranks > 1)} on {cores:g} core{'s' * (cores != 1)}"
        if ranks > cores:
            crowded.append(host)
        if cores < facts["cores"]:
            quotas[host] = f"{cores:g} of {facts['cores']} cores by the quota of the control group"
    yield Check("cores", OK, by_value(texts))
    if crowded:
        yield Check(
            "cores", WARNING, f"more ranks than cores on {in_short(crowded)}: they take turns",
            "start fewer ranks there",
        )  # fmt: skip
    if quotas:
        step = "set OMP_NUM_THREADS to cores / ranks: frameworks count all cores"
        yield Check("cores", WARNING, by_value(quotas), step)


def _memory(found: Findings) -> Iterator[Check]:
    broken = per_host(found.facts, lambda facts: facts["memory"])
    if {why for why in broken.values() if not _refused_variable(why)}:
        yield Check("memory", FAILED, by_value(broken))
    texts = {}
    for host, facts in found.facts.items():
        limit, need = facts["groups"].get("memory"), found.ranks[host] * _LEAST_BYTES
        if limit is None:
            texts[host] = "no limit of a control group"
            continue
        left = max(0, limit - facts["groups"].get("memory_used", 0))
        texts[host] = f"{in_bytes(left)} left of {in_bytes(limit)} (memory.max)"
        if left < need:
            yield Check(
                "memory", WARNING,
                f"{host}: {texts[host]}, and {found.ranks[host]} ranks of PyTorch take about "
                f"{in_bytes(need)} before any model",
                "raise the limit or start fewer ranks",
            )  # fmt: skip
    if not broken:
        yield Check("memory", OK, f"shared memory can be made; {by_value(texts)}")


def _limits(found: Findings) -> Iterator[Check]:
    size, texts, any_bad = sum(found.ranks.values()), {}, False
    for host, facts in found.facts.items():
        limits, ranks = facts["limits"], found.ranks[host]
        texts[host] = ", ".join(f"{n} {_of(limits[n])}" for n in ("NOFILE", "NPROC", "MEMLOCK"))
        for name, need, why in (
            ("NOFILE", max(size - ranks + _OF_A_RANK, _PER_RANK * ranks + _OF_AN_AGENT),
             "connections and pipes"),
            ("AS", facts["address_space"], "addresses that a rank reserves"),
        ):  # fmt: skip
            if limits[name] is not None and limits[name] < need:
                any_bad = True
                step = f"raise it: ulimit {'-n' if name == 'NOFILE' else '-v'}"
                step += " or /etc/security/limits.conf"
                seen = f"{host}: RLIMIT_{name} is {limits[name]}, and a job needs {need} ({why})"
                yield Check("limits", FAILED, seen, step)
        for check in _tasks(host, facts, ranks):
            any_bad = True
            yield check
    if not any_bad:
        yield Check("limits", OK, by_value(texts) + " (RDMA alone needs MEMLOCK)")


def _tasks(host: str, facts: Mapping[str, Any], ranks: int) -> Iterator[Check]:
    """Processes and threads."""
    groups, need = facts["groups"], facts["cores"] + _THREADS * ranks
    left = {"pids.max": groups["pids"] - groups.get("pids_used", 0)} if "pids" in groups else {}
    if not facts["is_root"] and facts["limits"]["NPROC"] is not None:
        left["RLIMIT_NPROC"] = facts["limits"]["NPROC"]
    for name, room in left.items():
        if room < need:
            state = FAILED if room < 2 * ranks else WARNING
            seen = f"{host}: {name} leaves {room:.0f} processes and threads, and {ranks} ranks "
            yield Check("limits", state, f"{seen}have about {need}", "raise it")


def _of(limit: Any) -> str:
    return "unlimited" if limit is None else str(limit)


def _kernel(found: Findings) -> Iterator[Check]:
    kernels = per_host(found.facts, lambda facts: facts["kernel"])
    yield Check("kernel", OK, f"Linux {by_value(kernels)}")
    old = [host for host, text in kernels.items() if _version(text) < _FINDS_SILENCE]
    if old and len(found.ranks) > 1:
        seen = f"before Linux 6.15 on {in_short(old)}: a host that was silent for long and returns "
        yield Check("kernel", NOTE, f"{seen}may be heard again up to 2 minutes late")
    blind = [host for host, facts in found.facts.items() if not facts["pidfd"]]
    if blind:
        seen = f"no pidfd on {in_short(blind)}: the death of a rank is found by looking"
        yield Check("kernel", NOTE, seen)


def _version(release: str) -> Any:
    return tuple(int(part) for part in re.findall(r"\d+", release)[:2])


def _shm(found: Findings) -> Check:
    rooms = {host: facts["shm"] for host, facts in found.facts.items()}
    texts = {h: "none" if room is None else f"{in_bytes(room)} free" for h, room in rooms.items()}
    seen = f"{by_value(texts)}; Covey does not use it (memfd)"
    if min(room or 0 for room in rooms.values()) < _LEAST_SHM:
        step = "of a container: docker's --shm-size, Kubernetes' emptyDir of medium Memory there"
        return Check("/dev/shm", NOTE, f"{seen}, PyTorch's DataLoader and NCCL do", step)
    return Check("/dev/shm", OK, seen)


def _gpus(found: Findings) -> Iterator[Check]:
    texts = {h: _gpu_text(facts["gpus"]) for h, facts in found.facts.items()}
    state = OK if len({*texts.values()}) == 1 else NOTE
    yield Check("GPUs", state, by_value(texts))
    blind = [
        host
        for host, facts in found.facts.items()
        if facts["gpus"] and facts["packages"].get("torch", "").endswith("+cpu")
    ]
    if blind:
        seen = f"torch is the build for CPUs on {in_short(blind)}: it uses no GPU"
        yield Check("GPUs", WARNING, seen, "install torch's build with CUDA")


def _rdma(found: Findings) -> Iterator[Check]:
    """InfiniBand and RoCE: between hosts alone, and where all have it."""
    ports = per_host(found.facts, lambda facts: "; ".join(facts["rdma"]))
    without = [host for host in found.facts if host not in ports]
    texts = by_value({host: ports.get(host, "none") for host in found.facts})
    if not ports or len(found.ranks) == 1:
        yield Check("RDMA", OK, texts)
        return
    if without:
        yield Check("RDMA", NOTE, f"{texts}: all ranks go by TCP", "start on hosts that have it")
        return
    missing = [host for host, facts in found.facts.items() if not facts["plugins"]["ucx"]]
    if missing:
        seen = f"{texts}, and no libcovey_ucx.so on {in_short(missing)}: all ranks go by TCP"
        step = "covey build ucx, on each host; under mpirun the site's MPI uses it"
        yield Check("RDMA", WARNING, seen, step)
        return
    low = per_host(found.facts, lambda facts: _low_locked(facts["limits"]["MEMLOCK"]))
    if low:
        seen = f"RLIMIT_MEMLOCK is {by_value(low)} on {in_short([*low])}: UCX may not register "
        yield Check("RDMA", WARNING, f"{seen}its memory", "raise it: ulimit -l unlimited")
        return
    yield Check("RDMA", OK, f"{texts}, by UCX")


def _low_locked(limit: Any) -> str:
    return "" if limit is None or limit >= _LEAST_LOCKED else str(limit)


def _gpu_text(gpus: Any) -> str:
    """As `2 x NVIDIA H100, 550.54`."""
    kinds = {kind: gpus.count(kind) for kind in gpus}
    return ", ".join(f"{count} x {kind}" for kind, count in kinds.items()) or "none"
