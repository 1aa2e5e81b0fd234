"""The jobs of `covey bench --device cuda`: one for each path, which is chosen when Covey starts."""

from __future__ import annotations

import tempfile
from typing import Dict, List, Tuple

from covey.bench.cards import nccl_is_absent, paths_of
from covey.bench.contest import Contest, Row
from covey.bench.flag import Flag
from covey.bench.job import Found, Work
from covey.launch.run import run


def rank_main(work: Work, path: str, with_peer: bool, folder: str) -> Found:
    """As job.rank_main, on the card of this rank: ranks share cards where there are fewer."""
    import torch

    import covey
    from covey.bench import cuda, cuda_kernels

    covey.init()
    torch.cuda.set_device(covey.local_rank() % torch.cuda.device_count())
    torch.zeros(1, device=cuda.DEVICE)  # its context is current from now on
    flag = Flag(folder, covey.rank(), covey.size())
    with flag, cuda.Nccl(with_peer, folder) as peer:
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


def plan(size: int, cards: int, wants_peer: bool) -> Tuple[Tuple[str, ...], bool, Dict[str, str]]:
    """The paths to measure, whether torch's NCCL takes part, and why what is absent is, by name."""
    paths: Tuple[str, ...] = run(_paths_here)[0]
    why = nccl_is_absent(size, cards)
    if why is None:
        return paths, wants_peer, {}
    absent = {"covey nccl": why} if "nccl" in paths else {}
    absent.update({"torch nccl": why} if wants_peer else {})
    return tuple(path for path in paths if path != "nccl"), False, absent


def measure(work: Work, size: int, path: str, with_peer: bool) -> Found:
    """One job. Raises LaunchError or JobFailed."""
    with tempfile.TemporaryDirectory(prefix="covey-bench-") as folder:
        env = {"COVEY_CUDA_PATH": path}
        found: Found = run(rank_main, (work, path, with_peer, folder), num_proc=size, env=env)[0]
        return found
