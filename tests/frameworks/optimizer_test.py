"""DistributedOptimizer trains as one process with the whole batch would.

Each rank trains on its shard with the distributed optimizer, and beside it a copy on the whole
batch with the plain one; after every step the parameters must be close, and bitwise equal on all
ranks.
"""

from __future__ import annotations

import copy
import unittest
import warnings
from typing import Any, Callable, Dict, List

import torch
from nets import BATCH, assert_close, batch_of, loss_of, make_net, one_step, whole_batch
from ranks import SEED, SharedPool, differ

import covey.torch as hvd

SIZE = 3
pool = SharedPool(__file__)


def setUpModule() -> None:
    differ()
    print(f"seed {SEED}")


def tearDownModule() -> None:
    pool.close()


OPTIMIZERS: Dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.02, momentum=0.9, weight_decay=0.01),
    # With torch's eps, of 1e-8, the rounding of a gradient near 0 is a step.
    "adam": lambda p: torch.optim.Adam(p, lr=0.01, eps=1e-3),
}


def train(kind: str, passes: int, set_to_none: bool, options: Dict[str, Any], tol: float) -> None:
    net = make_net()
    reference = copy.deepcopy(net)
    plain = OPTIMIZERS[kind](reference.parameters())
    optimizer = hvd.DistributedOptimizer(
        OPTIMIZERS[kind](net.parameters()),
        named_parameters=net.named_parameters(),
        backward_passes_per_step=passes,
        **options,
    )
    for step in range(5):
        inputs, targets = batch_of(step, hvd.rank(), passes)
        optimizer.zero_grad(set_to_none=set_to_none)
        for i in range(passes):
            part = slice(i * BATCH, (i + 1) * BATCH)
            loss_of(net, (inputs[part], targets[part]), 1 / passes).backward()
        optimizer.step()
        plain.zero_grad()
        loss_of(reference, whole_batch(step, passes)).backward()
        plain.step()
        assert_close(net, reference, (kind, passes, set_to_none, options, step), tol)


def train_all_ways() -> None:
    for kind in OPTIMIZERS:
        for passes in (1, 3):
            for set_to_none in (True, False):
                for bucket_bytes in (1, 2000, 1 << 23):
                    train(kind, passes, set_to_none, {"bucket_bytes": bucket_bytes}, 1e-5)


def train_with_options() -> None:
    train("sgd", 1, True, {"gradient_predivide_factor": 2.0}, 1e-5)
    train("sgd", 1, True, {"num_groups": 2}, 1e-5)
    train("sgd", 1, True, {"groups": 100}, 1e-5)
    train("sgd", 1, True, {"compression": hvd.Compression.fp16}, 2e-2)
    train("sgd", 2, False, {"compression": hvd.Compression.bf16}, 5e-2)
    train("sgd", 1, True, {"compression": Halves}, 1e-5)


class Halves(hvd.Compressor):
    """A compressor of the user's own: sends halves."""

    @staticmethod
    def compress(tensor: torch.Tensor) -> Any:
        return tensor / 2, 2

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: Any) -> torch.Tensor:
        return tensor * ctx


def other_operations() -> None:
    for op in (hvd.Sum, hvd.Min, hvd.Max, hvd.Product):
        net = make_net()
        grads = []
        for rank in range(hvd.size()):
            one = copy.deepcopy(net)
            loss_of(one, batch_of(0, rank)).backward()
            grads.append([p.grad for p in one.parameters() if p.grad is not None])
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD(net.parameters(), lr=0.1), op=op)
        loss_of(net, batch_of(0, hvd.rank())).backward()
        optimizer.synchronize()
        for i, p in enumerate(p for p in net.parameters() if p.requires_grad):
            stack = torch.stack([row[i] for row in grads])
            wanted = {
                hvd.Sum: stack.sum(0),
                hvd.Min: stack.amin(0),
                hvd.Max: stack.amax(0),
                hvd.Product: stack.prod(0),
            }[op]
            torch.testing.assert_close(p.grad, wanted)


class Branches(torch.nn.Module):
    """a: used by all; b: by rank 1 only; c: by nobody."""

    def __init__(self) -> None:
        super().__init__()
        self.a = torch.nn.Linear(6, 3)
        self.b = torch.nn.Linear(6, 3)
        self.c = torch.nn.Linear(6, 3)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        uses_b = hvd.rank() == 1
        return self.a(inputs) + (self.b(inputs) if uses_b else 0)


def unused_parameters() -> None:
    for set_to_none in (True, False):
        net = make_net(Branches)
        before = copy.deepcopy(net)
        optimizer = hvd.DistributedOptimizer(
            torch.optim.Adam(net.parameters(), lr=0.1, weight_decay=0.1), model=net
        )
        for step in range(3):
            optimizer.zero_grad(set_to_none=set_to_none)
            loss_of(net, batch_of(step, hvd.rank())).backward()
            optimizer.step()
            assert net.b.weight.grad is not None, "rank 1 had a gradient for it"
            assert net.c.weight.grad is None and net.c.bias.grad is None
            hvd.check_replicas(net)
        assert torch.equal(net.c.weight, before.c.weight), "nobody used it"
        assert not torch.equal(net.b.weight, before.b.weight)


def nothing_computed_here() -> None:
    """A rank may step without a backward pass; the others' gradients arrive, divided by all."""
    net = make_net()
    grads = []
    for rank in range(1, hvd.size()):
        one = copy.deepcopy(net)
        loss_of(one, batch_of(0, rank)).backward()
        grads.append(one.hidden.weight.grad)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(net.parameters(), lr=0.1), model=net)
    if hvd.rank() != 0:
        loss_of(net, batch_of(0, hvd.rank())).backward()
    optimizer.step()
    torch.testing.assert_close(net.hidden.weight.grad, sum(grads) / hvd.size())
    hvd.check_replicas(net)


def partial_tail() -> None:
    """Fewer passes than backward_passes_per_step, and passes within no_sync()."""
    net = make_net()
    reference = copy.deepcopy(net)
    plain = torch.optim.SGD(reference.parameters(), lr=0.01)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(net.parameters(), lr=0.01), model=net, backward_passes_per_step=3
    )
    for step, passes in enumerate((3, 2, 1, 3)):
        optimizer.zero_grad()
        plain.zero_grad()
        for i in range(passes):
            loss_of(net, batch_of(10 * step + i, hvd.rank())).backward()
            loss_of(reference, whole_batch(10 * step + i)).backward()
        optimizer.step()
        plain.step()
        assert_close(net, reference, ("tail", step), 1e-5)
    optimizer.set_backward_passes_per_step(1)
    for step in range(50, 53):
        optimizer.zero_grad()
        plain.zero_grad()
        with optimizer.no_sync():
            for i in range(2):
                loss_of(net, batch_of(10 * step + i, hvd.rank())).backward()
                loss_of(reference, whole_batch(10 * step + i)).backward()
        loss_of(net, batch_of(step, hvd.rank())).backward()
        loss_of(reference, whole_batch(step)).backward()
        optimizer.step()
        plain.step()
        assert_close(net, reference, ("no_sync", step), 1e-5)


def clip_and_skip() -> None:
    net = make_net()
    reference = copy.deepcopy(net)
    plain = torch.optim.SGD(reference.parameters(), lr=0.5)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(net.parameters(), lr=0.5), model=net)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    for step in range(4):
        optimizer.zero_grad()
        plain.zero_grad()
        loss_of(reference, whole_batch(step)).backward()
        torch.nn.utils.clip_grad_norm_(reference.parameters(), 0.1)
        plain.step()
        loss = loss_of(net, batch_of(step, hvd.rank()))
        if step % 2:
            scaler.scale(loss).backward()
            optimizer.synchronize()
            scaler.unscale_(optimizer)
        else:
            loss.backward()
            optimizer.synchronize()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 0.1)
        with optimizer.skip_synchronize():
            scaler.step(optimizer) if step % 2 else optimizer.step()
        scaler.update() if step % 2 else None
        assert_close(net, reference, ("clip", step), 1e-5)
    loss_of(net, batch_of(9, hvd.rank())).backward()
    optimizer.synchronize()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        optimizer.step()
    assert [warning.filename for warning in said] == [__file__], said
    assert "skip_synchronize" in str(said[0].message)
    one_step(net, optimizer)
    hvd.check_replicas(net)


def closures() -> None:
    # L-BFGS of longer steps comes far away with one seed in a hundred: then no rounding is small.
    for kind in ("sgd", "adam", "lbfgs"):
        net = make_net()
        reference = copy.deepcopy(net)
        make = OPTIMIZERS.get(kind, lambda p: torch.optim.LBFGS(p, lr=0.1, max_iter=4))
        plain = make([p for p in reference.parameters() if p.requires_grad])
        optimizer = hvd.DistributedOptimizer(make([p for p in net.parameters() if p.requires_grad]))
        for step in range(3):

            def closure(which: Any, model: Any, batch: Any) -> torch.Tensor:
                which.zero_grad()
                loss = loss_of(model, batch)
                loss.backward()
                return loss

            mine, whole = batch_of(step, hvd.rank()), whole_batch(step)
            value = optimizer.step(lambda: closure(optimizer, net, mine))
            wanted = plain.step(lambda: closure(plain, reference, whole))
            if kind == "lbfgs":
                torch.testing.assert_close(value.item(), wanted.item(), rtol=1e-3, atol=1e-4)
            assert_close(net, reference, (kind, step), 1e-3 if kind == "lbfgs" else 1e-5)


class OptimizerTest(unittest.TestCase):
    def run_on_all(self, function: Callable[..., Any]) -> List[Any]:
        return pool(SIZE).call(function, timeout=180)

    def test_equals_one_process_with_the_whole_batch(self) -> None:
        self.run_on_all(train_all_ways)

    def test_options(self) -> None:
        self.run_on_all(train_with_options)

    def test_other_operations(self) -> None:
        self.run_on_all(other_operations)

    def test_unused_parameters(self) -> None:
        self.run_on_all(unused_parameters)

    def test_a_rank_without_backward(self) -> None:
        self.run_on_all(nothing_computed_here)

    def test_fewer_passes_and_no_sync(self) -> None:
        self.run_on_all(partial_tail)

    def test_clipping_and_scaler(self) -> None:
        self.run_on_all(clip_and_skip)

    def test_closures(self) -> None:
        self.run_on_all(closures)


if __name__ == "__main__":
    unittest.main()
