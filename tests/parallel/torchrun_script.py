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
    missing = []
    if dist.get_backend() == "covey":
        for call in (
            lambda: dist.reduce(total, 0),
            lambda: dist.send(total, (rank + 1) % size),
            lambda: dist.all_to_all_single(later, torch.zeros(4)),
            lambda: dist.reduce_scatter_tensor(part, torch.zeros(size)),
            lambda: dist.all_reduce(largest, op=dist.ReduceOp.BXOR),
        ):
            try:
                call()
            except ValueError as error:
                missing.append(str(error).split(" is ")[0])
    return {
        "missing": missing,
        "all_reduce": total.tolist(),
        "max": largest.tolist(),
        "broadcast": sent.tolist(),
        "all_gather": [row.tolist() for row in rows],
        "gather": [row.tolist() for row in into or ()],
        "async": later.tolist(),
        "group": part.tolist(),
    }


torch.set_num_threads(1)
dist.init_process_group(sys.argv[1])
result = {"size": dist.get_world_size(), "model": train(), **collectives()}
with open(f"{sys.argv[2]}.{dist.get_rank()}", "w") as file:
    json.dump(result, file)
dist.destroy_process_group()
if sys.argv[1] == "gloo":
    os._exit(0)  # Its threads may outlive its groups: then the process is aborted at its end.
