"""The jobs of `covey bench --device cuda`: one for each path, which is chosen when Covey starts."""

from __future__ import annotations

import tempfile
from typing import Dict, List, Optional, Tuple

from covey.bench.cards import nccl_is_absent, paths_of
from covey.bench.contest import Contest, Row
from covey.bench.flag import Flag
from covey.bench.job import Found, Work
from covey.launch.run_function import run

Plan = Tuple[Tuple[str, ...], Optional[str], Dict[str, str]]
"""The paths to measure, the backend of torch.distributed beside them, and why what is absent is,
by name."""


def rank_main(work: Work, path: str, backend: Optional[str], folder: str) -> Found:
    """As job.rank_main, on the card of this rank: ranks share cards where there are fewer.

    `backend`: torch.distributed's, which takes part; None: no peer does.
    """
    import torch

    import covey
    from covey.bench import cuda, cuda_kernels

    covey.init()
    torch.cuda.set_device(covey.local_rank() % torch.cuda.device_count())
    torch.zeros(1, device=cuda.DEVICE)  # its context is current from now on
    flag = Flag(folder, covey.rank(), covey.size())
    with flag, cuda.Peer(backend, folder) as peer:
        contest = Contest(work.effort, flag)
        rows: List[Row]
        if work.kind == "allreduce":
            sizes = work.sizes or cuda.ALLREDUCE_BYTES[: 2 if work.small else None]
            rows = cuda.allreduce(sizes, path, peer, contest)
        elif work.kind == "kernels":
            sizes = work.sizes or cuda_kernels.SIZES_BYTES
            kernels = cuda_kernels.Kernels()
            rows = cuda_kernels.bench(kernels, sizes, contest)
            kernels.close()
        else:
            rows = cuda.step(path, peer, contest, work.small)
    versions = {"covey": covey.__version__, "torch": torch.__version__}
    covey.shutdown()
    return rows, versions


def _paths_here() -> Tuple[str, ...]:
    import covey

    covey.init()
    found = paths_of(covey.knobs())
    covey.shutdown()
    return found


def plan(size: int, cards: int, wants_peer: bool) -> Plan:
    """torch's NCCL takes part where each rank has a card, else torch's Gloo."""
    paths: Tuple[str, ...] = run(_paths_here)[0]
    why = nccl_is_absent(size, cards)
    if why is None:
        return paths, "nccl" if wants_peer else None, {}
    absent = {"covey nccl": why} if "nccl" in paths else {}
    absent.update({"torch nccl": why} if wants_peer else {})
    others = tuple(path for path in paths if path != "nccl")
    return others, "gloo" if wants_peer else None, absent


def measure(work: Work, size: int, path: str, backend: Optional[str]) -> Found:
    """One job. Raises LaunchError or JobFailed."""
    with tempfile.TemporaryDirectory(prefix="covey-bench-") as folder:
        env = {"COVEY_CUDA_PATH": path, "COVEY_IPC_BYTES": "0", "COVEY_NCCL_BYTES": "0"}
        found: Found = run(rank_main, (work, path, backend, folder), num_proc=size, env=env)[0]
        return found
