"""What the ranks of a bench job execute: `covey.run(rank_main, ...)`."""

from __future__ import annotations

from typing import Any, Dict, List, Sequence, Tuple

from covey.bench.contest import Effort, Row

KINDS = ("latency", "allreduce", "step", "model")
DEFAULT_PEERS = {
    "latency": ("gloo",),
    "allreduce": ("gloo",),
    "step": ("gloo", "ddp"),
    "model": ("ddp",),
}


def rank_main(
    kind: str, peer_names: Sequence[str], folder: str, effort: Effort, small: bool
) -> Tuple[List[Row], Dict[str, str]]:
    """Measures and returns (rows, versions), the same on every rank.

    `folder`: an empty folder of the job's. `small`: a try-out with little work, for tests.
    """
    import torch

    import covey
    from covey.bench import collectives, model, shapes, step
    from covey.bench.peers import Peers

    covey.init()
    with Peers(peer_names, folder) as peers:
        rows: List[Row]
        if kind == "latency":
            sizes: Any = collectives.LATENCY_BYTES[:: 9 if small else 1]
            rows = collectives.bench(sizes, peers, effort)
        elif kind == "allreduce":
            sizes = collectives.ALLREDUCE_BYTES[: 3 if small else None]
            rows = collectives.bench(sizes, peers, effort)
        elif kind == "step":
            rows = step.bench(shapes.resnet50()[: 20 if small else None], peers, effort)
        else:
            rows = model.bench(2 if small else 8, 32 if small else 64, peers, effort)
    versions = {"covey": covey.__version__, "torch": torch.__version__}
    covey.shutdown()
    return rows, versions
