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

Common rules of the operations:

* Tensors have any shape and strides. float32, float64, float16, bfloat16,
  and integers of 8, 16, 32 and 64 bits, signed or not, can be reduced; bool can be moved.
* ``name``: the same name on every rank finds together, in any order. Operations without a name must
  come in one order on every rank. A name is free again when its operation has ended.
* ``process_set``: the ranks that take part; this rank must be one of them.
* Errors: InvalidArgument and Unsupported (both ValueErrors) when the call is wrong here, nothing is
  submitted then; Mismatch when the ranks disagree, later operations work; Aborted when a rank died
  or left. Mismatch and Aborted are ``HorovodInternalError``.
* The functions without ``async`` wait. Those with it return a handle for ``synchronize`` and
  ``poll``; leave the tensors alone until then. So does Covey: an operation that shares memory with
  another in flight, of which one writes it, is refused (InvalidArgument names both), as their order
  would differ from rank to rank; unnamed ones of one process set come one after the other. One
  grouped call takes a tensor twice (tied weights) and gives it one result.
* The functions ending in ``_`` overwrite the tensor and return it.
* Gradients are those of the sum of all ranks' losses. As in Horovod, those of broadcast and
  allgather, which give all ranks copies of one tensor, are those of the mean; those of a
  reducescatter are larger by a factor, the size of the process set.
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
