"""torch.compile around code that uses Covey as the backend of torch.distributed.

Method: two ranks; a compiled training is compared with the same one by one process, which is not
compiled. Compiled functions are called often enough to run after their graph breaks.
"""

from __future__ import annotations

import unittest
from datetime import timedelta
from typing import Any, Callable

import torch
import torch.distributed as dist
from process_groups import in_group
from ranks import SharedPool

SIZE = 2
STEPS, BATCH, WIDTH = 3, 4, 8
LEARNING_RATE = 0.1
pools = SharedPool(__file__)


def tearDownModule() -> None:
    pools.close()


def model() -> torch.nn.Module:
    torch.manual_seed(1)
    return torch.nn.Sequential(
        torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU(), torch.nn.Linear(WIDTH, WIDTH)
    )


def train(trained: Callable[..., Any], parameters: Any, part: slice) -> None:
    optimizer = torch.optim.SGD(parameters, LEARNING_RATE)
    for step in range(STEPS):
        random = torch.Generator().manual_seed(step)
        batch = torch.randn(SIZE * BATCH, WIDTH, generator=random)
        trained(batch[part]).pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()


@in_group
def training(kind: str) -> None:
    """The compiled model is as that of one process that is trained on all batches."""
    from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard

    expected, rank = model(), dist.get_rank()
    train(expected, expected.parameters(), slice(None))
    wrapped: Any
    parallel = torch.nn.parallel.DistributedDataParallel
    if kind == "DDP within":
        wrapped = parallel(torch.compile(model(), backend="aot_eager"))
    elif kind == "DDP":
        wrapped = parallel(model())
    elif kind == "FSDP1":
        cpu = torch.device("cpu")
        wrapped = FullyShardedDataParallel(model(), device_id=cpu, use_orig_params=True)
    else:
        wrapped = fully_shard(model(), mesh=dist.device_mesh.init_device_mesh("cpu", (SIZE,)))
    compiled = wrapped if "within" in kind else torch.compile(wrapped, backend="aot_eager")
    train(compiled, wrapped.parameters(), slice(rank * BATCH, (rank + 1) * BATCH))
    batch = torch.ones(BATCH, WIDTH)
    torch.testing.assert_close(compiled(batch), expected(batch))


def waited(work: Any) -> None:
    """In every way."""
    work.wait()
    assert work.is_completed() and work.is_success() and work.exception() is None
    assert work.get_future().wait() is not None


def all_kinds(rank: int, one: torch.Tensor) -> torch.Tensor:
    """Calls between operations; each leaves the sum over ranks, or the tensor of rank 0, in a
    tensor."""
    dist.barrier()
    total = one + 1
    dist.all_reduce(total)
    dist.broadcast(one, 0)
    total = total + one
    waited(dist.all_reduce(total, async_op=True))
    rows = [torch.zeros_like(one) for _ in range(SIZE)]
    dist.all_gather(rows, one)
    if rank == 0:
        dist.send(one, 1)
        dist.isend(one, 1).wait()
        dist.isend(one, 1).wait()
    else:
        dist.recv(one, 0)
        dist.irecv(one, 0).wait()
        any_rank = dist.irecv(one)
        any_rank.wait()
        assert any_rank.is_completed() and any_rank.is_success()
    dist.monitored_barrier(timeout=timedelta(minutes=1))
    return total + sum(rows) + one


@in_group
def calls() -> None:
    rank = dist.get_rank()
    compiled = torch.compile(all_kinds, backend="eager")
    for _ in range(STEPS):
        # (1 + 1) + (2 + 1), and rank 0's 1: 6, of both ranks; rows of 1, and 1.
        assert compiled(rank, torch.full((2,), rank + 1.0)).tolist() == [15.0, 15.0]


@in_group
def whole_graph() -> None:
    import torch.distributed._functional_collectives as collectives

    group = dist.group.WORLD
    compiled = torch.compile(
        lambda x: collectives.all_reduce(2 * x, "sum", group) + 1,
        backend="aot_eager",
        fullgraph=True,
    )
    for value in (1.0, 2.0):
        assert compiled(torch.full((2,), value)).tolist() == [SIZE * 2 * value + 1] * 2


class CompileTest(unittest.TestCase):
    def test_trainings(self) -> None:
        for kind in ("DDP", "DDP within", "FSDP1", "FSDP2"):
            with self.subTest(kind):
                pools(SIZE).call(training, kind)

    def test_calls_between_operations(self) -> None:
        pools(SIZE).call(calls)

    def test_functional_collectives_in_one_graph(self) -> None:
        pools(SIZE).call(whole_graph)


if __name__ == "__main__":
    unittest.main()
