"""DistributedOptimizer's rules: buckets and groups, wrong orders of calls, kinds of parameters."""

from __future__ import annotations

import contextlib
import copy
import gc
import io
import os
import signal
import time
import unittest
import unittest.mock
import weakref
from typing import Any, Callable, List

import torch
from nets import assert_close, batch_of, loss_of, make_net, one_step, whole_batch
from ranks import Pool, SEED, SharedPool, on_one_host, ranks_may_die

import covey
import covey.torch as hvd

SIZE = 3

pool = SharedPool(__file__)


def setUpModule() -> None:
    print(f"seed {SEED}")


def tearDownModule() -> None:
    pool.close()


def groups_of_parameters() -> None:
    net = make_net()
    reference = copy.deepcopy(net)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(net.parameters(), lr=0.1),
        model=net,
        groups=[[net.embed.weight, net.out.bias], [net.scale]],
    )
    names = [bucket.names for bucket in optimizer._covey_reducer.buckets]
    assert names[:2] == [["out.bias", "embed.weight"], ["scale"]], names
    one_step(net, optimizer)
    plain = torch.optim.SGD(reference.parameters(), lr=0.1)
    loss_of(reference, whole_batch(0)).backward()
    plain.step()
    assert_close(net, reference, "groups", 1e-5)


def guards() -> List[str]:
    """Wrong orders of calls raise at once, and training goes on afterwards."""
    texts = []
    net = make_net()
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(net.parameters(), lr=0.1), model=net)

    def expect(kind: Any, call: Callable[[], Any]) -> None:
        try:
            call()
        except kind as error:
            texts.append(str(error))
        else:
            raise AssertionError(f"{kind} expected")

    loss_of(net, batch_of(0, hvd.rank())).backward()
    expect(AssertionError, optimizer.zero_grad)
    expect(AssertionError, lambda: loss_of(net, batch_of(0, hvd.rank())).backward())
    expect(AssertionError, optimizer.rebuild_buckets)
    optimizer.step()
    one_step(net, optimizer)
    net.frozen.requires_grad_(True)
    optimizer.zero_grad()
    loss_of(net, batch_of(2, hvd.rank())).backward()
    expect(RuntimeError, optimizer.step)
    net.frozen.zero_grad()
    optimizer.step()
    optimizer.zero_grad()
    optimizer.rebuild_buckets()
    one_step(net, optimizer)
    hvd.check_replicas(net)
    return texts


def more_parameters() -> None:
    """add_param_group, and wrapping the same parameters again for a second stage."""
    net, extra = make_net(), make_net(lambda: torch.nn.Linear(3, 3))
    both = torch.nn.ModuleList([net])
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(net.parameters(), lr=0.1), model=both)
    one_step(net, optimizer)
    both.append(extra)
    optimizer.add_param_group({"params": list(extra.parameters()), "lr": 0.01})
    optimizer.zero_grad()
    inputs, targets = batch_of(1, hvd.rank())
    ((extra(net(inputs)) - targets) ** 2).mean().backward()
    optimizer.step()
    hvd.check_replicas(both)
    second = hvd.DistributedOptimizer(torch.optim.Adam(both.parameters()), model=both)
    second.zero_grad()
    ((extra(net(inputs)) - targets) ** 2).mean().backward()
    second.step()
    hvd.check_replicas(both)
    assert not optimizer._covey_reducer.in_flight


def overlaps_with_backward() -> None:
    """The last layers' bucket travels while backward computes the first layer."""
    net = make_net()
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(net.parameters(), lr=0.1), model=net, bucket_bytes=256
    )
    seen = []
    net.embed.weight.register_hook(lambda _: seen.append(optimizer._covey_reducer.in_flight))
    one_step(net, optimizer)
    assert seen == [True]
    for bucket in optimizer._covey_reducer.buckets:
        for parameter, view in zip(bucket.parameters, bucket.views):
            assert parameter.grad is view
            begin = bucket.flat.data_ptr()
            assert begin <= view.data_ptr() < begin + bucket.flat.numel() * 4


def channels_last() -> None:
    net = make_net(lambda: torch.nn.Conv2d(3, 5, 3)).to(memory_format=torch.channels_last)
    reference = copy.deepcopy(net)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(net.parameters(), lr=0.1), model=net)
    torch.manual_seed(SEED + 1)
    images = torch.randn(2 * hvd.size(), 3, 6, 6)
    net(images[2 * hvd.rank() :][:2]).square().mean().backward()
    optimizer.step()
    reference(images).square().mean().backward()
    torch.optim.SGD(reference.parameters(), lr=0.1).step()
    assert net.weight.grad.stride() == net.weight.stride()
    assert_close(net, reference, "channels last", 1e-5)


def mixed_dtypes() -> None:
    torch.manual_seed(SEED)
    tensors = [torch.randn(5, 5, dtype=d) for d in (torch.float64, torch.float32, torch.bfloat16)]
    parameters = [torch.nn.Parameter(tensor) for tensor in tensors]
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(parameters, lr=1.0))
    sum((p * 2.0 ** hvd.rank()).sum().float() for p in parameters).backward()
    optimizer.synchronize()
    for p in parameters:
        wanted = torch.full((5, 5), (2.0 ** hvd.size() - 1) / hvd.size(), dtype=p.dtype)
        torch.testing.assert_close(p.grad, wanted)
    assert len(optimizer._covey_reducer.buckets) == 3


def sparse_net(sparse: bool) -> Any:
    torch.manual_seed(7)
    tables = [torch.nn.Embedding(10, 4, sparse=sparse), torch.nn.Embedding(6, 4, sparse=sparse)]
    return torch.nn.ModuleList([*tables, torch.nn.Linear(4, 3)])


def train_sparse(sparse: bool, step_of: Any, **options: Any) -> Any:
    """Rank 1 has no gradient of the first table but in the third step, and no rank one of the
    second table in the first two; the parameters after each step."""
    net = sparse_net(sparse)
    sgd = torch.optim.SGD(net.parameters(), lr=0.5)
    optimizer = hvd.DistributedOptimizer(sgd, model=net, **options)
    for step in range(5):
        step_of(optimizer, step)
        if hvd.rank() != 1 or step == 2:
            net[2](net[0](torch.tensor([hvd.rank(), 7, 7]))).sum().backward()
        if step >= 2:
            net[1](torch.tensor([step, hvd.rank()])).square().sum().backward()
        optimizer.step()
        hvd.check_replicas(net)
        yield [p.detach().clone() for p in net.parameters()], optimizer


def sparse_gradients() -> List[str]:
    """Trains as with dense gradients; the errors where that is refused."""
    for op, zeroes in ((hvd.Average, True), (hvd.Sum, True), (hvd.Average, False)):

        def begin(optimizer: Any, step: int, zeroes: bool = zeroes) -> None:
            if step > 0 or zeroes:  # Else gradients are added to the zeros that are there: dense.
                optimizer.zero_grad()

        rows = [train_sparse(True, begin, op=op), train_sparse(False, begin, op=op),
                train_sparse(True, begin, op=op, sparse_as_dense=True)]
        for sparse, dense, densified in zip(*rows):
            torch.testing.assert_close(sparse[0], dense[0])
            torch.testing.assert_close(densified[0], dense[0])
        slots = [slot.name for it in sparse[1]._covey_reducer.buckets for slot in it.plan.slots]
        assert sorted(slots) == ["2.bias", "2.weight"], slots
    return [refused_sparse(**options) for options in (
        {"op": hvd.Max}, {"method": "eager"}, {"compression": hvd.Compression.of("int8")}
    )]


def sparse_adam() -> None:
    """Takes sparse gradients alone, also where they are to be made dense."""
    tables = [sparse_net(True)[0] for _ in range(2)]
    for table, densify in zip(tables, (True, False)):
        adam = torch.optim.SparseAdam(list(table.parameters()), lr=0.1)
        optimizer = hvd.DistributedOptimizer(adam, model=table, sparse_as_dense=densify)
        optimizer.zero_grad()
        table(torch.tensor([hvd.rank(), 7])).sum().backward()
        optimizer.step()
    torch.testing.assert_close(*(table.weight for table in tables))


def refused_sparse(**options: Any) -> str:
    table = sparse_net(True)[0]
    sgd = torch.optim.SGD(table.parameters(), lr=0.5)
    optimizer = hvd.DistributedOptimizer(sgd, model=table, **options)
    optimizer.zero_grad()
    try:
        table(torch.tensor([hvd.rank()])).sum().backward()
        optimizer.step()
    except ValueError as error:
        return str(error)
    return "taken"


def sparse_allreduce() -> None:
    for dtype, op in ((torch.float32, hvd.Average), (torch.int64, hvd.Sum)):
        dense = torch.zeros(5, 3, 2, dtype=dtype)
        for row in range(hvd.rank()):  # Rank 0 has none.
            dense[row, row] = row + 1
        handle = hvd.sparse_allreduce_async(dense.to_sparse(2), f"sparse.{dtype}", op)
        torch.testing.assert_close(
            hvd.synchronize(handle).to_dense(), hvd.allreduce(dense, op=op, name="dense")
        )
        assert handle.poll()
    for given in (dense, dense.to_sparse()):
        try:
            hvd.sparse_allreduce_async(given, "x", hvd.Max if given.is_sparse else hvd.Sum)
        except covey.Unsupported:
            continue
        raise AssertionError("it was taken")


def part_of_the_ranks() -> None:
    group = hvd.ProcessSet([0, 2])
    net = make_net()
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(net.parameters(), lr=0.1), model=net, process_set=group
    )
    assert (optimizer._covey_reducer is not None) == group.included()
    for step in range(3):
        one_step(net, optimizer, step)
    if group.included():
        hvd.check_replicas(net, group)
    else:
        reference = make_net()
        plain = torch.optim.SGD(reference.parameters(), lr=0.1)
        for step in range(3):
            one_step(reference, plain, step)
        for actual, wanted in zip(net.parameters(), reference.parameters()):
            assert torch.equal(actual, wanted)


def different_models() -> str:
    wide = 8 if hvd.rank() == 1 else 7
    net = torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.Linear(5, wide))
    try:
        hvd.DistributedOptimizer(torch.optim.SGD(net.parameters(), lr=0.1), model=net)
    except covey.Mismatch as error:
        works = make_net()
        one_step(works, hvd.DistributedOptimizer(torch.optim.SGD(works.parameters(), lr=0.1)))
        hvd.check_replicas(works)
        return str(error)
    return ""


def train_until_a_rank_dies() -> Any:
    """Rank 1 is killed within a step; what the others see, and when."""
    net = make_net()
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(net.parameters(), lr=0.1), model=net, bucket_bytes=1
    )
    one_step(net, optimizer)
    begun = time.monotonic()
    if hvd.rank() == 1:
        net.embed.weight.register_hook(lambda _: os.kill(os.getpid(), signal.SIGKILL))
    try:
        one_step(net, optimizer)
    except hvd.HorovodInternalError as error:
        assert not optimizer._covey_reducer.in_flight
        optimizer.zero_grad()
        return error.peer_rank, str(error), time.monotonic() - begun
    return None


def train_without_arena(method: str) -> List[str]:
    """Gradients, or a model, that do not fit into the arena lie outside of it."""
    with contextlib.redirect_stderr(io.StringIO()) as said:
        torch.manual_seed(SEED)
        wide = 400_000
        net = torch.nn.Sequential(torch.nn.Linear(6, wide), torch.nn.Linear(wide, 3))
        sgd = torch.optim.SGD(net.parameters(), lr=0.001)
        optimizer = hvd.DistributedOptimizer(sgd, method=method)
    for step in range(3):
        one_step(net, optimizer, step)
    optimizer.finish()
    hvd.check_replicas(net)
    return said.getvalue().splitlines()


def is_freed(method: str) -> bool:
    """An optimizer that no variable holds any more, with all its hooks, without a collection."""
    parameter = torch.nn.Parameter(torch.zeros(3))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([parameter], lr=0.1), method=method)
    for _ in range(3):
        optimizer.zero_grad()
        parameter.sum().backward()
        optimizer.step()
    optimizer.finish()
    hvd.barrier()
    gc.disable()
    try:
        held = weakref.ref(optimizer)
        del optimizer
        return held() is None
    finally:
        gc.enable()


class OptimizerRulesTest(unittest.TestCase):
    def run_on_all(self, function: Callable[..., Any]) -> List[Any]:
        return pool(SIZE).call(function, timeout=180)

    def test_groups_of_parameters(self) -> None:
        self.run_on_all(groups_of_parameters)

    def test_guards(self) -> None:
        for texts in self.run_on_all(guards):
            self.assertIn("zero_grad() was called after loss.backward()", texts[0])
            self.assertIn("backward_passes_per_step (1)", texts[1])
            self.assertIn("rebuild_buckets", texts[2])
            self.assertIn("frozen.weight began to require a gradient", texts[3])
            self.assertIn("on every rank, before loss.backward()", texts[3])

    def test_more_parameters(self) -> None:
        self.run_on_all(more_parameters)

    def test_overlaps_with_backward(self) -> None:
        self.run_on_all(overlaps_with_backward)

    def test_channels_last(self) -> None:
        self.run_on_all(channels_last)

    def test_mixed_dtypes(self) -> None:
        self.run_on_all(mixed_dtypes)

    def test_sparse_gradients(self) -> None:
        for errors in self.run_on_all(sparse_gradients):
            self.assertEqual(len(errors), 3)
            for text in errors:
                self.assertIn("sparse_as_dense=True", text)
        self.run_on_all(sparse_allreduce)
        self.run_on_all(sparse_adam)

    @ranks_may_die
    def test_a_rank_that_dies_is_named(self) -> None:
        with Pool(SIZE, __file__) as own:
            own.send(train_until_a_rank_dies)
            seen = own.collect(may_end=True)
        for peer, text, seconds in (seen[0], seen[2]):
            self.assertEqual(peer, 1)
            self.assertIn("rank 1", text)
            self.assertIn("grad", text)
            self.assertLess(seconds, 5)

    @on_one_host("between hosts a collective needs room in the arena")
    def test_a_full_arena(self) -> None:
        with unittest.mock.patch.dict(os.environ, {"COVEY_ARENA_BYTES": "16MiB"}):
            with Pool(2, __file__, env={"COVEY_ARENA_BYTES": "16MiB"}) as own:
                for texts in own.call(train_without_arena, "allreduce"):
                    self.assertRegex(texts[0], "warning: gradients lie outside of the arena")
                own.call(train_without_arena, "local:H=2")
                self.assertIn("a model lies outside of the arena", own.stderr(1))

    def test_one_that_is_dropped_is_gone(self) -> None:
        for method in ("allreduce", "local:H=2", "eager", "wagma", "adpsgd", "diloco:H=2"):
            with self.subTest(method):
                self.assertEqual(pool(SIZE).call(is_freed, method), [True] * SIZE)

    def test_process_set(self) -> None:
        self.run_on_all(part_of_the_ranks)

    def test_different_models_are_refused(self) -> None:
        for text in self.run_on_all(different_models):
            self.assertIn("1.bias: float32 [7]", text)
            self.assertIn("rank 1 has '1.bias: float32 [8]", text)


if __name__ == "__main__":
    unittest.main()
