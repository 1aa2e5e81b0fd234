"""Goal: a rank that skips ahead takes up what others have decided before it begins a forward pass,
and at no other time; every gradient counts once and replicas are equal at equal version.

Method: while rank 1 stands between two steps, rank 0 makes versions, a known number of them; what
rank 1 does then may change its parameters or must not. Gradients are whole numbers, or the
parameters that they were computed at.
"""

from __future__ import annotations

import copy
import os
import pathlib
import pickle
import random
import tempfile
import threading
import time
import unittest
from typing import Any, Callable, Dict, List, Tuple

import torch
import trainings
from ranks import SEED, SharedPool, on_one_host
from whole_numbers import Trainer, gradient_of, sum_of, watch

import covey
import covey.torch as hvd
from covey.torch.trainer.version_gradients import VersionGradients

SKIP = "eager:admit=solo,grace=0s,progress=skip,log=64,L=64"

pool = SharedPool(__file__)


def setUpModule() -> None:
    print(f"seed {SEED}")


def tearDownModule() -> None:
    pool.close()


# ---- On the ranks ------------------------------------------------------------------------------


class Net(torch.nn.Module):
    """Its gradient is its parameter, as it was in the forward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(3))

    def forward(self) -> torch.Tensor:
        return (self.weight * self.weight).sum() / 2


class Pair:
    """Rank 0, which goes on alone while rank 1 is late."""

    def __init__(self, with_model: bool = True, method: str = SKIP) -> None:
        self.net = Net()
        options: Any = {"model": self.net} if with_model else {}
        sgd = torch.optim.SGD(self.net.parameters(), lr=0.25)
        self.optimizer: Any = hvd.DistributedOptimizer(sgd, method=method, **options)
        self.seen = watch(self.optimizer, [self.net.weight])
        self.step()

    def step(self) -> None:
        self.optimizer.zero_grad()
        self.net().backward()
        self.optimizer.step()

    def let_others_go_on(self, steps: int = 3) -> None:
        """Rank 0 makes so many versions, while this rank does nothing."""
        covey.barrier()
        for _ in range(steps if hvd.rank() == 0 else 0):
            self.step()
        last = covey.broadcast_object(trainings.made(self.optimizer), 0)
        while trainings.made(self.optimizer) < last:
            time.sleep(0)  # Between hosts a version may be heard of after a collective.
        covey.barrier()

    @property
    def is_new(self) -> bool:
        """There is no version that this rank has not applied."""
        return trainings.made(self.optimizer) == self.optimizer._covey_trainer.position.version

    def end(self) -> Dict[int, str]:
        while True:
            try:
                self.optimizer.finish(strict=True)
                break
            except covey.Timeout:  # max_wait is short on purpose, and the machine may be busy.
                continue
        hvd.check_replicas(self.net)
        return self.seen


def takes_up(way: str) -> Dict[int, str]:
    """What rank 1 does after it was late. Its next step then is for the version after the last."""
    pair = Pair(with_model=way.startswith("forward"))
    optimizer, net = pair.optimizer, pair.net
    if way == "forward, zeros":
        optimizer.zero_grad(set_to_none=False)
    elif way == "forward":
        optimizer.zero_grad()
    pair.let_others_go_on()
    if hvd.rank() == 1:
        assert not pair.is_new
        at: List[int] = []
        if way.startswith("zero_grad"):
            optimizer.zero_grad(set_to_none=way == "zero_grad")
            assert pair.is_new
        if way == "closure":
            def closure() -> torch.Tensor:
                optimizer.zero_grad()
                assert pair.is_new
                at.append(optimizer.version)
                loss = net()
                loss.backward()
                return loss

            optimizer.step(closure)
        else:
            loss = net()
            assert pair.is_new
            at.append(optimizer.version)
            weight = net.weight.detach().clone()
            loss.backward()
            assert torch.equal(net.weight.grad, weight), (net.weight.grad, weight)
            optimizer.step()
        assert optimizer.version == at[0] + 1, "it has made the version after the last"
    return pair.end()


def takes_up_nothing(way: str) -> Dict[int, str]:
    """Rank 1 has begun, or does not begin; then it goes on as if nobody had done anything."""
    method = SKIP.replace("progress=skip,", "") if way == "lockstep" else SKIP
    pair = Pair(way not in ("zero_grad later", "other graph"), method)
    optimizer, net = pair.optimizer, pair.net
    optimizer.zero_grad()
    late = hvd.rank() == 1
    loss: Any = None
    if late and way in ("zero_grad later", "second pass", "other graph"):
        loss = net() if way != "other graph" else (net.weight * 2).exp().sum()
    if late and way == "second pass":
        loss.backward()
    if late and way == "user's gradient":
        net.weight.grad = torch.ones(3)
    pair.let_others_go_on()
    if late:
        before, version = net.weight.detach().clone(), optimizer.version
        if way in ("zero_grad later", "other graph", "lockstep"):
            optimizer.zero_grad()
        elif way == "evaluation":
            net.eval()
            net()
            net.train()
        elif way == "no_grad":
            with torch.no_grad():
                net()
        elif way == "inference":
            with torch.inference_mode():
                net()
                optimizer.zero_grad()
        elif way == "traced":
            torch.jit.trace(net, (), check_trace=False)
        elif way == "transformed":
            torch.func.grad(lambda w: torch.func.functional_call(net, {"weight": w}, ()))(before)
        elif way == "copy":
            for twin in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
                twin()
                assert torch.equal(twin.weight, net.weight)
        elif way == "thread":
            with_thread(net)
        elif way == "user's gradient":
            net()
            assert net.weight.grad.tolist() == [1.0] * 3
        else:  # second pass
            net()
        assert optimizer.version == version and torch.equal(before, net.weight), way
        assert not pair.is_new
        (loss if way in ("zero_grad later", "other graph") else net()).backward()
        optimizer.step()
    return pair.end()


def with_thread(net: torch.nn.Module) -> None:
    thread = threading.Thread(target=net)
    thread.start()
    thread.join()


def hook_that_zeroes() -> Dict[int, str]:
    """A hook of the step calls zero_grad() in the middle of what is applied."""
    pair = Pair()
    pair.optimizer.register_step_post_hook(lambda *_: pair.optimizer.zero_grad())
    pair.let_others_go_on()
    if hvd.rank() == 1:
        pair.step()
        assert pair.is_new
    return pair.end()


def compiled() -> Dict[int, str]:
    """The model is compiled after the optimizer was told it: what was traced has no hook."""
    pair = Pair()
    fast = torch.compile(pair.net, backend="eager")
    fast().backward()
    pair.optimizer.step()
    pair.let_others_go_on()
    for _ in range(2 if hvd.rank() == 1 else 0):
        pair.optimizer.zero_grad()
        assert pair.is_new
        fast().backward()
        pair.optimizer.step()
    return pair.end()


def left_before_its_gradient() -> float:
    """Rank 1 has applied versions in its pass, and its step fails before its gradient is taken."""
    parameter = torch.nn.Parameter(torch.zeros(3))
    sgd = torch.optim.SGD([parameter], lr=1.0)
    optimizer: Any = hvd.DistributedOptimizer(sgd, op=hvd.Sum, method=SKIP)
    for _ in range(3 if hvd.rank() == 0 else 0):
        optimizer.zero_grad()
        parameter.sum().backward()
        optimizer.step()
    covey.barrier()
    if hvd.rank() == 1:
        optimizer.zero_grad()
        assert optimizer.version == 3, optimizer.version
        (100 * parameter).sum().backward()
        collect = VersionGradients.collect

        def fail(_: Any) -> None:
            raise KeyboardInterrupt

        VersionGradients.collect = fail  # type: ignore[method-assign]
        try:
            optimizer.step()
            raise AssertionError("it has not failed")
        except KeyboardInterrupt:
            VersionGradients.collect = collect  # type: ignore[method-assign]
        optimizer.step()
    optimizer.finish()
    return float(parameter[0])


def of_an_overdue_rank() -> Dict[int, str]:
    """In lockstep: once it knows that it is not waited for."""
    pair = Pair(method="eager:admit=all,max_wait=1s,log=64,L=64")
    pair.let_others_go_on()
    if hvd.rank() == 1:
        pair.optimizer.zero_grad()
        assert not pair.is_new, "it has not heard of it"
        pair.net().backward()
        pair.optimizer.step()
    pair.let_others_go_on()
    if hvd.rank() == 1:
        assert not pair.is_new
        pair.optimizer.zero_grad()
        assert pair.is_new
    return pair.end()


def out_of_the_log(told: str) -> Tuple[int, int]:
    """Rank 1 goes on from a snapshot at zero_grad(): how often, and its version then."""
    pair = Pair(method="eager:admit=solo,grace=0s,progress=skip,log=2,max_wait=50ms,L=1000")
    version = 0
    if hvd.rank() == 1:
        while trainings.made(pair.optimizer) < 8:
            os.sched_yield()
        pair.optimizer.zero_grad()
        version = pair.optimizer.version
        pair.net().backward()
        pair.optimizer.step()
        pathlib.Path(told).touch()
    while not os.path.exists(told):
        pair.step()
    pair.end()
    return trainings.counts(pair.optimizer)["snapshots"], version


class Model(torch.nn.Module):
    """Whose gradient is its input."""

    def forward(self, gradient: torch.Tensor) -> torch.Tensor:
        return (self.parameter * gradient).sum()


def train(method: str, steps: int) -> Tuple[int, Dict[int, str], List[float]]:
    """Ranks that are late at random, in whole versions, before zero_grad() or the forward pass."""
    rng = random.Random(SEED + hvd.rank())
    model = Model()
    trainer = Trainer(method, model)
    for step in range(1, steps + 1):
        late_at = rng.choice(("", "zero_grad", "forward", "backward"))
        until = trainings.made(trainer.optimizer) + rng.randrange(1, 4)
        for at in ("zero_grad", "forward", "backward"):
            for _ in range(50 if at == late_at else 0):
                if trainings.made(trainer.optimizer) >= until:
                    break
                os.sched_yield()
            if at == "zero_grad":
                trainer.optimizer.zero_grad(set_to_none=rng.random() < 0.5)
            elif at == "forward":
                loss = model(gradient_of(hvd.rank(), step))
            else:
                loss.backward()
        trainer.optimizer.step()
    trainer.optimizer.finish()
    return steps, trainer.seen, trainer.parameter.tolist()


# ---- Here --------------------------------------------------------------------------------------


class SkipAheadTest(unittest.TestCase):
    def check(self, function: Callable[..., Dict[int, str]], *args: Any) -> None:
        """Its versions are the same on both ranks."""
        first, second = pool(2).call(function, *args)
        self.assertEqual(first, second, args)
        self.assertGreater(len(first), 4)

    def test_it_is_up_to_date_when_it_begins(self) -> None:
        for way in ("zero_grad", "zero_grad, zeros", "forward", "forward, zeros", "closure"):
            with self.subTest(way):
                self.check(takes_up, way)

    def test_nothing_changes_between_a_forward_and_its_backward_pass(self) -> None:
        for way in ("zero_grad later", "second pass", "other graph"):
            with self.subTest(way):
                self.check(takes_up_nothing, way)

    def test_nothing_changes_where_no_pass_begins(self) -> None:
        for way in ("evaluation", "no_grad", "inference", "traced", "transformed", "copy", "thread",
                    "user's gradient", "lockstep"):
            with self.subTest(way):
                self.check(takes_up_nothing, way)

    def test_a_hook_that_zeroes_applies_nothing_twice(self) -> None:
        self.check(hook_that_zeroes)

    def test_a_compiled_model(self) -> None:
        self.check(compiled)

    @on_one_host("between hosts a rank learns of a version by a message")
    def test_a_gradient_counts_once_if_its_step_is_done_again_after_such_a_pass(self) -> None:
        self.assertEqual(pool(2).call(left_before_its_gradient), [-103.0] * 2)

    def test_who_is_overdue_takes_it_up_too(self) -> None:
        self.check(of_an_overdue_rank)

    def test_who_is_out_of_the_log_takes_a_snapshot(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            _, (recovered, version) = pool(2).call(out_of_the_log, f"{folder}/told")
        self.assertGreater(recovered, 0)
        self.assertGreaterEqual(version, 8)

    def test_every_gradient_counts_once_and_replicas_are_equal(self) -> None:
        for method in ("eager:admit=solo,progress=skip,L=4,log=200",
                       "eager:progress=skip,log=200", "eager:admit=all,progress=skip,log=200"):
            with self.subTest(method):
                results = pool(4).call(train, method, 40)
                for steps, seen, total in results:
                    self.assertEqual(seen, results[0][1], f"seed {SEED}")
                    self.assertEqual(total, sum_of([40] * 4))
                    self.assertEqual(steps, 40)


if __name__ == "__main__":
    unittest.main()
