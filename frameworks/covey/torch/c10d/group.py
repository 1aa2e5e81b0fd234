"""The process group of ``torch.distributed.init_process_group("covey")``. Internal.

For tensors on the CPU and on CUDA, under coveyrun or torchrun: the collectives, messages between
two ranks, and what is built on them, such as DDP, FSDP2, DTensor and torch.distributed.checkpoint.

On CUDA a call takes its tensors as the stream in use has them. Unlike NCCL's, ``wait()`` returns
once all ranks have made the call and the result is on its way; the stream in use then comes after
it. The device is waited for where a result is gathered or comes in parts.

Every collective of a process group is an operation of one ordered stream, which is the group's own:
ranks must make the calls of a group in one order, as with every backend. Those of other groups of
the same ranks, messages, and Covey's own operations are not part of it.

Example:
    >>> import covey.torch  # doctest: +SKIP
    >>> torch.distributed.init_process_group("covey")  # doctest: +SKIP
    >>> model = torch.nn.parallel.DistributedDataParallel(model)  # doctest: +SKIP
"""

from __future__ import annotations

import contextlib
from datetime import timedelta
from typing import Any, Callable, List, Optional, Sequence

import torch
import torch.distributed as dist

from covey import basics, by_method, notice
from covey.errors import Timeout, Unsupported
from covey.group import GroupApart
from covey.method import unused
from covey.state import state
from covey.torch.c10d import calls, job
from covey.torch.c10d.backend import DEVICES, NAME
from covey.torch.c10d.call_stream import stream_of
from covey.torch.c10d.completions import Program, current_lane
from covey.torch.c10d.forms import NO_TIME, Form
from covey.torch.c10d.points import AnyWork, Points
from covey.torch.c10d.tracing import check_real, profiled
from covey.torch.c10d.work import (
    CoveyWork,
    EndedWork,
    InFlight,
    Limit,
    Place,
    in_mode,
    is_of_inference,
)

_NOWHERE = contextlib.nullcontext()
_LEAST = timedelta(milliseconds=1)
_LISTS = "output_tensors input_tensors"
_OPERATORS = {
    "all_to_all": "alltoall_",
    "all_to_all_single": "alltoall_base_",
    "allgather_single": "_allgather_base_",
    "allgather_single_coalesced": "allgather_into_tensor_coalesced_",
    "barrier": "barrier",
    "reduce_scatter_single": "_reduce_scatter_base_",
    "reduce_scatter_single_coalesced": "reduce_scatter_tensor_coalesced_",
}
"""Torch's names of its own operators, by functions of ``calls``."""
Tensors = List[torch.Tensor]


def _collective(build: Callable[..., calls.Begin], *parameters: str) -> Callable[..., Any]:
    """The method that begins what ``build`` makes of the arguments; ``parameters``: of its Form."""
    form = Form(build.__name__, *parameters)

    @profiled(_OPERATORS.get(build.__name__, f"{build.__name__}_"))
    def begin(self: CoveyProcessGroup, *given: Any, **named: Any) -> Any:
        has_options = len(given) > form.count and not named
        timeout = getattr(given[-1], "timeout", None) if has_options else None
        if timeout is None:
            lists, opts = form.read(given, named)
            timeout = opts.timeout
        else:
            *lists, opts = given
        place = Place(self._rank, self._ranks, self._name, opts)
        call = build(*lists, place)
        limit = timeout if timeout > NO_TIME else self._timeout
        return self._begun(call, limit, place.waits)

    return begin


class CoveyProcessGroup(dist.ProcessGroup):
    """A process group whose calls are Covey's operations on the same ranks."""

    supports_splitting = False
    supports_coalescing = False
    supports_time_estimate = False
    supports_reconfigure = False
    supports_window = False

    def __init__(
        self,
        rank: int,
        ranks: List[int],
        name: str,
        timeout: timedelta,
        store: Any,
        is_default: bool,
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
        self._is_default = is_default
        keys = dist.PrefixStore(state.group_keys, store)
        self._points = Points(rank, self._ranks, name, keys, self._in_flight)

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

    @property
    def _device_types(self) -> List[torch.device]:
        """Torch asks for them before it saves a checkpoint in the background."""
        return [torch.device(name) for name in DEVICES]

    def _set_sequence_number_for_group(self) -> None:
        self._calls = 0

    def _get_sequence_number_for_group(self) -> int:
        return self._calls

    def set_timeout(self, timeout: timedelta) -> None:
        self._timeout = timeout

    def register_pre_hook(self, *_given: Any) -> None:
        """torch 2.14 calls its hooks within methods of its own class, which this one overrides."""
        raise Unsupported(
            "hooks of collectives (register_pre_hook, register_post_hook) are not called over "
            "Covey; coveyrun --timeline DIR records every call"
        )

    register_post_hook = register_pre_hook

    def shutdown(self) -> None:
        """Waits for the collectives in flight, and for the callbacks of futures. Where one has
        failed it does not: the other ranks may never make the calls that are left."""
        if self._program.has_failed:
            self._in_flight.leave()
        else:
            self._in_flight.close()
        self._points.close()

    def abort(self) -> None:
        """Operations in flight: of the default group they raise Aborted, here and on the ranks that
        wait for this one, if it began the runtime. Those of other groups stay in flight, and their
        futures do not end any more."""
        if self._is_default and state.of_group:
            basics.leave()
        self._in_flight.leave()

    # ---- Collectives.

    def _begun(self, call: calls.Begin, timeout: timedelta, waits: bool = False) -> Any:
        """A CoveyWork. ``waits``: an EndedWork, once the operation has ended, as a CoveyWork costs
        more than a small exchange; a CoveyWork if the timeout passes before."""
        check_real(call.given[0], call.what)
        if self._calls == 0:
            self._warn_of_others()
        lane = current_lane()
        place = lane or self._program
        number = place.next_call()
        name = None if lane is None else number.name
        limit = Limit(f"{call.what} in process group '{self._name}'", self._ranks, timeout)
        handle = call.function(*call.given, name=name, process_set=self._group, **call.options)
        place.made()
        self._calls += 1
        stream = stream_of(call.given, call.outputs) if torch.cuda.is_initialized() else None
        if waits and lane is None:
            try:
                with in_mode(True) if is_of_inference(call.outputs) else _NOWHERE:
                    call.finish(handle.wait(timeout.total_seconds()))
                return EndedWork(call.outputs, number, stream)
            except Timeout:
                pass  # CoveyWork.wait() says which ranks are missing.
        how = call.finish, number, stream, limit, lane, self._in_flight
        work = CoveyWork(handle, call.outputs, *how)
        self._in_flight.add(work)
        return work

    def _warn_of_others(self) -> None:
        """Torch makes a group of Covey's for all devices where it is named for one."""
        config = _config_of(self)
        others = [part for part in config.split(",") if part and not part.endswith(f":{NAME}")]
        if self._rank or not others:
            return
        if not self._is_default and config == _config_of(dist.group.WORLD):
            return  # That group has said it.
        notice.warn(
            f"the backend '{config}' of process group '{self._name}' is Covey for every device, "
            f"{' and '.join(others)} is not used: name \"covey\" alone, or the other in a group of "
            "its own, dist.new_group(backend=...)"
        )

    allreduce = _collective(calls.allreduce, "tensors", "tensor", "op")
    allreduce_coalesced = _collective(calls.allreduce_coalesced, "tensors")
    reduce = _collective(calls.reduce, "tensors", "tensor", "root op")
    broadcast = _collective(calls.broadcast, "tensors", "tensor", "root")
    barrier = _collective(calls.barrier, "")
    allgather = _collective(calls.allgather, _LISTS, "output_tensors input_tensor")
    allgather_coalesced = _collective(calls.allgather_coalesced, "output_lists input_list")
    all_gather_single = _collective(calls.allgather_single, "output input")
    all_gather_single_coalesced = _collective(
        calls.allgather_single_coalesced, "output_lists input_list"
    )
    gather = _collective(calls.gather, _LISTS, "output_tensors input_tensor", "root")
    gather_single = _collective(calls.gather_single, "output input", "", "root")
    scatter = _collective(calls.scatter, _LISTS, "output_tensor input_tensors", "root")
    reduce_scatter = _collective(calls.reduce_scatter, _LISTS, "output input", "op")
    reduce_scatter_single = _collective(calls.reduce_scatter_single, "outputTensor inputTensor")
    reduce_scatter_single_coalesced = _collective(
        calls.reduce_scatter_single_coalesced, "outputTensors inputTensors"
    )
    all_to_all_single = _collective(
        calls.all_to_all_single, "output input output_split_sizes input_split_sizes"
    )
    alltoall = _collective(calls.all_to_all, _LISTS)

    # The names of before torch 2.13.
    _allgather_base = all_gather_single
    allgather_into_tensor_coalesced = all_gather_single_coalesced
    _reduce_scatter_base = reduce_scatter_single
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced
    alltoall_base = all_to_all_single

    @profiled("monitored_barrier_")
    def monitored_barrier(
        self, timeout: Optional[timedelta] = None, wait_all_ranks: bool = False
    ) -> None:
        limit = self._timeout if timeout is None else max(timeout, _LEAST)
        work = self._begun(calls.barrier(), limit)
        try:
            work.wait()
        except Timeout as error:
            missing = [self._ranks.index(rank) for rank in work.missing()]
            words = _words_of_gloo(self._rank, missing, limit, wait_all_ranks)
            raise Timeout(f"{words}: {error}", error.peer_rank) from error

    # ---- Messages. Ranks are those in the group.

    @profiled("send")
    def send(self, tensors: Tensors, target: int, tag: int) -> CoveyWork:
        return self._points.send(calls.one(tensors, "send"), target, tag, self._timeout)

    @profiled("recv_")
    def recv(self, tensors: Tensors, source: int, tag: int) -> Any:
        return self._points.recv(calls.one(tensors, "recv"), source, tag, self._timeout)

    @profiled("recv_any_source_")
    def recv_anysource(self, tensors: Tensors, tag: int) -> AnyWork:
        return self._points.recv_any(calls.one(tensors, "recv"), tag, self._timeout)


def _config_of(group: Any) -> str:
    """Its backends by device, as ``cpu:gloo,cuda:covey``; empty: torch knows no such group."""
    try:
        return str(dist.get_backend_config(group))
    except (AssertionError, ValueError):
        return ""


def _words_of_gloo(
    rank: int, missing: Sequence[int], limit: timedelta, wait_all_ranks: bool
) -> str:
    """Tests and logs of scripts look for them. Ranks are those in the group."""
    if rank != 0:
        return (
            f"Rank {rank} successfully reached monitoredBarrier, but received errors while waiting "
            "for send/recv from rank 0"
        )
    text = f"Rank 0 timed out in monitoredBarrier after {limit.total_seconds() * 1e3:g} ms"
    if len(missing) > 1 and wait_all_ranks:
        return f"{text}: Ranks {', '.join(map(str, missing))} failed to pass monitoredBarrier"
    return f"{text}: Rank {missing[0]} failed to pass monitoredBarrier" if missing else text


def create(options: Any, _backend_options: Any = None) -> CoveyProcessGroup:
    """The function that torch.distributed calls for a new group."""
    ranks = list(options.global_ranks_in_group)
    is_default = not ranks
    if is_default:
        job.begin(options.store, options.group_rank, options.group_size)
    elif not basics.is_initialized():
        job.begin_within(options.store, options.group_rank, ranks)
    state.of_group = state.of_group and "made"
    ranks = ranks or list(range(options.group_size))
    but = "DistributedDataParallel" if by_method.is_loaded() else ""
    unused("torch.distributed's backend", but)
    if len(ranks) > basics.size() or ranks[options.group_rank] != basics.rank():
        raise Unsupported(
            f"this process is rank {ranks[options.group_rank]} of {len(ranks)} for "
            f"torch.distributed and rank {basics.rank()} of {basics.size()} for Covey: both need "
            "the same launcher"
        )
    place = options.group_rank, ranks
    how = options.group_id, options.timeout, options.store, is_default
    return CoveyProcessGroup(*place, *how)
