"""Methods that do not wait for all ranks: every gradient counts once, replicas are equal at equal
version, and options that do not go with it are refused.

Method: replicas are compared by hash at every version; sums of whole numbers say what went in.
"""

from __future__ import annotations

import os
import random
import unittest
from typing import Any, Dict, List, Tuple

import torch
from nets import batch_of, loss_of, make_net
from ranks import SEED, SharedPool, on_one_host
from whole_numbers import Trainer, sum_of, watch

import covey
import covey.torch as hvd

pool = SharedPool(__file__)


def setUpModule() -> None:
    print(f"seed {SEED}")


def tearDownModule() -> None:
    pool.close()


# ---- On the ranks ------------------------------------------------------------------------------


def train(method: str, steps: int) -> Tuple[int, Dict[int, str], List[float]]:
    """Ranks of different pace."""
    rng = random.Random(SEED + hvd.rank())
    trainer = Trainer(method)
    for _ in range(steps):
        for _ in range(rng.randrange(30)):
            os.sched_yield()
        trainer.step()
    trainer.optimizer.finish()
    return trainer.steps, trainer.seen, trainer.parameter.tolist()


def equals_allreduce() -> None:
    nets = {method: make_net() for method in ("allreduce", "eager:admit=all")}
    for method, net in nets.items():
        sgd = torch.optim.SGD(net.parameters(), lr=0.02, momentum=0.9, weight_decay=0.01)
        optimizer = hvd.DistributedOptimizer(sgd, model=net, method=method)
        for step in range(6):
            optimizer.zero_grad(set_to_none=step % 2 == 0)
            loss_of(net, batch_of(step, hvd.rank())).backward()
            optimizer.step()
            assert optimizer.version == step + 1
        optimizer.finish()
    for one, other in zip(*(net.parameters() for net in nets.values())):
        assert torch.equal(one, other)


def train_with_schedule(kind: str) -> Dict[int, str]:
    """Each rank's learning rate goes by its own steps, and ranks are late: versions have one."""
    rng = random.Random(SEED + hvd.rank())
    net = make_net()
    parameters = list(net.parameters())
    base = torch.optim.Adam(parameters, lr=0.01) if kind == "adam" else torch.optim.SGD(
        parameters, lr=0.1, momentum=0.9
    )
    optimizer = hvd.DistributedOptimizer(base, model=net, method="eager", admit="solo", log=200)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)  # new parameter groups on some ranks
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=20)
    seen = watch(optimizer, parameters)
    for step in range(20):
        for _ in range(rng.randrange(60)):
            os.sched_yield()
        optimizer.zero_grad()
        loss_of(net, batch_of(step, hvd.rank())).backward()
        optimizer.step()
        schedule.step()
    optimizer.finish()
    hvd.check_replicas(net)
    return seen


def clips(kind: str) -> Dict[int, str]:
    """Clipped before each update; ranks are late, and a GradScaler finds overflows on some."""
    rng = random.Random(SEED + hvd.rank())
    net = make_net()
    parameters = list(net.parameters())
    sgd = torch.optim.SGD(parameters, lr=0.1, momentum=0.9)
    optimizer = hvd.DistributedOptimizer(sgd, model=net, method="eager", admit="solo", log=200)
    norms: List[float] = []

    def clip() -> None:
        torch.nn.utils.clip_grad_norm_(parameters, 0.01)
        total = sum(float(p.grad.square().sum()) for p in parameters if p.grad is not None)
        norms.append(total ** 0.5)

    optimizer.before_update(clip)
    seen = watch(optimizer, parameters)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    for step in range(20):
        for _ in range(rng.randrange(60)):
            os.sched_yield()
        optimizer.zero_grad()
        loss = loss_of(net, batch_of(step, hvd.rank()))
        if kind == "plain":
            loss.backward()
            optimizer.step()
            continue
        scaler.scale(loss).backward()
        if step % 5 == hvd.rank():
            parameters[0].grad.fill_(float("inf"))
        scaler.step(optimizer)
        scaler.update()
    optimizer.finish()
    assert norms and max(norms) <= 0.0101, norms
    assert all(bool(p.isfinite().all()) for p in parameters)
    return seen


def overflow_is_null() -> None:
    """One rank's overflow: the mean is that of the others; when all overflow there is no update."""
    parameter = torch.nn.Parameter(torch.zeros(3))
    sgd = torch.optim.SGD([parameter], lr=1.0)
    optimizer = hvd.DistributedOptimizer(sgd, method="eager", admit="all")
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    scaler.scale(parameter.sum()).backward()
    if hvd.rank() == 0:
        parameter.grad.fill_(float("nan"))
    scaler.step(optimizer)
    scaler.update()
    assert optimizer.version == 1
    assert parameter.tolist() == [-1.0] * 3, parameter
    assert scaler.get_scale() == (4.0 if hvd.rank() == 0 else 8.0)
    updates = []
    optimizer.before_update(lambda: updates.append(1))
    scaler.scale(parameter.sum()).backward()
    parameter.grad.fill_(float("inf"))
    scaler.step(optimizer)
    scaler.update()
    assert optimizer.version == 2 and not updates
    assert parameter.tolist() == [-1.0] * 3, parameter
    optimizer.finish()


def unused_parameters() -> None:
    """One that only rank 0 uses has a gradient everywhere, one that nobody uses has none."""
    used, rare, unused = (torch.nn.Parameter(torch.ones(3)) for _ in range(3))
    sgd = torch.optim.SGD([used, rare, unused], lr=1.0, weight_decay=0.5)
    optimizer = hvd.DistributedOptimizer(sgd, method="eager", admit="all")
    loss = (used * 2).sum()
    if hvd.rank() == 0:
        loss = loss + rare.sum() * hvd.size()
    loss.backward()
    optimizer.step()
    assert used.tolist() == [-1.5] * 3, used
    assert rare.tolist() == [-0.5] * 3, rare
    assert unused.tolist() == [1.0] * 3, unused
    assert unused.grad is None


def adds_a_group() -> None:
    first, second = (torch.nn.Parameter(torch.zeros(3)) for _ in range(2))
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD([first], lr=1.0), op=hvd.Sum, method="eager", admit="solo"
    )
    first.sum().backward()
    optimizer.step()
    optimizer.add_param_group({"params": [second]})
    assert first.tolist() == [-float(hvd.size())] * 3, first
    optimizer.zero_grad()
    second.sum().backward()
    optimizer.step()
    optimizer.finish()
    assert second.tolist() == [-float(hvd.size())] * 3, second
    assert first.tolist() == [-float(hvd.size())] * 3, first


def refusal_of(options: Dict[str, Any]) -> str:
    parameter = torch.nn.Parameter(torch.zeros(3))
    try:
        hvd.DistributedOptimizer(torch.optim.SGD([parameter], lr=1.0), **options)
    except ValueError as error:
        return str(error)
    return ""


def methods_differ() -> str:
    parameter = torch.nn.Parameter(torch.zeros(3))
    method = "eager:admit=solo" if hvd.rank() == 0 else "eager:admit=all"
    try:
        hvd.DistributedOptimizer(torch.optim.SGD([parameter], lr=1.0), method=method)
    except covey.Mismatch as error:
        return str(error)
    return ""


def synchronize_is_refused() -> None:
    parameter = torch.nn.Parameter(torch.zeros(3))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([parameter], lr=1.0), method="eager")
    try:
        optimizer.synchronize()
    except ValueError as error:
        assert "optimizer.step() alone" in str(error)
    else:
        raise AssertionError("synchronize() was not refused")


# ---- Here --------------------------------------------------------------------------------------


class RoundsTest(unittest.TestCase):
    def check_histories(self, histories: List[Dict[int, str]]) -> None:
        """Equal parameters at equal version, and all have come to the same last one."""
        for history in histories[1:]:
            self.assertEqual(history, histories[0], f"seed {SEED}")

    def test_every_gradient_counts_once_and_replicas_are_equal(self) -> None:
        for size in (3, 2, 4):
            for method in ("eager:admit=solo,log=200", "eager:admit=all", "eager:log=200",
                           "eager:admit=2,grace=1ms,log=200", "eager:admit=solo,L=1",
                           "eager:admit=solo,progress=skip,L=4,log=200",
                           "eager:admit=majority,log=200", "eager:admit=first2,seed=5,log=200"):
                with self.subTest(size=size, method=method):
                    results = pool(size).call(train, method, 30)
                    self.check_histories([seen for _, seen, _ in results])
                    self.assertEqual(results[0][2], sum_of([steps for steps, _, _ in results]))

    @on_one_host("between hosts an allreduce adds in another order")
    def test_waiting_for_all_is_allreduce(self) -> None:
        for size in (2, 3, 5):
            pool(size).call(equals_allreduce)

    def test_hyper_parameters_travel_with_the_version(self) -> None:
        for kind in ("momentum", "adam"):
            self.check_histories(pool(3).call(train_with_schedule, kind))

    def test_clipping_is_of_what_is_applied(self) -> None:
        for kind in ("plain", "scaled"):
            self.check_histories(pool(3).call(clips, kind))

    def test_an_overflow_contributes_nothing(self) -> None:
        pool(3).call(overflow_is_null)

    def test_flags_tell_who_had_a_gradient(self) -> None:
        pool(3).call(unused_parameters)

    def test_buckets_are_made_anew(self) -> None:
        pool(3).call(adds_a_group)

    def test_wrong_options_are_refused_with_what_to_do(self) -> None:
        for options, words in (
            ({"method": "eager:admit=4"}, "admits with 4 ranks, but there are 3"),
            ({"method": "eager", "max_staleness": 0}, "which is not a number of steps from 1"),
            ({"method": "eager", "progress": "jump"}, "which is not lockstep or skip"),
            ({"method": "eager", "admit": "most"}, "a part of them such as 0.5"),
            ({"method": "eager", "op": hvd.Max}, "op must be Average or Sum"),
            ({"method": "eager", "compression": hvd.Compression.fp16}, "compression must be none"),
            ({"method": "eager", "gradient_predivide_factor": 2.0}, "predivide_factor must be 1"),
        ):
            for refusal in pool(3).call(refusal_of, options):
                self.assertIn(words, refusal)
        for refusal in pool(3).call(methods_differ):
            self.assertIn("eager:admit=solo", refusal)
            self.assertIn("eager:admit=all", refusal)
        pool(3).call(synchronize_is_refused)
