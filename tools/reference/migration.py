"""Lines of Horovod, and of torch.distributed with DistributedDataParallel, beside those with
Covey. A test runs both columns on two ranks, each as one script from the first row to the last."""

from __future__ import annotations

from typing import NamedTuple, Tuple

BEGIN = """
import contextlib, os, tempfile
import torch
model = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 1))
sgd = torch.optim.SGD(model.parameters(), lr=0.1)
x, obj = torch.ones(4), {"epoch": 3}
loss_of = lambda: model(torch.randn(4, 8)).square().mean()
"""
"""The code before both columns."""


class Row(NamedTuple):
    """A purpose, and the lines for it before and after."""

    purpose: str
    before: str
    after: str


HOROVOD: Tuple[Row, ...] = (
    Row("the module", "import horovod.torch as hvd", "import covey.torch as hvd"),
    Row("begin", "hvd.init()", "hvd.init()"),
    Row("the device", "device = hvd.local_rank()", "device = hvd.local_rank()"),
    Row("equal models", "hvd.broadcast_parameters(model.state_dict(), root_rank=0)",
        "hvd.broadcast_parameters(model.state_dict(), root_rank=0)"),
    Row("the optimizer",
        "opt = hvd.DistributedOptimizer(sgd, named_parameters=model.named_parameters())",
        "opt = hvd.DistributedOptimizer(sgd, model=model)"),
    Row("equal optimizers", "hvd.broadcast_optimizer_state(opt, root_rank=0)",
        "hvd.broadcast_optimizer_state(opt, root_rank=0)"),
    Row("a step", "loss_of().backward(); opt.step(); opt.zero_grad()",
        "loss_of().backward(); opt.step(); opt.zero_grad()"),
    Row("a mean", "hvd.allreduce(x, average=True)", "hvd.allreduce(x, op=hvd.Average)"),
    Row("one's own name", "hvd.allreduce(x, name='loss')", "hvd.allreduce(x, name='loss')"),
    Row("half of the bytes", "hvd.allreduce(x, compression=hvd.Compression.fp16)",
        "hvd.allreduce(x, compression=hvd.Compression.bf16)"),
    Row("an eighth of the bytes", "", "hvd.allreduce(x, codec='qsgd@bits=4')"),
    Row("some of the ranks", "some = hvd.add_process_set([0, 1])", "some = hvd.ProcessSet([0, 1])"),
    Row("among them", "hvd.allreduce(x, process_set=some)", "hvd.allreduce(x, process_set=some)"),
    Row("errors", "failed = hvd.HorovodInternalError", "failed = hvd.HorovodInternalError"),
    Row("another method", "",
        "sgd = torch.optim.SGD(model.parameters(), lr=0.1);"
        " opt = hvd.DistributedOptimizer(sgd, model=model, method='local', local_steps=2)"),
    Row("one model again", "", "opt.finish()"),
    Row("unequal batches", "hvd.join()", "hvd.join()"),
    Row("end", "hvd.shutdown()", "hvd.shutdown()"),
)  # fmt: skip

DDP: Tuple[Row, ...] = (
    Row("the module", "import torch.distributed as dist", "import covey.torch as hvd"),
    Row("begin", "dist.init_process_group('gloo')", "hvd.init()"),
    Row("the place", "rank, size = dist.get_rank(), dist.get_world_size()",
        "rank, size = hvd.rank(), hvd.size()"),
    Row("the device", "device = int(os.environ['LOCAL_RANK'])", "device = hvd.local_rank()"),
    Row("equal models", "", "hvd.broadcast_parameters(model.state_dict(), root_rank=0)"),
    Row("averaged gradients", "ddp = torch.nn.parallel.DistributedDataParallel(model)",
        "opt = hvd.DistributedOptimizer(sgd, model=model)"),
    Row("a step", "ddp(torch.randn(4, 8)).square().mean().backward(); sgd.step(); sgd.zero_grad()",
        "loss_of().backward(); opt.step(); opt.zero_grad()"),
    Row("accumulation",
        "with ddp.no_sync(): ddp(torch.randn(4, 8)).square().mean().backward()",
        "with opt.no_sync(): loss_of().backward()"),
    Row("its last pass", "ddp(torch.randn(4, 8)).square().mean().backward()",
        "loss_of().backward()"),
    Row("clipping", "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0); sgd.step()",
        "opt.synchronize(); torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)"),
    Row("the step after it", "", "with opt.skip_synchronize(): opt.step()"),
    Row("normalization", "torch.nn.SyncBatchNorm(4)", "hvd.SyncBatchNorm(4)"),
    Row("a sum", "dist.all_reduce(x)", "hvd.allreduce_(x, op=hvd.Sum)"),
    Row("a sum later", "work = dist.all_reduce(x, async_op=True); work.wait()",
        "handle = hvd.allreduce_async_(x, op=hvd.Sum); handle.wait()"),
    Row("one rank's tensor", "dist.broadcast(x, src=0)", "hvd.broadcast_(x, root_rank=0)"),
    Row("all ranks' rows", "rows = [torch.empty(4) for _ in range(size)]; dist.all_gather(rows, x)",
        "rows = hvd.allgather(x.unsqueeze(0))"),
    Row("a part of the sum", "dist.reduce_scatter_tensor(torch.empty(2), x)",
        "hvd.reducescatter(x, op=hvd.Sum)"),
    Row("rows for each rank", "dist.all_to_all_single(torch.empty(4), x)", "hvd.alltoall(x)"),
    Row("objects", "found = [None] * size; dist.all_gather_object(found, obj)",
        "found = hvd.allgather_object(obj)"),
    Row("one rank's object", "told = [obj]; dist.broadcast_object_list(told, src=0)",
        "told = hvd.broadcast_object(obj, root_rank=0)"),
    Row("some of the ranks", "some = dist.new_group([0, 1])", "some = hvd.ProcessSet([0, 1])"),
    Row("meeting", "dist.barrier()", "hvd.barrier()"),
    Row("unequal batches",
        "with torch.distributed.algorithms.Join([ddp]):"
        " ddp(torch.randn(4, 8)).square().mean().backward()",
        "hvd.join()"),
    Row("end", "dist.destroy_process_group()", "hvd.shutdown()"),
)  # fmt: skip
