"""What torchrun_test starts: `torchrun_script.py BACKEND OUT` trains a small net under DDP and
calls collectives of torch.distributed; each rank writes what came out to OUT.RANK."""

import json
import os
import sys

import torch
import torch.distributed as dist

import covey.torch  # noqa: F401  registers the backend


def train() -> float:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(20, 50), torch.nn.ReLU(), torch.nn.Linear(50, 3))
    parallel = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(parallel.parameters(), lr=0.1)
    own = torch.Generator().manual_seed(100 + dist.get_rank())
    for _ in range(10):
        data = torch.randn(8, 20, generator=own)
        labels = torch.randint(0, 3, (8,), generator=own)
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(parallel(data), labels).backward()
        optimizer.step()
    return sum(parameter.double().sum().item() for parameter in model.parameters())


def collectives() -> dict:
    rank, size = dist.get_rank(), dist.get_world_size()
    total = torch.full((3,), float(1 << rank))
    dist.all_reduce(total)
    largest = torch.tensor([rank * 3 + 1])
    dist.all_reduce(largest, op=dist.ReduceOp.MAX)
    sent = torch.full((2,), float(rank))
    dist.broadcast(sent, 1)
    rows = [torch.zeros(2) for _ in range(size)]
    dist.all_gather(rows, torch.full((2,), float(rank + 10)))
    into = [torch.zeros(2) for _ in range(size)] if rank == 1 else None
    dist.gather(torch.full((2,), float(rank + 20)), into, dst=1)
    later = torch.full((4,), float(rank + 1))
    work = dist.all_reduce(later, async_op=True)
    work.wait()
    ends = dist.new_group([0, size - 1])
    part = torch.ones(1) * (rank + 1)
    if rank in (0, size - 1):
        dist.all_reduce(part, group=ends)
    dist.barrier()
    reduced = torch.full((2,), float(rank + 1))
    dist.reduce(reduced, 1)
    came = torch.zeros(3)
    ring = [dist.isend(total, (rank + 1) % size), dist.irecv(came, (rank - 1) % size)]
    for message in ring:
        message.wait()
    swapped = torch.zeros(size)
    dist.all_to_all_single(swapped, torch.arange(float(size)) + 10 * rank)
    share = torch.zeros(2)
    dist.reduce_scatter(share, [torch.full((2,), float(r + rank)) for r in range(size)])
    return {
        "all_reduce": total.tolist(),
        "max": largest.tolist(),
        "broadcast": sent.tolist(),
        "all_gather": [row.tolist() for row in rows],
        "gather": [row.tolist() for row in into or ()],
        "async": later.tolist(),
        "group": part.tolist(),
        "reduce": reduced.tolist() if rank == 1 else None,
        "message": came.tolist(),
        "all_to_all": swapped.tolist(),
        "reduce_scatter": share.tolist(),
    }


torch.set_num_threads(1)
dist.init_process_group(sys.argv[1])
result = {"size": dist.get_world_size(), "model": train(), **collectives()}
with open(f"{sys.argv[2]}.{dist.get_rank()}", "w") as file:
    json.dump(result, file)
dist.destroy_process_group()
if sys.argv[1] == "gloo":
    os._exit(0)  # Its threads may outlive its groups: then the process is aborted at its end.
