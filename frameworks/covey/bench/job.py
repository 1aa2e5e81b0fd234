"""The work of the ranks of a bench job, and how such a job is started."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from typing import Any, Dict, List, Optional, Sequence, Tuple

from covey.bench import mpis
from covey.bench.contest import Contest, Effort, Row
from covey.bench.flag import Flag
from covey.launch.run_function import run

KINDS = ("latency", "allreduce", "step", "fusion", "model", "methods", "codecs")
PEERS = ("gloo", "ddp", *mpis.NAMES)
DEFAULT_PEERS = {
    "latency": ("gloo", *mpis.NAMES),
    "allreduce": ("gloo", *mpis.NAMES),
    "step": ("gloo", "ddp", *mpis.NAMES),
    "fusion": ("gloo", "ddp", *mpis.NAMES),
    "model": ("ddp",),
    "methods": (),
    "codecs": (),
}
ALONE = ("codecs",)
"""Kinds that one rank measures."""


@dataclass(frozen=True)
class Work:
    """The measurements to make.

    Attributes:
        kind: of KINDS.
        effort: how long.
        small: a try-out with little work, for tests.
        sizes: bytes, of latency and allreduce; None: the usual ones.
    """

    kind: str
    effort: Effort
    small: bool = False
    sizes: Optional[Tuple[int, ...]] = None


Found = Tuple[List[Row], Dict[str, str]]


def rank_main(work: Work, peer_names: Sequence[str], folder: Optional[str]) -> Found:
    """Measures and returns (rows, versions), the same on every rank.

    `folder`: an empty folder of the job's; None: its ranks share none, being on several hosts.
    """
    import torch

    import covey
    from covey.bench import codecs, collectives, methods, model, shapes, step
    from covey.bench.peers import Peers

    covey.init()
    small = work.small
    flag = Flag(folder, covey.rank(), covey.size())
    with flag, Peers(peer_names, folder) as peers:
        contest = Contest(work.effort, flag)
        rows: List[Row]
        if work.kind in ("latency", "allreduce"):
            sizes: Any = collectives.LATENCY_BYTES[:: 9 if small else 1]
            if work.kind == "allreduce":
                sizes = collectives.ALLREDUCE_BYTES[: 3 if small else None]
            rows = collectives.bench(work.sizes or sizes, peers, contest)
        elif work.kind == "step":
            rows = step.bench(shapes.resnet50()[: 20 if small else None], peers, contest)
        elif work.kind == "fusion":
            rows = step.bench(shapes.many_small()[: 20 if small else None], peers, contest)
        elif work.kind == "methods":
            rows = methods.bench(shapes.resnet50()[: 20 if small else None], small, contest)
        elif work.kind == "codecs":
            rows = codecs.bench(codecs.SIZES_BYTES[: 1 if small else None], contest)
        else:
            rows = model.bench(small, peers, contest)
    versions = {"covey": covey.__version__, "torch": torch.__version__, **peers.versions}
    covey.shutdown()
    return rows, versions


Jobs = List[Tuple[Optional[mpis.Mpi], List[str]]]


def plan(names: Sequence[str]) -> Tuple[Jobs, Dict[str, str]]:
    """The jobs that measuring `names` takes, as (mpi or None, peers), and why some are absent.

    Contestants without MPI take part in the first job; every further MPI has a job of its own.
    """
    found = {name: mpis.find(name) for name in names if name in mpis.NAMES}
    absent = {name: why for name, why in found.items() if isinstance(why, str)}
    there = [mpi for mpi in found.values() if not isinstance(mpi, str)]
    others = [name for name in names if name not in mpis.NAMES]
    jobs: Jobs = [(mpi, [mpi.name]) for mpi in there] or [(None, [])]
    jobs[0] = (jobs[0][0], others + jobs[0][1])
    return jobs, absent


def measure(work: Work, size: int, mpi: Optional[mpis.Mpi], peers: Sequence[str]) -> Found:
    """One job: starts it, returns what it found. Raises LaunchError or JobFailed."""
    with tempfile.TemporaryDirectory(prefix="covey-bench-") as folder:
        arguments = (work, tuple(peers), folder)
        if mpi is None:
            found: Found = run(rank_main, arguments, num_proc=size)[0]
            return found
        call_folder = os.path.join(folder, "call")
        os.mkdir(call_folder)
        return mpis.run(mpi, size, call_folder, rank_main, arguments)
