"""Covey as a backend of torch.distributed: ``init_process_group("covey")``.

For CPU tensors: DDP, and other code that calls all_reduce, broadcast, all_gather or barrier, runs
over Covey then, under coveyrun or torchrun. Other calls say that they are not there yet.

Every call of a process group is an operation of one ordered stream, which is the group's own:
ranks must make the calls of a group in one order, as with every backend. Those of other groups of
the same ranks, and Covey's own operations, are not part of it.

Example:
    >>> import covey.torch  # doctest: +SKIP
    >>> torch.distributed.init_process_group("covey")  # doctest: +SKIP
    >>> model = torch.nn.parallel.DistributedDataParallel(model)  # doctest: +SKIP
"""

from __future__ import annotations

import os
import threading
from datetime import timedelta
from typing import Any, Callable, List, Optional

import torch
import torch.distributed as dist

import covey.torch as hvd
from covey import basics, rendezvous
from covey.errors import Timeout, Unsupported
from covey.group import GroupApart
from covey.method import unused
from covey.torch.backend import NAME
from covey.torch.call_limit import Limit
from covey.torch.completions import Completions, CoveyFuture, Program, current_lane, waiting

_REDUCE_OPS = {
    dist.ReduceOp.SUM: hvd.Sum,
    dist.ReduceOp.AVG: hvd.Average,
    dist.ReduceOp.MIN: hvd.Min,
    dist.ReduceOp.MAX: hvd.Max,
    dist.ReduceOp.PRODUCT: hvd.Product,
}
_OTHER_OPS = ("BAND", "BOR", "BXOR")
_NOT_YET = (
    *("reduce", "scatter", "send", "recv", "recv_anysource", "allgather_coalesced"),
    *("reduce_scatter", "_reduce_scatter_base", "reduce_scatter_single", "alltoall_base"),
    *("reduce_scatter_tensor_coalesced", "all_to_all_single", "alltoall"),
)
"""Calls of a process group for which torch would say that there is no backend at all."""


class CoveyWork(dist._Work):
    """One call in flight.

    The group's timeout is a limit of every wait for it, and its future fails then. The operation
    itself stays in flight, and calls that come later in the group after it: they end once those
    that are missing have come, and waiting again may succeed.
    """

    def __init__(
        self,
        handle: Any,
        outputs: List[torch.Tensor],
        finish: Callable[[Any], None],
        future: CoveyFuture,
        limit: Limit,
    ) -> None:
        super().__init__()
        self._handle = handle
        self._outputs = outputs
        self._finish = finish
        self._lock = threading.Lock()
        self._finished = False
        self._error: Optional[Exception] = None
        self._future = future
        self._limit = limit

    def _end(self, timeout: Optional[float]) -> None:
        # A waiting thread and Completions may both come: the second waits for the first.
        left = self._limit.left()
        is_last = timeout is None or timeout >= left
        limit = left if timeout is None else min(timeout, left)
        try:
            if not self._lock.acquire(timeout=limit):
                raise Timeout(f"a call of torch.distributed has not ended within {timeout} s")
            try:
                if not self._finished:
                    self._finish(self._handle.wait(self._limit.left() if is_last else limit))
                    self._finished = True
            finally:
                self._lock.release()
        except Timeout as error:
            raise self._limit.passed(self._handle, None if is_last else timeout) from error

    def await_end(self) -> None:
        """Called by Completions, before end_future."""
        try:
            self._end(None)
        except Exception as error:  # pylint: disable=broad-except
            self._error = error

    def end_future(self) -> None:
        """Runs its callbacks."""
        if self._error is not None:
            self._future.set_exception(self._error)
        else:
            self._future.set_result(self._outputs)

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        with waiting():
            self._end(timeout.total_seconds() or None)
        return True

    def is_completed(self) -> bool:
        """Also, as torch has it, when its timeout is over: then ``exception()`` says so."""
        return bool(self._handle.poll()) or self._limit.left() == 0

    def is_success(self) -> bool:
        return self.is_completed() and not isinstance(self.exception(), Exception)

    def exception(self) -> Any:
        try:
            self._end(0.0)
        except Exception as error:  # pylint: disable=broad-except
            return error
        return None

    def get_future(self) -> torch.futures.Future:
        return self._future

    def result(self) -> List[torch.Tensor]:
        self.wait()
        return self._outputs


def _nothing(_: Any) -> None:
    pass


def _one(tensors: List[torch.Tensor], what: str) -> torch.Tensor:
    if len(tensors) != 1:
        raise Unsupported(f"{what} over Covey takes one tensor per rank, not {len(tensors)}")
    return tensors[0]


class CoveyProcessGroup(dist.ProcessGroup):
    """A process group whose calls are Covey's operations on the same ranks."""

    def __init__(self, rank: int, ranks: List[int], name: str, timeout: timedelta) -> None:
        super().__init__(rank, len(ranks))
        self._ranks = sorted(ranks)
        self._group = GroupApart(ranks, f"c10d.{name}")
        self._completions = Completions()
        self._program = Program(name)
        self._name = name
        self._timeout = timeout

    def getBackendName(self) -> str:
        return NAME

    def _begun(
        self,
        what: str,
        begin: Callable[..., Any],
        *tensors: Any,
        outputs: List[torch.Tensor],
        finish: Callable[[Any], None] = _nothing,
        **options: Any,
    ) -> CoveyWork:
        """One call, of the name ``what``: ``begin`` is a function of covey.torch, the rest its
        arguments."""
        lane = current_lane()
        place = lane or self._program
        call = place.next_call()
        name = None if lane is None else call.name
        limit = Limit(f"{what} in process group '{self._name}'", self._ranks, self._timeout)
        handle = begin(*tensors, name=name, process_set=self._group, **options)
        place.made()
        work = CoveyWork(handle, outputs, finish, CoveyFuture(call), limit)
        self._completions.add(lane, work)
        return work

    def _op(self, opts: Any) -> int:
        for theirs, ours in _REDUCE_OPS.items():
            if opts.reduceOp == theirs:
                return ours
        known = (name for name in _OTHER_OPS if opts.reduceOp == getattr(dist.ReduceOp, name))
        raise Unsupported(
            f"ReduceOp.{next(known, opts.reduceOp)} is no reduction of Covey's: it has SUM, AVG, "
            "MIN, MAX and PRODUCT"
        )

    def allreduce(self, tensors: List[torch.Tensor], opts: Any = None) -> CoveyWork:
        op = self._op(opts or dist.AllreduceOptions())
        tensor = _one(tensors, "allreduce")
        return self._begun("all_reduce", hvd.allreduce_async_, tensor, op=op, outputs=tensors)

    def allreduce_coalesced(self, tensors: List[torch.Tensor], opts: Any = None) -> CoveyWork:
        op = self._op(opts or dist.AllreduceOptions())
        begin = hvd.grouped_allreduce_async_
        return self._begun("all_reduce_coalesced", begin, tensors, op=op, outputs=tensors)

    def broadcast(self, tensors: List[torch.Tensor], opts: Any) -> CoveyWork:
        tensor = _one(tensors, "broadcast")
        root = self._ranks[opts.rootRank]
        return self._begun("broadcast", hvd.broadcast_async_, tensor, root, outputs=tensors)

    def allgather(
        self, outputs: List[List[torch.Tensor]], inputs: List[torch.Tensor], opts: Any = None
    ) -> CoveyWork:
        del opts
        into = outputs[0]
        row = _one(inputs, "allgather").reshape(1, -1)

        def finish(rows: torch.Tensor) -> None:
            for target, row in zip(into, rows):
                target.copy_(row.view(target.shape))

        return self._begun("all_gather", hvd.allgather_async, row, outputs=into, finish=finish)

    def gather(
        self, outputs: List[List[torch.Tensor]], inputs: List[torch.Tensor], opts: Any
    ) -> CoveyWork:
        into = outputs[0] if outputs else []  # on the root only
        row, root = _one(inputs, "gather").reshape(1, -1), self._ranks[opts.rootRank]

        def finish(rows: torch.Tensor) -> None:
            for target, row in zip(into, rows):
                target.copy_(row.view(target.shape))

        return self._begun("gather", hvd.gather_async, row, root, outputs=into, finish=finish)

    def _allgather_base(
        self, output: torch.Tensor, given: torch.Tensor, opts: Any = None
    ) -> CoveyWork:
        del opts

        def finish(rows: torch.Tensor) -> None:
            output.copy_(rows.view(output.shape))

        row = given.reshape(1, -1)
        what, begin = "all_gather_into_tensor", hvd.allgather_async
        return self._begun(what, begin, row, outputs=[output], finish=finish)

    # The name since torch 2.13.
    all_gather_single = _allgather_base

    def barrier(self, opts: Any = None) -> CoveyWork:
        del opts
        none = torch.zeros(0)
        return self._begun("barrier", hvd.allreduce_async, none, op=hvd.Sum, outputs=[])

    def shutdown(self) -> None:
        """Waits for the operations in flight."""
        self._completions.close()


def _not_yet(name: str) -> Callable[..., Any]:
    def call(*_: Any, **__: Any) -> Any:
        raise Unsupported(
            f"{name.strip('_')} is not in Covey's backend of torch.distributed yet: it has "
            "all_reduce, broadcast, all_gather, gather and barrier; covey.torch has more by itself"
        )

    return call


for _name in _NOT_YET:
    setattr(CoveyProcessGroup, _name, _not_yet(_name))


def create(options: Any, _backend_options: Any = None) -> CoveyProcessGroup:
    """The function that torch.distributed calls for a new group."""
    ranks = list(options.global_ranks_in_group) or list(range(options.group_size))
    if not basics.is_initialized():
        if not rendezvous.under_coveyrun(os.environ) and options.group_size > 1:
            rendezvous.meet(options.store, options.group_rank, options.group_size)
        basics.init()
    unused("torch.distributed's backend")
    if len(ranks) > basics.size() or ranks[options.group_rank] != basics.rank():
        raise Unsupported(
            f"this process is rank {ranks[options.group_rank]} of {len(ranks)} for "
            f"torch.distributed and rank {basics.rank()} of {basics.size()} for Covey: both need "
            "the same launcher"
        )
    return CoveyProcessGroup(options.group_rank, ranks, options.group_id, options.timeout)

