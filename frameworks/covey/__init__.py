"""Covey: communication for distributed training.

Every process of a job is a *rank*. They are started together by ``coveyrun`` and meet in
``init()``::

    import covey, torch

    covey.init()
    tensor = torch.full((4,), float(covey.rank()))
    total = covey.allreduce(tensor, op=covey.Sum, name="example")

The operations take torch tensors, numpy arrays and TensorFlow's tensors, and give back the same
kind. TensorFlow's tensors have no ``..._async`` forms and none in place: a graph orders operations
itself, and tensors are not overwritten. For training see :mod:`covey.torch` and
:mod:`covey.tensorflow`, which also have the names of Horovod. ``dir(covey)`` lists what there is,
``help(covey.NAME)`` tells of one; how to clip, accumulate, save, and which method to take:
examples/guide in Covey's repository.

Limits: a name has up to 1,024 bytes, with the operation's before it (``allreduce.``), a tensor 16
dimensions, a grouped call 8,192 tensors. Integers wrap (:data:`Average`). From an ``..._async``
call until ``synchronize`` leave its tensors alone: ``resize_()`` or ``.data =`` then corrupt
memory. The full list is core/api/LIMITS.md in Covey's repository.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Callable, List

from covey import _native, ops
from covey.as_horovod.modules import Finder
from covey.basics import (
    cross_rank,
    cross_size,
    init,
    is_homogeneous,
    is_initialized,
    knobs,
    local_rank,
    local_size,
    lost_ranks,
    rank,
    shutdown,
    size,
    start_timeline,
    stats,
    status,
    stop_timeline,
)
from covey.errors import (
    Aborted,
    BadCheckpoint,
    CoveyError,
    Exhausted,
    Forked,
    Internal,
    InvalidArgument,
    Mismatch,
    NotFinite,
    NotInitialized,
    NotSaved,
    OperationError,
    Timeout,
    Unsupported,
)
from covey.group import Group, group, world
from covey.handles import Handle, poll, synchronize
from covey.memory import arena_empty
from covey.method import lr_scale, methods
from covey.objects import allgather_object, broadcast_object
from covey.ops import *  # noqa: F401,F403  # The operations: ops.__all__.
from covey.reduce_op import Adasum, Average, Max, Min, Product, ReduceOp, Sum
from covey.topology import Topology, topology

if TYPE_CHECKING:
    from covey import numpy, torch  # noqa: F401

__version__: str = _native.version

__all__ = [
    "Aborted",
    "Adasum",
    "Average",
    "BadCheckpoint",
    "CoveyError",
    "Exhausted",
    "Forked",
    "Group",
    "Handle",
    "Internal",
    "InvalidArgument",
    "Max",
    "Min",
    "Mismatch",
    "NotFinite",
    "NotInitialized",
    "NotSaved",
    "OperationError",
    "Product",
    "ReduceOp",
    "Sum",
    "Timeout",
    "Topology",
    "Unsupported",
    "allgather_object",
    "arena_empty",
    "broadcast_object",
    "check_replicas",
    "consensus",
    "cross_rank",
    "cross_size",
    "group",
    "init",
    "is_homogeneous",
    "is_initialized",
    "knobs",
    "load",
    "local_rank",
    "local_size",
    "lost_ranks",
    "lr_scale",
    "methods",
    "poll",
    "rank",
    "run",
    "save",
    "shutdown",
    "size",
    "start_timeline",
    "stats",
    "status",
    "stop_timeline",
    "synchronize",
    "topology",
    "world",
]
__all__ += ops.__all__

sys.meta_path.append(Finder("covey"))  # covey.torch.mpi_ops and the like.


def __getattr__(name: str) -> Any:
    raise ops.absent(__name__, name)


def __dir__() -> List[str]:
    """The public names: submodules are reached by ``import``."""
    return sorted(__all__)


def check_replicas(model: Any, group: Group = world) -> None:
    """Checks that the parameters and buffers of a torch model are bitwise equal on all ranks.

    Args:
        model: a torch.nn.Module or a dict of torch tensors.
        group: the ranks to compare; this rank must be one of them.

    Raises:
        Mismatch: names the first tensor that differs and which ranks agree with each other.

    Example:
        >>> covey.check_replicas(model)
    """
    from covey.torch.replicas import check_replicas as check  # Only here is torch needed.

    check(model, group)


def consensus(model: Any, *, exact: bool = False, timeout: float = 1.0) -> Any:
    """Within ``with covey.consensus(model)`` a model has the mean of all ranks' parameters.

    Any rank calls it alone, and no rank waits. The mean by each method, its results and what it
    raises: :func:`covey.torch.consensus`.

    Args:
        model: a torch.nn.Module whose parameters a ``DistributedOptimizer`` trains, a Keras model
            that was compiled with one, or a ``covey.numpy.Trainer``.
        exact: all ranks call it, and get the exact mean of all.
        timeout: seconds to look again at a rank whose model is being changed, or is on its way from
            another host.

    Example:
        >>> with covey.consensus(model) as mean:
        ...     print(accuracy(model), mean.distance, mean.ages, mean.missing)
    """
    arrays = sys.modules.get("covey.numpy_trainer")  # No framework is imported for another's model.
    if arrays is not None and isinstance(model, arrays.Trainer):
        from covey.numpy_consensus import consensus as of_arrays

        return of_arrays(model, exact=exact, timeout=timeout)
    if _is_of_keras(model):
        from covey.keras.mean_model import consensus as of_variables

        return of_variables(model, exact=exact, timeout=timeout)
    from covey.torch.view import consensus as of_tensors

    return of_tensors(model, exact=exact, timeout=timeout)


def _is_of_keras(model: Any) -> bool:
    keras = sys.modules.get("keras")
    return keras is not None and isinstance(model, (keras.Model, keras.optimizers.Optimizer))


def save(path: Any, model: Any, optimizer: Any = None, **also: Any) -> None:
    """Saves a training as one folder, with all that its method holds; all ranks call it.

    All that it does and raises: :func:`covey.torch.save`, for models of Keras
    :func:`covey.keras.save`.

    Args:
        path: the folder, in a file system that all ranks share.
        model: a torch.nn.Module, or a Keras model.
        optimizer: a ``DistributedOptimizer``; None: the one that a Keras model was compiled with.
        **also: a scheduler and the like (torch), and plain values.

    Example:
        >>> covey.save("run/last", model, optimizer, scheduler=scheduler, epoch=epoch)
    """
    if _is_of_keras(model):
        from covey.keras.checkpoint import save as write_variables

        return write_variables(path, model, optimizer, **also)
    from covey.torch.checkpoint import save as write

    return write(path, model, optimizer, **also)


def load(path: Any, model: Any, optimizer: Any = None, **also: Any) -> Any:
    """Goes on from where ``save`` was called; all ranks call it. Says what was reset.

    All that it gives and raises: :func:`covey.torch.load`, for models of Keras
    :func:`covey.keras.load`.

    Args:
        path: the folder, in a file system that all ranks share, or a copy of it on every host.
        model: a torch.nn.Module, or a Keras model, made as it was for ``save``.
        optimizer: a ``DistributedOptimizer`` of the same class; None: that of a Keras model.
        **also: objects that were saved by these names (torch).

    Example:
        >>> loaded = covey.load("run/last", model, optimizer, scheduler=scheduler)
        >>> first = loaded["epoch"] + 1
    """
    if _is_of_keras(model):
        from covey.keras.checkpoint import load as read_variables

        return read_variables(path, model, optimizer, **also)
    from covey.torch.checkpoint import load as read

    return read(path, model, optimizer, **also)


def run(func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Calls ``func`` in new processes of this host, the ranks of one job.

    The order is ``run(func, args=(), kwargs=None, num_proc=1, np=None, output_dir=None, env=None,
    verbose=False, method=None, quiet=False, preload=())``; others go by name.

    Args:
        func: a function of a module, or of the main script below ``if __name__ == "__main__"``;
            with cloudpickle installed also a lambda, a local one or one of a notebook.
        args, kwargs: arguments of ``func``, a sequence and a dict, the same on every rank.
        num_proc, np: number of ranks.
        output_dir: folder for rank.N/stdout and rank.N/stderr beside what is shown.
        env: further environment variables of the ranks.
        verbose: tell what the launcher does.
        method: how the ranks train together, as ``coveyrun --method``.
        quiet: no method card, notices, warnings or table.
        preload: modules that one process imports, of which the ranks are forks.
        others: of ``horovod.run``: ``start_timeout`` (seconds), ``min_num_proc``, ``max_num_proc``
            and ``reset_limit``, by which ranks may come and go, ``hosts`` (this one) and
            ``output_filename``. One without a meaning here is ignored with a line.

    Returns:
        The results by rank; where ranks come and go, of those that the job had at its end.

    Raises:
        InvalidArgument: (a ValueError) an argument of another kind; no such method.
        covey.launch.JobFailed: a rank failed; the text names it and ends with its traceback.
        covey.launch.LaunchError: the job could not start, or needs several hosts; the function or
            a result cannot be pickled.
        KeyboardInterrupt: Ctrl-C; the ranks have ended.

    Example:
        >>> covey.run(train, np=2)  # doctest: +SKIP
    """
    from covey.launch import run as launch  # A rank does not need the launcher.

    return launch(func, *args, **kwargs)
