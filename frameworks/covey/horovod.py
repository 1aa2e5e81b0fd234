"""Horovod's names that are the same under every framework: ranks, operators, process sets, and what
is built in."""

from __future__ import annotations

import os
from typing import Iterable, Union

from covey.basics import (
    cross_rank,
    cross_size,
    init,
    is_homogeneous,
    is_initialized,
    local_rank,
    local_size,
    rank,
    shutdown,
    size,
    start_timeline,
    stop_timeline,
)
from covey.errors import OperationError
from covey.group import Group, world
from covey.plugin_path import plugin_folders
from covey.reduce_op import Adasum, Average, Max, Min, Product, Sum

__all__ = [
    "Adasum",
    "Average",
    "HorovodInternalError",
    "Max",
    "Min",
    "ProcessSet",
    "Product",
    "Sum",
    "add_process_set",
    "ccl_built",
    "cross_rank",
    "cross_size",
    "cuda_built",
    "ddl_built",
    "global_process_set",
    "gloo_built",
    "gloo_enabled",
    "init",
    "is_homogeneous",
    "is_initialized",
    "local_rank",
    "local_size",
    "mpi_built",
    "mpi_enabled",
    "mpi_threads_supported",
    "nccl_built",
    "rank",
    "remove_process_set",
    "rocm_built",
    "shutdown",
    "size",
    "start_timeline",
    "stop_timeline",
]

_CUDA = "libcovey_cuda.so"

ProcessSet = Group
"""Horovod's name of :class:`covey.Group`."""
global_process_set = world
"""Horovod's name of :data:`covey.world`: the :class:`covey.Group` of all ranks."""
HorovodInternalError = OperationError
"""Horovod's name of what :class:`covey.Mismatch` and :class:`covey.Aborted` have in common."""


class HostsUpdatedInterrupt(RuntimeError):
    """Horovod's name of a change of hosts. In an elastic job ``state.commit()`` raises it when a
    rank has come. If a script does, on all ranks, ``elastic.run`` calls its function again.

    Args:
        skip_sync: without ``state.sync()`` before.

    Example:
        >>> raise hvd.elastic.HostsUpdatedInterrupt()  # In a test of a script.
        Traceback (most recent call last):
        covey.horovod.HostsUpdatedInterrupt: the hosts have changed
    """

    def __init__(self, skip_sync: bool = False) -> None:
        super().__init__("the hosts have changed")
        self.skip_sync = skip_sync


def add_process_set(process_set: Union[Group, Iterable[int]]) -> Group:
    """The process set of some ranks. Nothing needs registration: other ranks are not asked.

    Args:
        process_set: a ProcessSet or an iterable of ranks.

    Raises:
        InvalidArgument: (a ValueError) a rank is listed twice or is not in 0..size-1.

    Example:
        >>> first = hvd.add_process_set([0, 1])
    """
    made = process_set if isinstance(process_set, Group) else Group(process_set)
    made.id  # pylint: disable=pointless-statement  # Asks the core: refuses wrong ranks now.
    return made


def remove_process_set(process_set: Group) -> bool:
    """Accepted for Horovod's sake: there is nothing to remove. Raises nothing.

    Args:
        process_set: a ProcessSet.

    Returns:
        False for the set of all ranks, else True.

    Example:
        >>> hvd.remove_process_set(first)
        True
    """
    return process_set != world


def mpi_threads_supported() -> bool:
    """False. See :func:`mpi_built`."""
    return False


def mpi_enabled() -> bool:
    """False. See :func:`mpi_built`."""
    return False


def mpi_built() -> bool:
    """False: this build does not use MPI.

    Example:
        >>> hvd.mpi_built(), hvd.gloo_built(), hvd.nccl_built()
        (False, False, 0)
    """
    return False


def gloo_enabled() -> bool:
    """False: Covey does not use Gloo. See :func:`mpi_built`."""
    return False


def gloo_built() -> bool:
    """False: Covey does not use Gloo. See :func:`mpi_built`."""
    return False


def nccl_built() -> int:
    """0: Covey is not built with NCCL. It loads the one that torch brings (COVEY_CUDA_PATH).

    See :func:`mpi_built`."""
    return 0


def ddl_built() -> bool:
    """False: Covey does not use DDL. See :func:`mpi_built`."""
    return False


def ccl_built() -> bool:
    """False: Covey does not use oneCCL. See :func:`mpi_built`."""
    return False


def cuda_built() -> bool:
    """Whether the plug-in for tensors on CUDA is there. The wheel has it. See :func:`mpi_built`."""
    return any(os.path.exists(os.path.join(one, _CUDA)) for one in plugin_folders())


def rocm_built() -> bool:
    """False: this build has no ROCm path. See :func:`mpi_built`."""
    return False
