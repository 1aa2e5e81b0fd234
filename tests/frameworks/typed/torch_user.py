"""A user's script for a type checker: a training with PyTorch. See ../typing_test.py."""

import torch

import covey.torch as hvd

hvd.init()
model = torch.nn.Linear(8, 1)
optimizer = hvd.DistributedOptimizer(
    torch.optim.SGD(model.parameters(), lr=0.01 * hvd.size()),
    named_parameters=model.named_parameters(),
    compression=hvd.Compression.fp16,
    op=hvd.Average,
)
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
hvd.broadcast_optimizer_state(optimizer, root_rank=0)
optimizer.zero_grad()
loss: torch.Tensor = model(torch.randn(16, 8)).square().mean()
optimizer.synchronize()
with optimizer.skip_synchronize():
    optimizer.step()
optimizer.finish(strict=True)
total: torch.Tensor = hvd.allreduce(torch.tensor(1.0), name="total", op=hvd.Sum)
handle = hvd.allreduce_async(torch.tensor(1.0), op=hvd.Sum)
done: bool = hvd.poll(handle)
later: torch.Tensor = handle.wait(timeout=1.0)
both: list[torch.Tensor] = hvd.grouped_allreduce([total, later], op=hvd.Max)
received: torch.Tensor = hvd.allgather(total.reshape(1))
one: hvd.ProcessSet = hvd.add_process_set([0])
place: int = hvd.rank() + hvd.local_rank()
with hvd.consensus(model) as mean:
    distance: float = mean.distance
try:
    hvd.barrier()
except hvd.HorovodInternalError as error:
    print(error.code)
hvd.save("run", model, optimizer)
epoch = hvd.load("run", model, optimizer)["epoch"]
norm = hvd.SyncBatchNorm(8)(torch.ones(2, 8))
n: torch.Tensor = hvd.neighbor_allreduce(total, topology="ring")
hvd.shutdown()
