"""What a version is applied with is the same on all ranks: all numbers of the parameter groups, and
the groups themselves, which grow only after what is left of earlier steps has been applied.

Method: numbers that each rank sets by its own steps; ranks are late by versions, not by seconds;
hashes of the parameters at every version.
"""

from __future__ import annotations

import unittest
from typing import Any, Dict, List

import torch
import trainings
from ranks import SEED, SharedPool
from whole_numbers import digest, watch

import covey
import covey.torch as hvd
from covey.torch.trainer.hypers import read_hypers, write_hypers

pool = SharedPool(__file__)
LATE = 1

# The numbers of an optimizer that may change while it trains, beside learning rates.
OPTIMIZERS: Dict[str, Any] = {
    "eps": (lambda p: torch.optim.Adam(p, lr=0.01), lambda step: 1e-3 * step),
    "dampening": (lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9), lambda step: 0.01 * step),
    "alpha": (lambda p: torch.optim.RMSprop(p, lr=0.01), lambda step: 0.9 + 0.001 * step),
    "rho": (lambda p: torch.optim.Adadelta(p, lr=1.0), lambda step: 0.9 + 0.001 * step),
    "lr_decay": (lambda p: torch.optim.Adagrad(p, lr=0.1), lambda step: 0.01 * step),
    "etas": (lambda p: torch.optim.Rprop(p, lr=0.01), lambda step: (0.5, 1.1 + 0.01 * step)),
}


def setUpModule() -> None:
    print(f"seed {SEED}")


def tearDownModule() -> None:
    pool.close()


# ---- On the ranks ------------------------------------------------------------------------------


def comes_late(optimizer: Any, step: int, steps: int) -> None:
    """Rank LATE begins its next step when others have done three more."""
    while hvd.rank() == LATE and trainings.made(optimizer) < min(step + 3, steps):
        pass


def numbers_travel(name: str) -> Dict[int, str]:
    make, value_at = OPTIMIZERS[name]
    parameter = torch.nn.Parameter(torch.arange(1.0, 6.0))
    optimizer = hvd.DistributedOptimizer(make([parameter]), method="eager:admit=2,log=64")
    seen = watch(optimizer, [parameter])
    for step in range(1, 13):
        optimizer.param_groups[0][name] = value_at(step)
        comes_late(optimizer, step, 12)
        optimizer.zero_grad()
        (parameter.square() * (1 + step % 3 + hvd.rank())).sum().backward()
        optimizer.step()
        assert optimizer.param_groups[0][name] == value_at(step), "a rank's own are its own"
    optimizer.finish()
    return seen


def group_is_added_late() -> List[str]:
    """What LATE has published last is in no version when the group comes; all have gradients for
    its parameters already."""
    net = torch.nn.ParameterList([torch.nn.Parameter(torch.ones(3)) for _ in range(2)])
    adam = torch.optim.Adam([net[0]], lr=0.1)
    optimizer = hvd.DistributedOptimizer(adam, method="eager:admit=2,log=64,grace=0")

    def backward(step: int) -> None:
        ((net[0] + net[1]).square() * (1 + step + hvd.rank())).sum().backward()

    for step in range(1, 5):
        comes_late(optimizer, step, 4)
        optimizer.zero_grad()
        backward(step)
        optimizer.step()
    optimizer.add_param_group({"params": [net[1]], "lr": 0.2})
    after = [digest(net)]
    for step in range(1, 5):
        optimizer.zero_grad()
        backward(step)
        optimizer.step()
    optimizer.finish()
    return [*after, digest(net)]


def group_is_refused() -> None:
    """One that is no group leaves everything as it was."""
    parameter = torch.nn.Parameter(torch.ones(3))
    for method in ("eager", "wagma", "local:H=2", "allreduce"):
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD([parameter], lr=0.1), method=method)
        for step in range(4):
            optimizer.zero_grad()
            parameter.square().sum().backward()
            if step == 1:
                try:
                    optimizer.add_param_group({"params": [parameter]})
                    raise AssertionError("twice the same parameter")
                except (ValueError, AssertionError) as error:
                    assert "more than one parameter group" in str(error) or (
                        "before optimizer.step()" in str(error)
                    ), error
            optimizer.step()
            if step == 2:
                try:
                    optimizer.add_param_group({"params": [parameter]})
                    raise AssertionError("twice the same parameter")
                except ValueError as error:
                    assert "more than one parameter group" in str(error), error
        optimizer.finish()
        covey.check_replicas(torch.nn.ParameterList([parameter]))


def nothing_to_train(method: str) -> None:
    """No parameters, or none that requires a gradient, up to now."""
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD([{"params": []}], lr=0.1), method=method
    )
    for _ in range(3):
        optimizer.zero_grad()
        optimizer.step()
    optimizer.finish()
    assert optimizer.version == 3
    net = torch.nn.Linear(3, 1).requires_grad_(False)
    hvd.broadcast_parameters(net.state_dict(), root_rank=0)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(net.parameters(), lr=0.1), model=net, method=method
    )
    optimizer.step()
    optimizer.finish()
    net.requires_grad_(True)
    optimizer.rebuild_buckets()
    for step in range(8):
        optimizer.zero_grad()
        net(torch.full((2, 3), 1.0 + hvd.rank() + step)).square().mean().backward()
        optimizer.step()
    optimizer.finish()
    covey.check_replicas(net)
    net.requires_grad_(False)
    optimizer.rebuild_buckets()
    optimizer.zero_grad()
    optimizer.step()
    optimizer.finish()
    covey.check_replicas(net)


# ---- Here --------------------------------------------------------------------------------------


class HypersTest(unittest.TestCase):
    def test_all_numbers_of_a_version_are_those_of_its_record(self) -> None:
        for name in OPTIMIZERS:
            with self.subTest(name):
                results = pool(3).call(numbers_travel, name)
                self.assertEqual(results, [results[0]] * 3, f"seed {SEED}")
                self.assertGreaterEqual(max(results[0]), 12)

    def test_what_is_no_number_stays(self) -> None:
        parameter = torch.nn.Parameter(torch.zeros(2, 2))
        optimizer = torch.optim.Adafactor([parameter], lr=0.1)  # Its eps are None and a number.
        before = read_hypers(optimizer)
        optimizer.param_groups[0]["lr"] = 0.2
        optimizer.param_groups[0]["eps"] = (None, 0.5)
        write_hypers(optimizer, before)
        self.assertEqual(optimizer.param_groups[0]["lr"], 0.1)
        self.assertEqual(optimizer.param_groups[0]["eps"], (None, 1e-3))
        self.assertEqual(read_hypers(optimizer), before)

    def test_a_group_is_added_after_what_was_left(self) -> None:
        results = pool(3).call(group_is_added_late)
        self.assertEqual(results, [results[0]] * 3)

    def test_a_group_that_is_refused_changes_nothing(self) -> None:
        pool(2).call(group_is_refused)

    def test_there_may_be_nothing_to_train(self) -> None:
        for method in ("allreduce", "eager", "wagma", "local:H=2", "local:H=2,max_wait=5s",
                       "adpsgd", "dpsgd", "swarm", "local:warmup_steps=2,then=eager@4"):
            with self.subTest(method):
                pool(2).call(nothing_to_train, method)


if __name__ == "__main__":
    unittest.main()
