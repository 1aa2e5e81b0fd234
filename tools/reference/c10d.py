"""The functions of torch.distributed over Covey's backend. A test runs each row on two ranks."""

from __future__ import annotations

from typing import Dict, List, NamedTuple, Tuple

BEGIN = """
import torch
import torch.distributed as dist
import covey.torch
dist.init_process_group("covey")
rank, size = dist.get_rank(), dist.get_world_size()
peer = 1 - rank
"""
"""The code before the rows."""

EACH = """
x, y = torch.ones(4), torch.empty(4)
parts = [torch.empty(4) for _ in range(size)]
whole = torch.ones(4 * size)
things = [None] * size
group = dist.group.WORLD
"""
"""Before each row anew."""


class Row(NamedTuple):
    """A function, "yes" or "no", a call of it, and a remark, or why not."""

    name: str
    answer: str
    call: str
    remark: str = ""


_COLLECTIVES: Tuple[Tuple[str, str], ...] = (
    ("all_reduce", "dist.all_reduce(x)"),
    ("all_reduce_coalesced", "dist.all_reduce_coalesced([x, x.clone()])"),
    ("reduce", "dist.reduce(x, dst=0)"),
    ("broadcast", "dist.broadcast(x, src=0)"),
    ("all_gather", "dist.all_gather(parts, x)"),
    ("all_gather_coalesced", "dist.all_gather_coalesced([[part] for part in parts], [x])"),
    ("all_gather_into_tensor", "dist.all_gather_into_tensor(whole, x)"),
    ("all_gather_single", "dist.all_gather_single(whole, x)"),
    ("gather", "dist.gather(x, parts if rank == 0 else None, dst=0)"),
    ("scatter", "dist.scatter(x, parts if rank == 0 else None, src=0)"),
    ("reduce_scatter", "dist.reduce_scatter(x, parts)"),
    ("reduce_scatter_tensor", "dist.reduce_scatter_tensor(x, whole)"),
    ("reduce_scatter_single", "dist.reduce_scatter_single(x, whole)"),
    ("all_to_all", "dist.all_to_all(parts, [x] * size)"),
    ("all_to_all_single", "dist.all_to_all_single(torch.empty(4 * size), whole)"),
    ("barrier", "dist.barrier()"),
    ("monitored_barrier", "dist.monitored_barrier()"),
)
_MESSAGES = (
    ("send", "dist.send(x, 1) if rank == 0 else dist.recv(x, 0)"),
    ("recv", "dist.send(x, 1) if rank == 0 else dist.recv(x)"),
    ("isend", "(dist.isend(x, 1) if rank == 0 else dist.irecv(x, 0)).wait()"),
    ("irecv", "(dist.isend(x, 1, tag=7) if rank == 0 else dist.irecv(x, 0, tag=7)).wait()"),
    (
        "batch_isend_irecv",
        "[one.wait() for one in dist.batch_isend_irecv("
        "[dist.P2POp(dist.isend, x, peer), dist.P2POp(dist.irecv, y, peer)])]",
    ),
)
_OBJECTS = (
    ("all_gather_object", "dist.all_gather_object(things, rank)"),
    ("gather_object", "dist.gather_object(rank, things if rank == 0 else None)"),
    ("scatter_object_list", "dist.scatter_object_list([None], things if rank == 0 else None)"),
    ("broadcast_object_list", "dist.broadcast_object_list(things, src=0)"),
    (
        "send_object_list",
        "dist.send_object_list([1], 1) if rank == 0 else dist.recv_object_list([None], 0)",
    ),
    (
        "recv_object_list",
        "dist.send_object_list([1, 2], 1) if rank == 0 else dist.recv_object_list([None] * 2, 0)",
    ),
)
_GROUPS = (
    ("new_group", "dist.barrier(dist.new_group([0, 1]))"),
    ("new_subgroups", "dist.new_subgroups(group_size=1)"),
    ("new_subgroups_by_enumeration", "dist.new_subgroups_by_enumeration([[0], [1]])"),
    ("get_rank", "dist.get_rank()"),
    ("get_world_size", "dist.get_world_size()"),
    ("get_group_rank", "dist.get_group_rank(group, 1)"),
    ("get_global_rank", "dist.get_global_rank(group, 1)"),
    ("get_process_group_ranks", "dist.get_process_group_ranks(group)"),
    ("get_node_local_rank", "dist.get_node_local_rank()"),
    ("get_pg_count", "dist.get_pg_count()"),
    ("get_backend", "assert dist.get_backend() == 'covey'"),
    ("get_backend_config", "dist.get_backend_config()"),
    ("is_initialized", "assert dist.is_initialized()"),
    ("is_backend_available", "assert dist.is_backend_available('covey')"),
)
_NO = (
    ("split_group", "dist.split_group(split_ranks=[[0], [1]])",
     "torch wants a group with an accelerator; `new_group` does it"),
    ("shrink_group", "dist.shrink_group([1])", "torch keeps it for NCCL"),
)  # fmt: skip
OF_TORCH = (
    "get_debug_level", "get_default_backend_for_device", "is_gloo_available", "is_mpi_available",
    "is_nccl_available", "is_torchelastic_launched", "is_ucc_available", "is_xccl_available",
    "record_comm", "supports_complex",
)  # fmt: skip
"""Functions that ask torch, and no backend."""


def rows() -> List[Row]:
    """In the order in which they run; the first and the last make and end the group."""
    found = [Row("init_process_group", "yes", 'dist.init_process_group("covey")')]
    for part in (_COLLECTIVES, _MESSAGES, _OBJECTS, _GROUPS):
        found += [Row(name, "yes", call) for name, call in part]
    found += [Row(name, "no", call, why) for name, call, why in _NO]
    return [*found, Row("destroy_process_group", "yes", "dist.destroy_process_group()")]


def table() -> Dict[str, Row]:
    """By name."""
    return {row.name: row for row in rows()}
