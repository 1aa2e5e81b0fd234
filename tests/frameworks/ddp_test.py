"""covey.torch.DistributedDataParallel trains as DistributedOptimizer does, by every method.

Each rank trains the same net twice: wrapped, with a plain optimizer, and with a
DistributedOptimizer. Models are compared bit by bit.
"""

from __future__ import annotations

import contextlib
import copy
import os
import tempfile
import unittest
from typing import Any, Dict, List

import torch
from nets import BATCH, batch_of, loss_of, make_net, overflowing_steps
from process_groups import in_group
from ranks import Pool, SharedPool, refusal_of
from torch.distributed.optim import ZeroRedundancyOptimizer

import covey
import covey.torch as hvd
from covey.torch import ddp_arguments

pool = SharedPool(__file__)
Torchs = torch.nn.parallel.DistributedDataParallel
STEPS = 7
# Methods whose result does not depend on when a rank comes.
EXACT = (
    "allreduce",
    "allreduce:clip_norm=0.5",
    "eager:admit=all",
    "local:local_steps=2",
    "dpsgd",
    "wagma:admit=all",
    "diloco:local_steps=3,admit=all",
    "local:local_steps=2,then=allreduce@4",
    "allreduce:warmup_steps=0,then=eager@3:admit=all",
)
ANY_TIME = ("eager", "wagma", "adpsgd", "swarm")


def tearDownModule() -> None:
    pool.close()


def sgd(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.02, momentum=0.9)


def numbers_of(net: torch.nn.Module) -> List[torch.Tensor]:
    inner = net.module if isinstance(net, Torchs) else net
    return [it.detach().clone() for it in (*inner.parameters(), *inner.buffers())]


def assert_same(net: torch.nn.Module, other: torch.nn.Module, what: Any) -> None:
    for (name, _), one, two in zip(net.named_parameters(), numbers_of(net), numbers_of(other)):
        assert torch.equal(one, two), (what, name, (one - two).abs().max())


def train(net: Any, optimizer: Any, steps: int = STEPS, pause: Any = None, passes: int = 1) -> None:
    """As scripts for torch's class do, gradients added up over ``passes``."""
    for step in range(steps):
        optimizer.zero_grad()
        inputs, targets = batch_of(step, hvd.rank(), passes)
        for i in range(passes):
            part = slice(i * BATCH, (i + 1) * BATCH)
            is_last = i == passes - 1
            with contextlib.nullcontext() if is_last or pause is None else pause():
                loss_of(net, (inputs[part], targets[part]), 1 / passes).backward()
        optimizer.step()


def as_distributed_optimizer(method: str) -> None:
    wrapped = hvd.DistributedDataParallel(make_net(), method=method)
    optimizer = sgd(wrapped.parameters())
    train(wrapped, optimizer)
    net = make_net()
    distributed = hvd.DistributedOptimizer(sgd(net.parameters()), model=net, method=method)
    train(net, distributed)
    assert_same(wrapped, net, method)
    wrapped.finish()
    distributed.finish()
    assert_same(wrapped, net, method)
    hvd.check_replicas(wrapped.module)
    assert type(optimizer).__name__ == "SGD" and isinstance(wrapped, Torchs)


def at_any_time(method: str) -> None:
    wrapped = hvd.DistributedDataParallel(make_net(), method=method)
    optimizer = sgd(wrapped.parameters())
    train(wrapped, optimizer)
    wrapped.finish()
    hvd.check_replicas(wrapped.module)
    assert all(torch.isfinite(it).all() for it in wrapped.parameters())


def accumulates_by(method: str) -> None:
    """no_sync() as that of the optimizer, which has it without effect where nothing is reduced."""
    wrapped = hvd.DistributedDataParallel(make_net(), method=method)
    train(wrapped, sgd(wrapped.parameters()), passes=3, pause=wrapped.no_sync)
    net = make_net()
    distributed = hvd.DistributedOptimizer(sgd(net.parameters()), model=net, method=method)
    train(net, distributed, passes=3, pause=distributed.no_sync)
    assert_same(wrapped, net, method)


def overflows_by(method: str) -> None:
    """One rank's gradients overflow: its GradScaler leaves them out, and all do the step."""
    wrapped = hvd.DistributedDataParallel(make_net(), method=method)
    optimizer = sgd(wrapped.parameters())
    overflowing_steps(wrapped, optimizer, steps=4)
    wrapped.finish()
    hvd.check_replicas(wrapped.module)
    assert all(torch.isfinite(it).all() for it in wrapped.parameters())


def several_models() -> None:
    """Two optimizers of one model, one of two models, one made before the wrap, a second one."""
    torch.manual_seed(1)
    parts = [torch.nn.Linear(6, 6), torch.nn.Linear(6, 3)]
    before = sgd(parts[0].parameters())
    one = hvd.DistributedDataParallel(parts[0], method="local:local_steps=2")
    two = hvd.DistributedDataParallel(parts[1], method="local:local_steps=2")
    after = sgd(two.parameters())
    inputs = torch.full((2, 6), float(hvd.rank() + 1))
    for _ in range(2):
        two(one(inputs)).mean().backward()
        before.step()
        after.step()
        before.zero_grad()
        after.zero_grad()
    for part in parts:
        hvd.check_replicas(part)
    both = sgd([*one.parameters(), *two.parameters()])
    for _ in range(2):
        two(one(inputs)).mean().backward()
        both.step()
        both.zero_grad()
    for part in parts:
        hvd.check_replicas(part)


def by_closure(method: str) -> None:
    """The first forward pass is within the first step."""
    ends = []
    for kind in ("wrapped", "distributed"):
        net = make_net()
        if kind == "wrapped":
            model: Any = hvd.DistributedDataParallel(net, method=method)
            optimizer = sgd(model.parameters())
            torch.optim.lr_scheduler.StepLR(optimizer, 2)
        else:
            model = net
            optimizer = hvd.DistributedOptimizer(sgd(net.parameters()), model=net, method=method)

        for step in range(4):

            def closure(model: Any = model, step: int = step, optimizer: Any = optimizer) -> Any:
                loss = loss_of(model, batch_of(step, hvd.rank()))
                optimizer.zero_grad()
                loss.backward()
                return loss

            assert float(optimizer.step(closure)) > 0
        assert optimizer.version == 4
        ends.append(net)
    assert_same(*ends, method)


def saved_and_loaded(folder: str) -> None:
    """A training goes on from a checkpoint as if it had not ended."""
    ends = []
    for is_cut in (False, True):
        model = hvd.DistributedDataParallel(make_net(), method="local:local_steps=2")
        optimizer = sgd(model.parameters())
        train(model, optimizer, 3)
        if is_cut:
            hvd.save(folder, model, optimizer)
            model = hvd.DistributedDataParallel(make_net(), method="local:local_steps=2")
            optimizer = sgd(model.parameters())
            assert hvd.load(folder, model, optimizer).steps == 3
        train(model, optimizer, 4)
        ends.append(model)
    assert_same(*ends, "loaded")


def by_group() -> None:
    """A process set trains apart from the rest; names of parameters and state are torch's."""
    members = hvd.ProcessSet([0, 1])
    net = torch.nn.Linear(2, 1)
    if members.included():
        torch.nn.init.constant_(net.weight, hvd.rank())
        model = hvd.DistributedDataParallel(net, process_set=members, method="allreduce")
        assert net.weight[0, 0] == 0  # The first rank's.
        assert list(model.state_dict()) == ["module.weight", "module.bias"]
        model.load_state_dict(model.state_dict())
        opt = sgd(model.parameters())
        model(torch.full((1, 2), float(hvd.rank()))).mean().backward()
        assert torch.equal(net.weight.grad, torch.full((1, 2), 0.5)), net.weight.grad
        opt.step()
        copied = copy.deepcopy(model)
        copied(torch.ones(1, 2)).mean().backward()
        model.finish()


def refusals() -> Dict[str, str]:
    Model, net = hvd.DistributedDataParallel, torch.nn.Linear(2, 1)
    model, other = Model(net, method="local"), torch.nn.Linear(2, 1)
    found = {
        name: refusal_of(lambda name=name: Model(torch.nn.Linear(2, 1), **{name: object()}))
        for name in ddp_arguments._REFUSED
    }
    found["hook"] = refusal_of(lambda: model.register_comm_hook(None, None))
    found["join"] = refusal_of(model.join)
    found["settings"] = refusal_of(lambda: Model(torch.nn.Linear(2, 1), local_steps=2))
    found["device_ids"] = refusal_of(lambda: Model(torch.nn.Linear(2, 1), device_ids=[0]))
    outside = sgd([*model.parameters(), *other.parameters()])
    found["outside"] = refusal_of(lambda: model(torch.ones(1, 2)))
    del outside
    loss = model(torch.ones(1, 2)).mean()
    late = sgd(model.parameters())
    loss.backward()
    found["late"] = refusal_of(late.step)
    return found


@in_group
def sharded_by(method: str) -> str:
    """The refusal; then the optimizer that it names trains."""
    net = hvd.DistributedDataParallel(make_net(), method=method)
    optimizer: Any = ZeroRedundancyOptimizer(net.parameters(), torch.optim.Adam, lr=0.01)
    said = refusal_of(lambda: loss_of(net, batch_of(0, hvd.rank())))
    del optimizer
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    loss_of(net, batch_of(0, hvd.rank())).backward()
    optimizer.step()
    net.finish()
    hvd.check_replicas(net)
    return said


def compiled() -> None:
    net = make_net()
    model = hvd.DistributedDataParallel(net, method="local:local_steps=2")
    train(torch.compile(model, backend="eager"), sgd(model.parameters()), 4)
    hvd.check_replicas(net)


class DdpTest(unittest.TestCase):
    def test_trains_as_distributed_optimizer(self) -> None:
        for method in EXACT:
            with self.subTest(method=method):
                pool(3).call(as_distributed_optimizer, method)

    def test_trains_by_methods_that_wait_for_none(self) -> None:
        for method in ANY_TIME:
            with self.subTest(method=method):
                pool(3).call(at_any_time, method)

    def test_accumulates(self) -> None:
        for method in ("allreduce", "local:local_steps=2", "eager:admit=all"):
            with self.subTest(method=method):
                pool(3).call(accumulates_by, method)

    def test_overflows_of_one_rank(self) -> None:
        for method in ("eager", "local:local_steps=2"):
            with self.subTest(method=method):
                pool(3).call(overflows_by, method)

    def test_several_models_and_optimizers(self) -> None:
        pool(3).call(several_models)

    def test_steps_with_a_closure(self) -> None:
        for method in ("allreduce", "local:local_steps=2"):
            with self.subTest(method=method):
                pool(3).call(by_closure, method)

    def test_a_checkpoint(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            pool(3).call(saved_and_loaded, os.path.join(folder, "checkpoint"))

    def test_a_part_of_the_ranks(self) -> None:
        pool(3).call(by_group)

    def test_a_compiled_model(self) -> None:
        with Pool(2, __file__) as apart:  # tests/lean decides at a function's first call.
            apart.call(compiled)

    def test_refusals_name_the_remedy(self) -> None:
        for found in pool(3).call(refusals):
            for name in ddp_arguments._REFUSED:
                self.assertIn(f"DistributedDataParallel: {name} is not there", found[name])
            self.assertIn("codec=", found["hook"])
            self.assertIn("max_wait", found["join"])
            self.assertIn("DistributedDataParallel has no such argument", found["settings"])
            self.assertIn("for a model on one GPU", found["device_ids"])
            self.assertIn("wrap its module too", found["outside"])
            self.assertIn("make the optimizer before the forward pass", found["late"])

    def test_a_sharded_optimizer_waits_for_all(self) -> None:
        for method in ("eager", "local:local_steps=2"):
            for said in pool(2).call(sharded_by, method):
                self.assertIn("Unsupported: ZeroRedundancyOptimizer exchanges models in its", said)

    def test_trains_alone(self) -> None:
        covey.init()
        model = hvd.DistributedDataParallel(torch.nn.Linear(6, 3), method="allreduce")
        optimizer = sgd(model.parameters())
        train(model, optimizer, 2)
        model.finish()


if __name__ == "__main__":
    unittest.main()
