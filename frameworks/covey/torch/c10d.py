"""Covey as a backend of torch.distributed: ``init_process_group("covey")``.

For CPU tensors, under coveyrun or torchrun: the collectives, messages between two ranks, and what
is built on them, such as DDP, FSDP2, DTensor and torch.distributed.checkpoint.

Every collective of a process group is an operation of one ordered stream, which is the group's own:
ranks must make the calls of a group in one order, as with every backend. Those of other groups of
the same ranks, messages, and Covey's own operations are not part of it.

Example:
    >>> import covey.torch  # doctest: +SKIP
    >>> torch.distributed.init_process_group("covey")  # doctest: +SKIP
    >>> model = torch.nn.parallel.DistributedDataParallel(model)  # doctest: +SKIP
"""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Any, List, Optional

import torch
import torch.distributed as dist

from covey import basics, rendezvous
from covey.errors import InvalidArgument, Unsupported
from covey.group import GroupApart
from covey.method import unused
from covey.torch import c10d_calls as calls
from covey.torch.backend import NAME
from covey.torch.c10d_points import AnyWork, Points, RecvWork
from covey.torch.c10d_work import CoveyWork, InFlight
from covey.torch.call_limit import Limit
from covey.torch.completions import CoveyFuture, Program, current_lane
from covey.torch.monitored_barrier import meet

_NO_TIME = timedelta(0)
_LEAST = timedelta(milliseconds=1)
Tensors = List[torch.Tensor]


def _op_of(opts: Any) -> Any:
    return dist.ReduceOp.SUM if opts is None else opts.reduceOp


class CoveyProcessGroup(dist.ProcessGroup):
    """A process group whose calls are Covey's operations on the same ranks."""

    supports_splitting = False
    supports_coalescing = False
    supports_time_estimate = False

    def __init__(
        self, rank: int, ranks: List[int], name: str, timeout: timedelta, store: Any
    ) -> None:
        super().__init__(rank, len(ranks))
        self._rank = rank
        self._ranks = list(ranks)
        self._group = GroupApart(ranks, f"c10d.{name}")
        self._in_flight = InFlight()
        self._program = Program(name)
        self._name = name
        self._description = "undefined"
        self._timeout = timeout
        self._calls = 0
        self._store = store
        self._points = Points(rank, self._ranks, name, store, self._in_flight)

    # ---- A group's properties. C++ calls the functions in camel case.

    def getBackendName(self) -> str:
        return NAME

    def getGroupName(self) -> str:
        return self._name

    def setGroupName(self, name: str) -> None:
        self._name = name

    def getGroupDesc(self) -> str:
        return self._description

    def setGroupDesc(self, description: str) -> None:
        self._description = description

    def get_group_store(self) -> Any:
        return self._store

    def _get_backend(self, _device: torch.device) -> CoveyProcessGroup:
        """The group is its own, for every device: its calls say what they cannot do."""
        return self

    def _set_sequence_number_for_group(self) -> None:
        self._calls = 0

    def _get_sequence_number_for_group(self) -> int:
        return self._calls

    def set_timeout(self, timeout: timedelta) -> None:
        """The timeout of calls that begin from now on."""
        self._timeout = timeout

    def shutdown(self) -> None:
        """Waits for the collectives in flight, and for the callbacks of futures."""
        self._in_flight.close()
        self._points.close()

    def abort(self) -> None:
        """The futures of operations in flight do not end any more."""
        self._in_flight.leave()

    # ---- Collectives; `opts` are torch's.

    def _limit(self, opts: Any) -> timedelta:
        own = getattr(opts, "timeout", _NO_TIME)
        return own if own > _NO_TIME else self._timeout

    def _begun(self, call: calls.Begin, opts: Any = None) -> CoveyWork:
        lane = current_lane()
        place = lane or self._program
        number = place.next_call()
        name = None if lane is None else number.name
        limit = Limit(
            f"{call.what} in process group '{self._name}'", self._ranks, self._limit(opts)
        )
        handle = call.function(*call.given, name=name, process_set=self._group, **call.options)
        place.made()
        self._calls += 1
        how = call.finish, CoveyFuture(number), limit, lane, self._in_flight
        work = CoveyWork(handle, call.outputs, *how)
        self._in_flight.add(work)
        return work

    def _root(self, opts: Any) -> int:
        """The rank of the job."""
        if not 0 <= opts.rootRank < len(self._ranks):
            raise InvalidArgument(
                f"rank {opts.rootRank} is not in process group '{self._name}', which has "
                f"{len(self._ranks)} ranks"
            )
        return self._ranks[opts.rootRank]

    def allreduce(self, tensors: Tensors, opts: Any = None) -> CoveyWork:
        return self._begun(calls.allreduce(tensors, _op_of(opts)), opts)

    def allreduce_coalesced(self, tensors: Tensors, opts: Any = None) -> CoveyWork:
        return self._begun(calls.allreduce_coalesced(tensors, _op_of(opts)), opts)

    def reduce(self, tensors: Tensors, opts: Any) -> CoveyWork:
        self._root(opts)
        call = calls.reduce(tensors, opts.reduceOp, opts.rootRank == self._rank)
        return self._begun(call, opts)

    def broadcast(self, tensors: Tensors, opts: Any) -> CoveyWork:
        return self._begun(calls.broadcast(tensors, self._root(opts)), opts)

    def barrier(self, opts: Any = None) -> CoveyWork:
        return self._begun(calls.barrier(), opts)

    def monitored_barrier(
        self, timeout: Optional[timedelta] = None, wait_all_ranks: bool = False
    ) -> None:
        limit = self._timeout if timeout is None else max(timeout, _LEAST)
        options = dist.BarrierOptions()
        options.timeout = limit
        place = self._rank, self._ranks
        meet(self.barrier(options), *place, limit, wait_all_ranks)

    def allgather(self, outputs: List[Tensors], inputs: Tensors, opts: Any = None) -> CoveyWork:
        return self._begun(calls.allgather(outputs, inputs, len(self._ranks)), opts)

    def allgather_coalesced(
        self, outputs: List[Tensors], inputs: Tensors, opts: Any = None
    ) -> CoveyWork:
        return self._begun(calls.allgather_coalesced(outputs, inputs, len(self._ranks)), opts)

    def all_gather_single(
        self, output: torch.Tensor, given: torch.Tensor, opts: Any = None
    ) -> CoveyWork:
        return self._begun(calls.allgather_single(output, given, len(self._ranks)), opts)

    def all_gather_single_coalesced(
        self, outputs: Tensors, inputs: Tensors, opts: Any = None
    ) -> CoveyWork:
        size = len(self._ranks)
        return self._begun(calls.allgather_single_coalesced(outputs, inputs, size), opts)

    def gather(self, outputs: List[Tensors], inputs: Tensors, opts: Any) -> CoveyWork:
        root, size = self._root(opts), len(self._ranks)
        return self._begun(calls.gather(outputs, inputs, root, size), opts)

    def scatter(self, outputs: Tensors, inputs: List[Tensors], opts: Any) -> CoveyWork:
        self._root(opts)
        return self._begun(calls.scatter(outputs, inputs, len(self._ranks)), opts)

    def reduce_scatter(
        self, outputs: Tensors, inputs: List[Tensors], opts: Any = None
    ) -> CoveyWork:
        place = self._rank, len(self._ranks)
        return self._begun(calls.reduce_scatter(outputs, inputs, _op_of(opts), *place), opts)

    def reduce_scatter_single(
        self, output: torch.Tensor, given: torch.Tensor, opts: Any = None
    ) -> CoveyWork:
        place = self._rank, len(self._ranks)
        call = calls.reduce_scatter_single(output, given, _op_of(opts), *place)
        return self._begun(call, opts)

    def reduce_scatter_single_coalesced(
        self, outputs: Tensors, inputs: Tensors, opts: Any = None
    ) -> CoveyWork:
        size, op = len(self._ranks), _op_of(opts)
        call = calls.reduce_scatter_single_coalesced(outputs, inputs, op, size)
        return self._begun(call, opts)

    def all_to_all_single(
        self,
        output: torch.Tensor,
        given: torch.Tensor,
        output_splits: List[int],
        input_splits: List[int],
        opts: Any = None,
    ) -> CoveyWork:
        size = len(self._ranks)
        call = calls.all_to_all_single(output, given, output_splits, input_splits, size)
        return self._begun(call, opts)

    def alltoall(self, outputs: Tensors, inputs: Tensors, opts: Any = None) -> CoveyWork:
        return self._begun(calls.all_to_all(outputs, inputs, len(self._ranks)), opts)

    # The names of before torch 2.13.
    _allgather_base = all_gather_single
    allgather_into_tensor_coalesced = all_gather_single_coalesced
    _reduce_scatter_base = reduce_scatter_single
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced
    alltoall_base = all_to_all_single

    # ---- Messages. Ranks are those in the group.

    def send(self, tensors: Tensors, target: int, tag: int) -> CoveyWork:
        return self._points.send(calls.one(tensors, "send"), target, tag, self._timeout)

    def recv(self, tensors: Tensors, source: int, tag: int) -> RecvWork:
        return self._points.recv(calls.one(tensors, "recv"), source, tag, self._timeout)

    def recv_anysource(self, tensors: Tensors, tag: int) -> AnyWork:
        return self._points.recv_any(calls.one(tensors, "recv"), tag, self._timeout)


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
    place = options.group_rank, ranks
    return CoveyProcessGroup(*place, options.group_id, options.timeout, options.store)
