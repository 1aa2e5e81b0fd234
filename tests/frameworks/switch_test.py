"""Training by one method after another: the switch is at its step on all ranks, replicas and what
optimizers keep are equal there, bit for bit, and nothing is lost.

Method: a slow reference of all ranks in one process; hashes; sums of whole numbers.
"""

from __future__ import annotations

import os
import random
import unittest
from typing import Any, Dict, List, Tuple

import torch
from nets import batch_of, loss_of, make_net
from ranks import SEED, SharedPool
from references import OPTIMIZERS, Reference, agree, average, do_step
from whole_numbers import Trainer, digest, sum_of

import covey
import covey.torch as hvd
from covey.torch.optimizer_state import average_state

pool = SharedPool(__file__)


def setUpModule() -> None:
    print(f"seed {SEED}")


def tearDownModule() -> None:
    pool.close()


# ---- On the ranks ------------------------------------------------------------------------------


def state_digest(optimizer: Any) -> str:
    states = [optimizer.state[p] for group in optimizer.param_groups for p in group["params"]
              if p in optimizer.state]
    tensors = [state[key] for state in states for key in sorted(state)
               if isinstance(state[key], torch.Tensor)]
    return digest(tensors)


def train(kind: str, method: str, steps: int) -> List[Tuple[str, str]]:
    """(hash of parameters, of the optimizer's state) after each step."""
    net = make_net()
    optimizer = hvd.DistributedOptimizer(
        OPTIMIZERS[kind](net.parameters()), model=net, method=method
    )
    hashes = []
    for step in range(steps):
        do_step(net, optimizer, batch_of(step, hvd.rank()))
        assert optimizer.version == step + 1, (optimizer.version, step)
        hashes.append((digest(net.parameters()), state_digest(optimizer)))
    optimizer.finish()
    hvd.check_replicas(net)
    return hashes


def equals_the_reference(kind: str) -> None:
    """local:H=3 until step 5, then allreduce; momenta are averaged at the switch."""
    net = make_net()
    reference = Reference(net, kind)
    optimizer = hvd.DistributedOptimizer(
        OPTIMIZERS[kind](net.parameters()), model=net, method="local:H=3,then=allreduce@5"
    )
    for step in range(8):
        do_step(net, optimizer, batch_of(step, hvd.rank()))
        (reference.local_step if step < 5 else reference.shared_step)(step)
        if step in (2, 4):
            average(reference.nets)
        if step == 4:
            for same in zip(*(o.param_groups[0]["params"] for o in reference.optimizers)):
                states = [o.state.get(p, {}) for o, p in zip(reference.optimizers, same)]
                for key in states[0]:
                    if torch.is_tensor(states[0][key]):
                        mean = sum(state[key] for state in states) / len(states)
                        for state in states:
                            state[key] = mean.clone()
        agree(net, reference.nets[hvd.rank()], (kind, step))


def whole_numbers(method: str, steps: int) -> Tuple[List[float], int]:
    """Ranks of different pace: what went in, and the version."""
    rng = random.Random(SEED + hvd.rank())
    trainer = Trainer(method)
    for _ in range(steps):
        for _ in range(rng.randrange(30)):
            os.sched_yield()
        trainer.step()
    trainer.optimizer.finish()
    return trainer.parameter.tolist(), trainer.optimizer.version


class RareState(torch.nn.Module):
    """b has a gradient on rank 1 only: only there the optimizer keeps anything for it."""

    def __init__(self) -> None:
        super().__init__()
        self.a = torch.nn.Linear(6, 3)
        self.b = torch.nn.Linear(6, 3)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.a(inputs) + self.b(inputs) if hvd.rank() == 1 else self.a(inputs)


def rare_state(kind: str) -> None:
    net = make_net(RareState)
    make = OPTIMIZERS.get(kind, lambda p: torch.optim.LBFGS(p, lr=0.1, max_iter=3))
    optimizer = hvd.DistributedOptimizer(
        make(net.parameters()), model=net, method="local:H=2,then=allreduce@3"
    )

    for step in range(6):
        batch = batch_of(step, hvd.rank())

        def closure() -> torch.Tensor:
            optimizer.zero_grad()
            loss = loss_of(net, batch)
            loss.backward()
            return loss

        if kind in OPTIMIZERS:
            closure()
            optimizer.step()
        else:
            optimizer.step(closure)
        if step >= 2:
            hvd.check_replicas(net)


def odd_state() -> str:
    """What is said of a state that cannot be averaged."""
    net = make_net(RareState)
    sgd = torch.optim.SGD(net.parameters(), lr=0.1)
    sgd.state[net.b.bias]["phase"] = torch.ones(3, dtype=torch.complex64)
    try:
        average_state(sgd, list(net.named_parameters()), covey.world)
    except covey.Unsupported as refusal:
        return str(refusal)
    return "nothing"


def taken_up_again() -> List[int]:
    """A checkpoint in a later part: the version says which it is."""
    net = make_net()
    optimizer = hvd.DistributedOptimizer(
        OPTIMIZERS["sgd"](net.parameters()), model=net,
        method="eager:admit=all,then=local@4:H=2,then=allreduce@8",
    )
    exchanges = []
    for start in (6, 8, 2):
        optimizer.version = start
        before = covey.stats()["exchanges"]
        do_step(net, optimizer, batch_of(start, hvd.rank()))
        exchanges.append(covey.stats()["exchanges"] - before)
    optimizer.finish()
    return exchanges


def lr_scales() -> List[float]:
    """covey's for three methods and half of the ranks, then an optimizer's by op."""
    scales = [covey.lr_scale(), covey.lr_scale("local"), hvd.lr_scale("eager:then=local@5")]
    if hvd.rank() < 2:
        scales.append(covey.lr_scale(process_set=covey.group([0, 1])))
    for op, method in ((hvd.Average, "allreduce"), (hvd.Sum, "allreduce"), (hvd.Sum, "local:H=1"),
                       (hvd.Sum, "eager:admit=all")):
        sgd = torch.optim.SGD([torch.nn.Parameter(torch.zeros(3))], lr=1.0)
        optimizer = hvd.DistributedOptimizer(sgd, op=op, method=method)
        scales.append(optimizer.lr_scale())
    try:
        covey.lr_scale("lokal")
    except ValueError as error:
        assert 'nearest is "local"' in str(error)
    return scales


def refusal_of(method: str, options: Dict[str, Any]) -> str:
    parameter = torch.nn.Parameter(torch.zeros(3))
    try:
        hvd.DistributedOptimizer(torch.optim.SGD([parameter], lr=1.0), method=method, **options)
    except ValueError as error:
        return str(error)
    return ""


# ---- Here --------------------------------------------------------------------------------------


class SwitchTest(unittest.TestCase):
    def equal_at(self, runs: List[List[Tuple[str, str]]], steps: List[bool]) -> None:
        """Whether all ranks have the same after each step."""
        found = [len(set(hashes)) == 1 for hashes in zip(*runs)]
        self.assertEqual(found, steps, f"seed {SEED}")

    def test_models_that_differ_are_equal_from_the_switch_on(self) -> None:
        for kind in ("momentum", "adam"):
            with self.subTest(kind):
                runs = pool(3).call(train, kind, "local:H=4,then=allreduce@6", 9)
                self.equal_at(runs, [False] * 5 + [True] * 4)
                runs = pool(3).call(train, kind, "local:H=4,then=eager@6:admit=all", 9)
                self.equal_at(runs, [False] * 5 + [True] * 4)
                runs = pool(3).call(train, kind, "wagma:S=2,tau=4,then=allreduce@6", 9)
                self.equal_at([run[5:] for run in runs], [True] * 4)
                runs = pool(3).call(train, kind, "local:H=4,then=wagma@6:S=1,tau=90", 9)
                self.equal_at(runs, [False] * 5 + [True] + [False] * 3)
                pool(3).call(equals_the_reference, kind)

    def test_the_switch_is_at_its_step(self) -> None:
        plain = pool(3).call(train, "momentum", "allreduce", 8)
        runs = pool(3).call(train, "momentum", "allreduce:then=local@3:H=100", 8)
        self.equal_at(runs, [True] * 3 + [False] * 5)
        self.assertEqual([run[:3] for run in runs], [run[:3] for run in plain])
        runs = pool(3).call(train, "momentum", "local:H=100,warmup_steps=3", 8)
        self.equal_at(runs, [True] * 3 + [False] * 5)

    def test_rounds_that_wait_for_all_are_allreduce_before_and_after(self) -> None:
        plain = pool(3).call(train, "momentum", "allreduce", 9)
        for method in ("allreduce:then=eager@3:admit=all", "eager:admit=all,warmup_steps=4",
                       "eager:admit=all,then=allreduce@5",
                       "allreduce:then=eager@2:admit=all,then=eager@5:admit=3,then=allreduce@7"):
            with self.subTest(method):
                self.assertEqual(pool(3).call(train, "momentum", method, 9), plain)

    def test_rounds_end_with_every_gradient_counted_once(self) -> None:
        for method in ("eager:admit=solo,log=200,then=allreduce@10", "eager:admit=solo,log=200,"
                       "warmup_steps=3,then=allreduce@9,then=eager@14:admit=2,log=200"):
            with self.subTest(method):
                for total, _ in pool(3).call(whole_numbers, method, 20):
                    self.assertEqual(total, sum_of([20] * 3), f"seed {SEED}")
        method = "eager:admit=solo,log=16,then=allreduce@7"
        for _, version in pool(3).call(whole_numbers, method, 9):
            self.assertEqual(version, 9, "versions are steps again after the switch")

    def test_what_only_some_keep(self) -> None:
        for kind in ("momentum", "adam", "lbfgs"):
            with self.subTest(kind):
                pool(2).call(rare_state, kind)

    def test_what_cannot_be_averaged_is_named(self) -> None:
        for said in pool(2).call(odd_state):
            self.assertRegex(said, "^phase .* b.bias: tensors of torch.complex64 cannot be sent")

    def test_the_factor_of_the_learning_rate(self) -> None:
        last = [3.0, 1.0, 3.0, 1.0]
        self.assertEqual(
            pool(3).call(lr_scales), [[3.0] * 3 + [2.0] + last] * 2 + [[3.0] * 3 + last]
        )

    def test_a_checkpoint_of_a_later_part(self) -> None:
        for local, allreduce, _ in pool(2).call(taken_up_again):
            self.assertEqual(local, 0, "the first of two local steps")
            self.assertGreater(allreduce, 0)

    def test_what_a_later_part_cannot_do_is_refused_at_the_start(self) -> None:
        for method, options, words in (
            ("allreduce:then=eager@1000:admit=4", {}, "admits with 4 ranks, but there are 3"),
            ("allreduce:then=wagma@1000:S=4", {}, "groups of 4 ranks, but there are 3"),
            ("allreduce:then=wagma@1000", {"op": hvd.Sum}, "op must be Average"),
            ("allreduce:then=eager@1000", {"op": hvd.Max}, "op must be Average or Sum"),
            ("eager:warmup_steps=9", {"op": hvd.Max}, "op must be Average or Sum"),
        ):
            for refusal in pool(3).call(refusal_of, method, options):
                self.assertIn(words, refusal)


if __name__ == "__main__":
    unittest.main()
