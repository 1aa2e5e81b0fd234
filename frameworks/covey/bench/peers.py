"""The other runtimes, initialised in the same processes. Needs torch."""

from __future__ import annotations

import datetime
import os
from typing import Sequence

import torch
import torch.distributed as dist

import covey

KNOWN = ("gloo", "ddp")


class Peers:
    """Within `with`, torch.distributed is up over Gloo if one of `names` needs it."""

    def __init__(self, names: Sequence[str], folder: str) -> None:
        """`folder` is shared by the ranks and empty."""
        self.names = tuple(names)
        self._folder = folder

    def __enter__(self) -> Peers:
        if self.names:
            dist.init_process_group(
                "gloo",
                init_method="file://" + os.path.join(self._folder, "store"),
                rank=covey.rank(),
                world_size=covey.size(),
                timeout=datetime.timedelta(seconds=120),
            )
        return self

    def __exit__(self, *exception: object) -> None:
        if self.names:
            dist.destroy_process_group()

    def has(self, name: str) -> bool:
        """Whether this peer takes part."""
        return name in self.names


def gloo_allreduce(tensor: torch.Tensor) -> None:
    """A blocking sum in place."""
    dist.all_reduce(tensor)


def gloo_allreduce_all(tensors: Sequence[torch.Tensor]) -> None:
    """All tensors in flight together, then waits for all."""
    works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
    for work in works:
        work.wait()
