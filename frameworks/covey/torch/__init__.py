"""Covey for torch, by the names of Horovod.

A program written for Horovod changes one line::

    import covey.torch as hvd

    hvd.init()
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1 * hvd.size()),
        named_parameters=model.named_parameters(),
    )
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)

Tensors are on the CPU or on CUDA, for collectives and for every method of DistributedOptimizer.
"""

from __future__ import annotations

from typing import Any, List

from .. import horovod  # Relative: pyright knows its __all__ so.
from covey.as_horovod.modules import module_in
from covey.handles import Handle, checked, poll
from covey.horovod import *  # noqa: F401,F403  # The same under every framework.
from covey.method import lr_scale
from covey.objects import allgather_object, broadcast_object
from covey.torch import elastic, ops  # noqa: F401  hvd.elastic.run
from covey.torch.c10d import backend
from covey.torch.c10d.backend import monitored_barrier
from covey.torch.checkpoint import Loaded, load, save
from covey.torch.compression import Compression, Compressor
from covey.torch.ddp import DistributedDataParallel
from covey.torch.functions import broadcast_optimizer_state, broadcast_parameters
from covey.torch.ops import *  # noqa: F401,F403  # The operations: ops.__all__.
from covey.torch.optimizer import DistributedOptimizer
from covey.torch.replicas import check_replicas
from covey.torch.sparse import sparse_allreduce_async
from covey.torch.sync_batch_norm import SyncBatchNorm
from covey.torch.tensors import FRAMEWORK, code_of_dtype  # noqa: F401  # For covey.memory.
from covey.torch.view import Consensus, consensus

backend.register()

__all__ = [
    "Compression",
    "Compressor",
    "Consensus",
    "DistributedDataParallel",
    "DistributedOptimizer",
    "Handle",
    "Loaded",
    "SyncBatchNorm",
    "allgather_object",
    "broadcast_object",
    "broadcast_optimizer_state",
    "broadcast_parameters",
    "check_replicas",
    "consensus",
    "load",
    "lr_scale",
    "monitored_barrier",
    "poll",
    "save",
    "sparse_allreduce_async",
    "synchronize",
]
__all__ += horovod.__all__
__all__ += ops.__all__


def __getattr__(name: str) -> Any:
    return module_in(__name__, name)


def __dir__() -> List[str]:
    """The public names: submodules are reached by ``import``."""
    return sorted(__all__)


def synchronize(handle: Any) -> Any:
    """Waits for the operation of ``handle`` and returns its result; None for None, as Horovod does.

    Raises:
        Mismatch, Aborted: (HorovodInternalErrors) the operation failed.

    Example:
        >>> mean = hvd.synchronize(hvd.allreduce_async(tensor, name="x"))
    """
    return None if handle is None else checked(handle).wait()
