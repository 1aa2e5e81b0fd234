"""A training on a device, real or late, or on the CPU: what mirror_test.py and
mirror_codec_test.py share."""

from __future__ import annotations

import contextlib
import hashlib
import random
import unittest
from typing import Any, Iterator, List

import torch
from late_cuda import running
from ranks import SEED, Pool, also

import covey.torch as hvd

# Each waits for all: what they come to does not depend on who is when.
TOGETHER = (
    "allreduce",
    "eager:admit=all,warmup_steps=3",
    "eager:admit=all,clip_norm=0.05",
    "local:H=3",
    "dpsgd",
    "wagma:S=2,tau=3,admit=all,max_wait=60s,warmup_steps=2",
    "wagma:tau=1,clip_norm=0.05",
    "eager:admit=all,then=local@4:H=2,then=allreduce@8",
    "local:H=2,max_wait=60s,then=eager@5:admit=all",
    *also(
        "allreduce:max_wait=60s",
        "eager:admit=all",
        "local:H=3,max_wait=60s",
        "wagma:S=2,tau=3,admit=all,max_wait=60s",
        "local:H=4,then=wagma@6:S=1,tau=90,admit=all,max_wait=60s",
    ),
)
# In these nobody waits: so ranks step in turn.
IN_TURN = (
    "adpsgd",
    "swarm:H=2,exchange=nonblocking",
    "eager:admit=solo,log=50,clip_norm=0.05",
    "wagma:S=2,admit=solo,tau=1000,log=50",
    *also("adpsgd:topology=matching,seed=3", "swarm:H=2", "eager:admit=solo,log=50"),
)
# By rank: the steps of twelve in which it comes.
COMES = (range(12), (0, 1, 5, 11), (0, 3, 4, 5, 6, 7, 8), (2, 9, 10))


# ---- On the ranks ------------------------------------------------------------------------------


class Net(torch.nn.Module):
    """A model with parameters of several dtypes and layouts; one weight is used twice, and one has
    a gradient only at times."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(6, 70)
        self.wide = torch.nn.Linear(70, 70)
        self.last = torch.nn.Linear(70, 3).double()
        self.scale = torch.nn.Parameter(torch.tensor(1.5))
        self.image = torch.nn.Parameter(
            torch.ones(2, 3, 4, 4).contiguous(memory_format=torch.channels_last)
        )
        self.rare = torch.nn.Parameter(torch.ones(5))
        self.frozen = torch.nn.Parameter(torch.ones(70), requires_grad=False)

    def forward(self, inputs: torch.Tensor, is_rare: bool) -> torch.Tensor:
        x = torch.tanh(self.wide(torch.tanh(self.wide(torch.tanh(self.first(inputs))))))
        x = (x + self.frozen) * self.scale + self.image.square().mean()
        return self.last((x * self.rare.sum() if is_rare else x).double())


def digest(optimizer: Any, net: torch.nn.Module) -> str:
    """The hash of the parameters and of the optimizer's state."""
    total = hashlib.blake2b(digest_size=8)
    for parameter in net.parameters():
        kept = sorted(optimizer.state.get(parameter, {}).items())
        for tensor in (parameter, *(it for _, it in kept if isinstance(it, torch.Tensor))):
            total.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return total.hexdigest()


@contextlib.contextmanager
def there_is(device: str) -> Iterator[None]:
    with contextlib.nullcontext() if device == "cpu" or torch.cuda.is_available() else running():
        yield


class Training:
    def __init__(self, device: str, method: str) -> None:
        torch.manual_seed(SEED)
        self.device = device
        self.net = Net().to(device)
        adam = torch.optim.Adam(
            [it for it in self.net.parameters() if it.requires_grad], lr=0.01, foreach=False
        )
        self.optimizer: Any = hvd.DistributedOptimizer(
            adam, model=self.net, method=method, bucket_bytes=8192
        )
        self.scaler = torch.amp.GradScaler(device, init_scale=256.0)
        self.streams = [torch.cuda.Stream() for _ in range(2)] if device != "cpu" else []
        self.done = 0

    def step(self, overflows: bool = False) -> None:
        """On this or that stream, which a user has to put in order."""
        with contextlib.ExitStack() as stack:
            if self.streams:
                mine = self.streams[self.done % 2]
                mine.wait_stream(torch.cuda.current_stream())
                mine.wait_stream(self.streams[(self.done + 1) % 2])
                stack.enter_context(torch.cuda.stream(mine))
            self._step(overflows)
        self.done += 1

    def _step(self, overflows: bool) -> None:
        seed = random.Random(f"{SEED} {self.done} {hvd.rank()}").getrandbits(31)
        inputs = torch.randn(4, 6, generator=torch.Generator().manual_seed(seed)).to(self.device)
        self.optimizer.zero_grad(set_to_none=self.done % 3 != 0)
        loss = self.net(inputs, self.done % 2 == 0).square().mean()
        if not overflows:
            loss.backward()
            self.optimizer.step()
            return
        self.scaler.scale(loss).backward()
        if (self.done + hvd.rank()) % 4 == 0:
            self.net.scale.grad.fill_(float("inf"))
        self.scaler.step(self.optimizer)
        self.scaler.update()

    def digest(self) -> str:
        for stream in self.streams:
            torch.cuda.current_stream().wait_stream(stream)
        return digest(self.optimizer, self.net)

    def end(self) -> str:
        self.digest()  # Streams are in order.
        self.optimizer.finish()
        hvd.check_replicas(dict(self.net.named_parameters()))
        return self.digest()


def together(device: str, method: str, overflows: bool) -> List[str]:
    with there_is(device):
        training = Training(device, method)
        seen = []
        for _ in range(11):
            training.step(overflows)
            seen.append(training.digest() if training.done in (4, 9) else "")
        return [*seen, training.end()]


def in_turn(device: str, method: str) -> List[str]:
    """Rank after rank, and not every rank each time: what they have missed they make up for."""
    with there_is(device):
        training = Training(device, method)
        for step in range(12):
            for rank in range(hvd.size()):
                hvd.barrier()
                if rank == hvd.rank() and step in COMES[rank]:
                    training.step()
        hvd.barrier()
        before = training.digest()
        return [before, training.end()]


# ---- In the test -------------------------------------------------------------------------------


def check_both(test: unittest.TestCase, pool: Pool, function: Any, *args: Any) -> None:
    """On the device it comes to the same as on the CPU."""
    with test.subTest(size=pool.size, args=args):
        near, far = (pool.call(function, at, *args) for at in ("cpu", "cuda"))
        test.assertEqual(near, far, f"seed {SEED}")
