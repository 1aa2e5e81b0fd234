"""Covey as the backend of code that is built on torch.distributed: DeviceMesh, functional
collectives, DTensor, tensor parallelism, FSDP2, FSDP1, pipelines, distributed checkpoints.

Method: two ranks; each is compared with the same by one process without communication.
"""

from __future__ import annotations

import copy
import tempfile
import unittest
from typing import Any, Callable, Iterator

import torch
import torch.distributed as dist
from process_groups import in_group
from ranks import SharedPool

SIZE = 2
BATCH, WIDTH = 6, 8
LEARNING_RATE = 0.1
pools = SharedPool(__file__)


def tearDownModule() -> None:
    pools.close()


def mesh() -> Any:
    return dist.device_mesh.init_device_mesh("cpu", (SIZE,), mesh_dim_names=("ranks",))


def model() -> torch.nn.Module:
    torch.manual_seed(1)
    return torch.nn.Sequential(
        torch.nn.Linear(WIDTH, 2 * WIDTH), torch.nn.ReLU(), torch.nn.Linear(2 * WIDTH, WIDTH)
    )


def batches() -> Iterator[torch.Tensor]:
    """The batches of all ranks, by step."""
    for step in range(3):
        random = torch.Generator().manual_seed(step)
        yield torch.randn(SIZE * BATCH, WIDTH, generator=random)


def own(batch: torch.Tensor) -> torch.Tensor:
    return batch.chunk(SIZE)[dist.get_rank()]


def train(trained: torch.nn.Module, part: Callable[[torch.Tensor], torch.Tensor]) -> None:
    optimizer = torch.optim.SGD(trained.parameters(), LEARNING_RATE)
    for batch in batches():
        trained(part(batch)).pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()


def alone() -> torch.nn.Module:
    """The model trained by one process on all batches."""
    trained = model()
    train(trained, lambda batch: batch)
    return trained


@in_group
def functional() -> None:
    import torch.distributed._functional_collectives as collectives

    rank, group = dist.get_rank(), mesh().get_group("ranks")
    row = torch.arange(4.0) + rank
    total = collectives.all_reduce(row, "sum", group) + 0
    assert total.tolist() == [1.0, 3.0, 5.0, 7.0], total
    gathered = collectives.all_gather_single(row, 0, group) + 0
    assert gathered.tolist() == [0.0, 1.0, 2.0, 3.0, 1.0, 2.0, 3.0, 4.0], gathered
    part = collectives.reduce_scatter_single(row, "sum", 0, group) + 0
    assert torch.equal(part, total.chunk(SIZE)[rank]), part
    swapped = collectives.all_to_all_single(row, None, None, group) + 0
    assert torch.equal(
        swapped, torch.cat([(torch.arange(4.0) + r).chunk(2)[rank] for r in range(SIZE)])
    ), swapped
    compiled = torch.compile(
        lambda x: collectives.all_reduce(2 * x, "sum", group) + 1, backend="aot_eager"
    )
    assert compiled(torch.ones(2)).tolist() == [5.0, 5.0]


@in_group
def tensors() -> None:
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        parallelize_module,
    )

    ranks = mesh()
    whole = torch.arange(24.0).view(8, 3)
    sharded = distribute_tensor(whole, ranks, [Shard(0)])
    assert sharded.to_local().shape == (8 // SIZE, 3)
    assert torch.equal(sharded.full_tensor(), whole)
    assert torch.equal(sharded.redistribute(ranks, [Shard(1)]).full_tensor(), whole)
    copies = sharded.redistribute(ranks, [Replicate()])
    assert torch.equal((copies @ copies.T).full_tensor(), whole @ whole.T)
    plain, batch = model(), next(batches())
    plan = {"0": ColwiseParallel(), "2": RowwiseParallel()}
    parallel = parallelize_module(copy.deepcopy(plain), ranks, plan)
    torch.testing.assert_close(parallel(batch), plain(batch))


@in_group
def sharded_data_parallel() -> None:
    from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard

    expected = alone()
    trained = model()
    for layer in (trained[0], trained[2], trained):
        fully_shard(layer, mesh=mesh())
    train(trained, own)
    for mine, theirs in zip(trained.parameters(), expected.parameters()):
        torch.testing.assert_close(mine.full_tensor(), theirs)
    wrapped = FullyShardedDataParallel(model(), device_id=torch.device("cpu"))
    train(wrapped, own)
    with FullyShardedDataParallel.summon_full_params(wrapped):
        for mine, theirs in zip(wrapped.parameters(), expected.parameters()):
            torch.testing.assert_close(mine.flatten(), theirs.flatten())


@in_group
def pipeline() -> None:
    """The first layer on rank 0, the rest on rank 1."""
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B

    whole, rank = model(), dist.get_rank()
    part = torch.nn.Sequential(*list(whole)[:1] if rank == 0 else list(whole)[1:])
    stage = PipelineStage(part, rank, SIZE, torch.device("cpu"))
    schedule = Schedule1F1B(stage, n_microbatches=2, loss_fn=lambda y, t: (y - t).pow(2).mean())
    batch = next(batches())
    target = torch.zeros(len(batch), WIDTH)
    if rank == 0:
        schedule.step(batch)
    else:
        schedule.step(target=target, losses=[])
    expected = model()
    for half, aim in zip(batch.chunk(2), target.chunk(2)):
        ((expected(half) - aim).pow(2).mean() / 2).backward()
    layers = list(expected)[:1] if rank == 0 else list(expected)[1:]
    for mine, theirs in zip(part.parameters(), torch.nn.Sequential(*layers).parameters()):
        torch.testing.assert_close(mine.grad, theirs.grad)


@in_group
def checkpoint(folder: str) -> None:
    """Written by FSDP2's shards, read into a model that is whole on each rank, and back."""
    import torch.distributed.checkpoint as checkpoints
    from torch.distributed.checkpoint.state_dict import get_model_state_dict
    from torch.distributed.fsdp import fully_shard

    trained = fully_shard(model(), mesh=mesh())
    train(trained, own)
    checkpoints.save(get_model_state_dict(trained), checkpoint_id=folder)
    read = {name: torch.zeros_like(tensor) for name, tensor in model().state_dict().items()}
    checkpoints.load(read, checkpoint_id=folder)
    for name, tensor in alone().state_dict().items():
        torch.testing.assert_close(read[name], tensor)
    saving = checkpoints.async_save({"again": read}, checkpoint_id=f"{folder}/again")
    saving.result()
    again = {"again": {name: torch.zeros_like(tensor) for name, tensor in read.items()}}
    checkpoints.load(again, checkpoint_id=f"{folder}/again")
    for name, tensor in read.items():
        torch.testing.assert_close(again["again"][name], tensor)


class StackTest(unittest.TestCase):
    def test_functional_collectives(self) -> None:
        pools(SIZE).call(functional)

    def test_distributed_tensors(self) -> None:
        pools(SIZE).call(tensors)

    def test_fully_sharded_data_parallel(self) -> None:
        pools(SIZE).call(sharded_data_parallel)

    def test_a_pipeline(self) -> None:
        pools(SIZE).call(pipeline)

    def test_a_distributed_checkpoint(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            pools(SIZE).call(checkpoint, folder)


if __name__ == "__main__":
    unittest.main()
