"""A rank that was stopped for longer than the log reaches goes on from another one's snapshot, and
ends with what all have: parameters, the optimizer's state, and buffers if it was told the model.

Method: SIGSTOP until the others are far enough ahead, by versions; replicas are compared bitwise.
"""

from __future__ import annotations

import hashlib
import os
import random
import signal
import unittest
from typing import Any, Tuple

import torch
from ranks import SEED
from watched import Report, Watched

import covey
import covey.torch as hvd
from covey.errors import Mismatch, Unsupported
from covey.torch.trainer.snapshot import State


def setUpModule() -> None:
    print(f"seed {SEED}")


class Net(torch.nn.Module):
    """With statistics of its own, and a layer whose weights lie otherwise."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(2, 3, 3).to(memory_format=torch.channels_last)
        self.norm = torch.nn.BatchNorm2d(3)
        self.out = torch.nn.Linear(3, 2)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.out(self.norm(self.conv(inputs)).mean((2, 3)))


def optimizer_of(kind: str, net: torch.nn.Module) -> torch.optim.Optimizer:
    if kind == "adam":
        return torch.optim.Adam(net.parameters(), lr=0.01, amsgrad=True)
    return torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-3)


def averaged(optimizer: Any, net: torch.nn.Module) -> torch.optim.swa_utils.AveragedModel:
    """An average over time of the model, as the documentation says (EMA)."""
    function = torch.optim.swa_utils.get_ema_multi_avg_fn(0.9)
    average = torch.optim.swa_utils.AveragedModel(net, multi_avg_fn=function)
    optimizer.register_step_post_hook(lambda *_: average.update_parameters(net))
    optimizer.carry(average)
    return average


def digest(optimizer: Any, net: torch.nn.Module, average: Any = None) -> str:
    """Of parameters, the optimizer's state, and an average over time."""
    total = hashlib.blake2b(digest_size=8)
    if average is not None:
        for tensor in (*average.module.parameters(), average.n_averaged):
            total.update(tensor.detach().contiguous().numpy().tobytes())
    for parameter in net.parameters():
        total.update(parameter.detach().contiguous().numpy().tobytes())
        for key, value in sorted(optimizer.state[parameter].items()):
            total.update(key.encode() + value.contiguous().numpy().tobytes())
    return total.hexdigest()


def train(folder: str, kind: str, method: str) -> Tuple[str, int, int]:
    """Trains with a schedule until told: the digest, the version, and how often it recovered."""
    torch.manual_seed(SEED)
    net = Net()
    base = optimizer_of(kind, net)
    optimizer: Any = hvd.DistributedOptimizer(base, model=net, method=method)
    average = averaged(optimizer, net)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=50)
    report = Report(folder, hvd.rank())
    random_numbers = torch.Generator().manual_seed(SEED + hvd.rank())
    while report.goes_on:
        optimizer.zero_grad()
        net(torch.randn(4, 2, 6, 6, generator=random_numbers)).square().sum().backward()
        optimizer.step()
        schedule.step()
        report.write(optimizer.version)
    optimizer.finish()
    return digest(optimizer, net, average), optimizer.version, covey.stats()["round_snapshots"]


def train_by_parts(folder: str, method: str, steps: int, stop: int) -> Tuple[str, int, int]:
    """As above, up to version `steps`; rank 1 stops itself before its step `stop`, where the others
    wait until it has. Up to there nobody runs ahead: else who is behind could need its snapshot."""
    torch.manual_seed(SEED)
    net = Net()
    optimizer: Any = hvd.DistributedOptimizer(optimizer_of("adam", net), model=net, method=method)
    report = Report(folder, hvd.rank())
    random_numbers = torch.Generator().manual_seed(SEED + hvd.rank())
    before = covey.stats()["round_snapshots"]
    step = 0
    while optimizer.version < steps:
        if step <= stop:
            hvd.barrier()
        if step == stop and hvd.rank() == 1:
            os.kill(os.getpid(), signal.SIGSTOP)
        elif step == stop:
            report.wait_to_go()
        optimizer.zero_grad()
        net(torch.randn(4, 2, 6, 6, generator=random_numbers)).square().sum().backward()
        optimizer.step()
        report.write(optimizer.version)
        step += 1
    optimizer.finish()
    return digest(optimizer, net), optimizer.version, covey.stats()["round_snapshots"] - before


class SnapshotsTest(unittest.TestCase):
    def check(self, kind: str, method: str, stopped: int) -> None:
        rng = random.Random(SEED)
        with Watched(3, __file__, train, kind, method) as job:
            job.wait_for_all(3)
            for _ in range(2):
                with job.stopped(stopped, rng):
                    job.others_go_on(stopped, 20)
                    ahead = max(job.version(rank) for rank in range(3))
                job.wait_for_version(stopped, ahead + 3)
            results = job.end()
            self.assertEqual(len({(state, version) for state, version, _ in results}), 1, results)
            self.assertGreaterEqual(results[stopped][2], 1)
            self.assertIn("goes on from a snapshot of version", job.pool.stderr(stopped))

    def test_momentum(self) -> None:
        self.check("momentum", "eager:admit=solo,log=4", 1)

    def test_adam(self) -> None:
        self.check("adam", "eager:admit=solo,log=4", 0)

    def test_who_is_overdue(self) -> None:
        self.check("adam", "eager:admit=all,max_wait=50ms,log=4", 2)

    def test_in_a_part_of_a_training(self) -> None:
        solo = "admit=solo,log=4"
        for method, steps, stop in (
            (f"allreduce:then=eager@20:{solo}", 70, 30),
            (f"eager:{solo},then=allreduce@60", 70, 10),
            (f"local:H=4,then=eager@12:{solo},then=eager@60:admit=all,then=allreduce@63", 70, 20),
            (f"wagma:S=2,then=eager@10:{solo},progress=skip,then=allreduce@55", 66, 20),
        ):
            with self.subTest(method), Watched(
                3, __file__, train_by_parts, method, steps, stop
            ) as job:
                job.wait_until_stopped(1)
                job.let_go()
                for other in (0, 2):
                    job.wait_for_version(other, job.version(1) + 20)
                job.go_on(1)
                results = job.pool.collect()
                self.assertEqual(len({result[:2] for result in results}), 1, results)
                self.assertGreaterEqual(results[1][2], 1)


class StateTest(unittest.TestCase):
    def trained(self, kind: str, steps: int) -> Tuple[torch.nn.Module, torch.optim.Optimizer]:
        torch.manual_seed(SEED + steps)
        net = Net()
        optimizer = optimizer_of(kind, net)
        for _ in range(steps):
            optimizer.zero_grad()
            net(torch.randn(4, 2, 6, 6)).square().sum().backward()
            optimizer.step()
        return net, optimizer

    def test_everything_is_taken_over(self) -> None:
        for kind in ("momentum", "adam"):
            for steps in (0, 2):
                net, optimizer = self.trained(kind, 5)
                other, twin = self.trained(kind, steps)
                pieces = State(optimizer, net).pack()
                image = torch.cat([piece.reshape(-1).view(torch.uint8) for piece in pieces])
                State(twin, other).unpack(image)
                self.assertEqual(digest(optimizer, net), digest(twin, other))
                for one, same in zip(net.buffers(), other.buffers()):
                    self.assertTrue(torch.equal(one, same))
                self.assertEqual(other.conv.weight.stride(), net.conv.weight.stride())

    def test_what_is_carried_must_be_the_same(self) -> None:
        net, optimizer = self.trained("momentum", 1)
        image = torch.cat([p.reshape(-1).view(torch.uint8) for p in State(optimizer, None).pack()])
        with self.assertRaisesRegex(Mismatch, "0 tensors beside the parameters, this rank 3"):
            State(optimizer, net).unpack(image)

    def test_what_cannot_be_packed_is_said_where_it_is_needed(self) -> None:
        net, optimizer = self.trained("momentum", 1)
        optimizer.state[net.out.bias]["history"] = [1, 2]
        image = torch.cat([p.reshape(-1) for p in State(optimizer, None).pack()])
        with self.assertRaisesRegex(Unsupported, "holds a list"):
            State(optimizer, None).unpack(image)
