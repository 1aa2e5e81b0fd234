"""Operations, methods and torch.distributed on a GPU, where there is one.

Method: comparison with the CPU, whose sums and products round otherwise. All other tests see no
card (runner.py).
"""

from __future__ import annotations

import unittest
from typing import Any, Callable, List, Tuple

import late_cuda  # noqa: F401  Before covey.torch.
import torch
import torch.distributed as dist
from c10d_streams import on_streams
from cuda_scripts import OPTIMIZERS, around, resumed
from mirror_training import IN_TURN, TOGETHER, in_turn, together
from process_groups import in_group
from ranks import SEED, SharedPool
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import covey.torch as hvd

pools = SharedPool(__file__)
CLOSE = {"rtol": 1e-4, "atol": 1e-5}


def setUpModule() -> None:
    print(f"seed {SEED}")


def tearDownModule() -> None:
    pools.close()


# ---- On the ranks ------------------------------------------------------------------------------


def train(device: str, method: str) -> torch.Tensor:
    """The parameters after some steps, on the CPU."""
    torch.manual_seed(SEED)
    net = torch.nn.Sequential(
        torch.nn.Linear(20, 300), torch.nn.ReLU(), torch.nn.Linear(300, 5)
    ).to(device)
    adam = torch.optim.Adam(net.parameters(), lr=0.01)
    optimizer: Any = hvd.DistributedOptimizer(adam, model=net, method=method, bucket_bytes=4096)
    generator = torch.Generator().manual_seed(hvd.rank())
    for _ in range(6):
        optimizer.zero_grad()
        inputs = torch.randn(8, 20, generator=generator).to(device)
        net(inputs).square().mean().backward()
        optimizer.step()
    optimizer.finish()
    return torch.cat([parameter.detach().cpu().flatten() for parameter in net.parameters()])


def sparse(device: str, method: str) -> torch.Tensor:
    """Embeddings whose gradients are sparse; one rank has none in some steps, and one that is dense
    in others."""
    torch.manual_seed(SEED)
    words, last = torch.nn.Embedding(9, 4, sparse=True), torch.nn.Linear(4, 2)
    net = torch.nn.Sequential(words, last).to(device)
    optimizer: Any = hvd.DistributedOptimizer(
        torch.optim.SGD(net.parameters(), lr=0.1), model=net, method=method
    )
    for step in range(6):
        optimizer.zero_grad()
        found = torch.randint(9, (5,), generator=torch.Generator().manual_seed(step + hvd.rank()))
        if step % 3 == 2 and hvd.rank() == 0:
            last(words.weight * 1.0).square().mean().backward()
        elif step % 3 == 1 and hvd.rank() == 0:
            last(words.weight.detach()).square().mean().backward()
        else:
            net(found.to(device)).square().mean().backward()
        optimizer.step()
    return torch.cat([parameter.detach().cpu().flatten() for parameter in net.parameters()])


def _layers() -> torch.nn.Sequential:
    torch.manual_seed(SEED)
    return torch.nn.Sequential(
        torch.nn.Linear(20, 300), torch.nn.ReLU(), torch.nn.Linear(300, 50), torch.nn.Linear(50, 5)
    )


def _as_torchs(net: torch.nn.Module, kind: str) -> torch.nn.Module:
    """In the wrapper of torch's that ``kind`` names."""
    device = next(net.parameters()).device
    if kind == "fsdp":
        mesh = init_device_mesh(device.type, (dist.get_world_size(),))
        for layer in (*net, net):
            fully_shard(layer, mesh=mesh)  # type: ignore[arg-type]
        return net
    parallel = DistributedDataParallel(net, bucket_cap_mb=0.01)
    if kind == "allreduce":
        parallel.register_comm_hook(None, default_hooks.allreduce_hook)
    if kind == "power" and device.type == "cuda":
        state = powerSGD_hook.PowerSGDState(None, 50, start_powerSGD_iter=2)
        parallel.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    return parallel


@in_group
def distributed(device: str, kind: str) -> torch.Tensor:
    """The parameters after some steps of torch's DDP or FSDP2."""
    net = _as_torchs(_layers().to(device), kind)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    own = torch.Generator().manual_seed(SEED + dist.get_rank())
    for _ in range(6):
        optimizer.zero_grad()
        net(torch.randn(8, 20, generator=own).to(device)).square().mean().backward()
        optimizer.step()
    whole = [getattr(it, "full_tensor", lambda it=it: it)() for it in net.parameters()]
    return torch.cat([it.detach().cpu().flatten() for it in whole])


@in_group
def futures() -> List[float]:
    """Values of futures and of callbacks, each used on a stream of its own."""
    streams = [torch.cuda.Stream() for _ in range(3)]
    size = 1 << 20

    def begun(value: float) -> Any:
        with torch.cuda.stream(streams[0]):
            torch.cuda._sleep(20_000_000)  # type: ignore[no-untyped-call]
            tensor = torch.full((size,), value, device="cuda")
            return dist.all_reduce(tensor, async_op=True).get_future()

    def used(future: Any, stream: Any) -> float:
        with torch.cuda.stream(stream):
            value = future.wait()
            return float((value[0] if isinstance(value, list) else value).double().mean())

    def twice(future: Any) -> torch.Tensor:
        torch.cuda._sleep(20_000_000)  # type: ignore[no-untyped-call]
        return future.value()[0] * 2

    def nested(future: Any) -> torch.Tensor:
        inner = future.value()[0] + 1
        dist.all_reduce(inner)
        return inner

    calls: List[Tuple[Callable[..., Any], Any]] = [(twice, streams[1]), (nested, streams[2])]
    plain = [used(begun(1.0), stream) for stream in streams]
    return plain + [used(begun(1.0).then(call), stream) for call, stream in calls]


@in_group
def failing() -> List[str]:
    """The error of a callback, where a program and where DDP waits for it."""

    def fail(_: Any) -> Any:
        raise KeyError("mine")

    said = []
    tensor = torch.ones(3, device="cuda")
    net = DistributedDataParallel(torch.nn.Linear(3, 2).cuda())

    def hook(state: Any, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        return dist.all_reduce(bucket.buffer(), async_op=True).get_future().then(fail)

    hook.__annotations__ = {
        "bucket": dist.GradBucket, "return": torch.futures.Future[torch.Tensor]
    }
    net.register_comm_hook(None, hook)
    for call in (
        dist.all_reduce(tensor, async_op=True).get_future().then(fail).wait,
        net(tensor.expand(2, 3)).sum().backward,
    ):
        try:
            call()
        except Exception as error:  # pylint: disable=broad-except
            said.append(f"{type(error).__name__}: {error}")
    return said


# ---- In the test -------------------------------------------------------------------------------


@unittest.skipUnless(torch.cuda.is_available(), "skipped: no GPU")
class CardTest(unittest.TestCase):
    def check(self, function: Callable[..., Any], *args: Any, size: int = 2) -> None:
        """It comes to the same on the card and on the CPU, and on all ranks."""
        with self.subTest(function=function.__name__, args=args):
            there, here = (pools(size).call(function, it, *args) for it in ("cuda", "cpu"))
            for one, other in zip(there, here):
                torch.testing.assert_close(one, other, **CLOSE)
                torch.testing.assert_close(one, there[0], rtol=0, atol=0)

    def test_training(self) -> None:
        for method in ("allreduce", "allreduce:clip_norm=0.5", "local:local_steps=2"):
            self.check(train, method)

    def test_sparse_gradients(self) -> None:
        self.check(sparse, "allreduce")

    def test_methods_come_to_an_end_with_equal_replicas(self) -> None:
        for methods, function, options in (
            (TOGETHER, together, (False,)),
            ((*IN_TURN, "swarm:H=2,codec=lattice@8"), in_turn, ()),
        ):
            for method in methods:
                with self.subTest(method=method):
                    for states in pools(2).call(function, "cuda", method, *options):
                        self.assertTrue(states[-1])

    def test_operations_of_a_script(self) -> None:
        there, here = (pools(3).call(around, device) for device in ("cuda", "cpu"))
        self.assertEqual(there, here)
        for name in OPTIMIZERS:
            there, here = (pools(3).call(resumed, device, name) for device in ("cuda", "cpu"))
            for one, other in zip(there[0][1], here[0][1]):
                torch.testing.assert_close(torch.tensor(one), torch.tensor(other), **CLOSE)
            self.assertTrue(there[0][0] and there[0] == there[1] == there[2])

    def test_torchs_ddp_and_fsdp(self) -> None:
        for kind in ("ddp", "allreduce", "power", "fsdp"):
            self.check(distributed, kind)

    def test_results_of_torch_distributed_are_there_for_the_stream_that_waits(self) -> None:
        self.assertEqual(pools(2).call(on_streams), [[]] * 2)

    def test_futures_are_there_for_the_stream_that_waits(self) -> None:
        self.assertEqual(pools(2).call(futures), [[2.0, 2.0, 2.0, 4.0, 6.0]] * 2)

    def test_errors_of_callbacks(self) -> None:
        for said in pools(2).call(failing):
            self.assertEqual(said[0], "KeyError: 'mine'")
            self.assertIn("mine", said[1])


if __name__ == "__main__":
    unittest.main()
