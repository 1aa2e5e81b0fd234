"""op=Adasum is the paper's sum, of any number of ranks, alone, grouped and of optimizers' updates.

Method: a slow reference in NumPy of float64, whose inputs follow from seed and rank.
"""

from __future__ import annotations

import unittest
from typing import Any, Dict

import numpy as np
import torch
from adasum_reference import whole
from nets import batch_of, loss_of, make_net, overflowing_steps
from ranks import SEED, SharedPool, also, refusal_of

import covey
import covey.torch as hvd
from covey.adasum_layout import levels_of

pool = SharedPool(__file__)
SHAPES = ((3, 5), (), (17,), (0,), (2, 3, 4), (1000,))
TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 2e-2}


def setUpModule() -> None:
    print(f"seed {SEED}")


def tearDownModule() -> None:
    pool.close()


def given(rank: int, shape: Any, dtype: torch.dtype, seed: int = 0) -> torch.Tensor:
    source = torch.Generator().manual_seed(SEED + 1000 * seed + rank)
    common = torch.randn(shape, generator=torch.Generator().manual_seed(SEED + seed))
    return (torch.randn(shape, generator=source) + common).to(dtype)


def wanted(shape: Any, dtype: torch.dtype, seed: int = 0, ranks: Any = None) -> torch.Tensor:
    every = range(hvd.size()) if ranks is None else ranks
    vectors = [given(rank, shape, dtype, seed).double().numpy() for rank in every]
    return torch.from_numpy(np.asarray(whole(vectors)))


def check(result: torch.Tensor, expected: torch.Tensor, dtype: torch.dtype) -> None:
    assert result.dtype is dtype and result.shape == expected.shape, result
    tol = TOLERANCE[dtype]
    torch.testing.assert_close(result.double(), expected, rtol=tol, atol=tol)


def alone(dtype: torch.dtype) -> None:
    for shape in SHAPES:
        mine = given(hvd.rank(), shape, dtype)
        kept = mine.clone()
        result = hvd.allreduce(mine, op=hvd.Adasum, name=f"one{shape}")
        assert torch.equal(mine, kept)
        check(result, wanted(shape, dtype), dtype)
        everyone = hvd.allgather(result.reshape(1, -1))
        assert all(torch.equal(row, everyone[0]) for row in everyone)
        assert hvd.allreduce_(mine, op=hvd.Adasum) is mine
        assert torch.equal(mine, result)


def grouped() -> None:
    dtypes = list(TOLERANCE)
    many = [given(hvd.rank(), s, dtypes[i % 4], i) for i, s in enumerate(SHAPES * 2)]
    many[0] = many[0].t().contiguous().t()  # With strides of its own.
    results = hvd.grouped_allreduce(many, op=hvd.Adasum)
    for i, (one, result) in enumerate(zip(many, results)):
        check(result, wanted(one.shape, one.dtype, i), one.dtype)
        alone_ = hvd.allreduce(one, op=hvd.Adasum)  # Each tensor by itself.
        torch.testing.assert_close(result, alone_)
    scaled = hvd.allreduce(many[4], op=hvd.Adasum, prescale_factor=3.0, postscale_factor=0.5)
    torch.testing.assert_close(scaled, results[4] * 1.5)
    assert hvd.grouped_allreduce_(many, op=hvd.Adasum)[3] is many[3]


def special() -> None:
    """Equal ones give that, orthogonal ones their sum, zeros nothing; a part of the ranks."""
    same = torch.tensor([1.0, -2.0, 4.0])
    torch.testing.assert_close(hvd.allreduce(same, op=hvd.Adasum), same)
    own = torch.zeros(hvd.size())
    own[hvd.rank()] = hvd.rank() + 1.0
    total = hvd.allreduce(own, op=hvd.Adasum)
    torch.testing.assert_close(total, torch.arange(1.0, hvd.size() + 1))
    assert hvd.allreduce(torch.zeros(3), op=hvd.Adasum).eq(0).all()
    last = [rank for rank in range(hvd.size()) if rank > 0]
    members = hvd.ProcessSet(last)
    if members.included():
        mine = given(hvd.rank(), (9,), torch.float64)
        result = hvd.allreduce(mine, op=hvd.Adasum, process_set=members)
        check(result, wanted((9,), torch.float64, ranks=last), torch.float64)


def any_order() -> None:
    """Ranks wait in different orders, and for other operations between."""
    names = ["a", "b", "c"]
    mine = {name: given(hvd.rank(), (50,), torch.float64, i) for i, name in enumerate(names)}
    handles = {
        name: hvd.allreduce_async(mine[name], op=hvd.Adasum, name=name) for name in names
    }
    if hvd.rank() == 0:
        results = {name: hvd.synchronize(handles[name]) for name in names}
        hvd.allreduce(torch.ones(3), name="between")
    else:
        hvd.allreduce(torch.ones(3), name="between")
        results = {name: hvd.synchronize(handles[name]) for name in reversed(names)}
    for i, name in enumerate(names):
        assert hvd.poll(handles[name])
        check(results[name], wanted((50,), torch.float64, i), torch.float64)


def tensors() -> None:
    for dtype in TOLERANCE:
        alone(dtype)
    grouped()
    special()
    any_order()


def refusals() -> Dict[str, str]:
    x = torch.ones(4)
    found = {
        "int": refusal_of(lambda: hvd.allreduce(x.int(), op=hvd.Adasum)),
        "codec": refusal_of(lambda: hvd.allreduce(x, op=hvd.Adasum, codec="int8")),
        "scatter": refusal_of(lambda: hvd.reducescatter(x, op=hvd.Adasum)),
        "factor": refusal_of(lambda: hvd.allreduce(x, op=hvd.Adasum, prescale_factor=0.0)),
    }
    shape = (4,) if hvd.rank() == 0 else (5,)
    found["shape"] = refusal_of(lambda: hvd.allreduce(torch.ones(shape), op=hvd.Adasum, name="s"))
    dtype = torch.float32 if hvd.rank() == 0 else torch.float64
    ones = torch.ones(4, dtype=dtype)
    found["dtype"] = refusal_of(lambda: hvd.allreduce(ones, op=hvd.Adasum, name="d"))
    net = torch.nn.Linear(2, 1)
    sgd = torch.optim.SGD(net.parameters(), lr=0.1)
    found["method"] = refusal_of(
        lambda: hvd.DistributedOptimizer(sgd, op=hvd.Adasum, method="local")
    )
    torch.testing.assert_close(hvd.allreduce(x, op=hvd.Adasum), x)  # All is well afterwards.
    return found


def optimizer_of(net: torch.nn.Module) -> torch.optim.Optimizer:
    # Adam's first updates of two ranks may be opposites but for rounding, which Adasum amplifies.
    return torch.optim.SGD(net.parameters(), lr=0.02, momentum=0.9)


def updates(compression: Any, tol: float) -> None:
    """A step is Adasum of all ranks' updates, which the reference does one after the other."""
    net = make_net()
    optimizer = hvd.DistributedOptimizer(
        optimizer_of(net), model=net, op=hvd.Adasum, compression=compression
    )
    assert optimizer.lr_scale() == 1.0
    everyone = [make_net() for _ in range(hvd.size())]
    plain = [optimizer_of(one) for one in everyone]
    trained = [i for i, it in enumerate(net.parameters()) if it.requires_grad]
    for step in range(4):
        optimizer.zero_grad()
        loss_of(net, batch_of(step, hvd.rank())).backward()
        optimizer.step()
        before = [[it.detach().clone() for it in one.parameters()] for one in everyone]
        for rank, (one, opt) in enumerate(zip(everyone, plain)):
            opt.zero_grad()
            loss_of(one, batch_of(step, rank)).backward()
            opt.step()
        for i in trained:
            of_all = [list(one.parameters())[i] for one in everyone]
            changes = [(new.detach() - old[i]).double().numpy() for new, old in zip(of_all, before)]
            total = before[0][i].double() + torch.from_numpy(np.asarray(whole(changes)))
            mine = list(net.parameters())[i].detach()
            torch.testing.assert_close(mine.double(), total, rtol=tol, atol=tol)
            for it in of_all:
                it.data.copy_(mine)
        hvd.check_replicas(net)
    assert optimizer.version == 4
    optimizer.finish()
    with covey.consensus(net) as mean:
        assert mean.distance == 0


def scaled() -> None:
    """A rank whose gradients overflow does no update; clipping is of its own gradients."""
    net = make_net()
    optimizer = hvd.DistributedOptimizer(optimizer_of(net), op=hvd.Adasum)
    overflowing_steps(net, optimizer, steps=3, clip=0.1)
    assert all(torch.isfinite(it).all() for it in net.parameters())
    hvd.check_replicas(net)
    optimizer.add_param_group({"params": [torch.nn.Parameter(torch.ones(2))]})
    optimizer.synchronize()
    with optimizer.skip_synchronize():
        optimizer.step()
    hvd.check_replicas(net)


class AdasumTest(unittest.TestCase):
    def test_levels_take_each_rank_once(self) -> None:
        for ranks in range(1, 70):
            taken = [j for level in levels_of(ranks) for _, j in level]
            self.assertEqual(sorted(taken), list(range(1, ranks)))

    def test_of_tensors(self) -> None:
        for size in (1, 2, 3, *also(4), 5):
            with self.subTest(size=size):
                pool(size).call(tensors)

    def test_of_updates(self) -> None:
        for size in (2, 3):
            pool(size).call(updates, hvd.Compression.none, 1e-5)
        pool(3).call(updates, hvd.Compression.fp16, 1e-2)
        pool(3).call(scaled)

    def test_refusals(self) -> None:
        for found in pool(3).call(refusals):
            self.assertIn("floating-point numbers, not of torch.int32", found["int"])
            self.assertIn("no codecs", found["codec"])
            self.assertIn("covey.torch and covey.tensorflow only", found["scatter"])
            self.assertIn("must not be 0", found["factor"])
            self.assertIn("Mismatch", found["shape"])
            self.assertRegex(found["shape"], r"rank 0 has 'float32 \[4\]', rank 1 has .*\[5\]")
            self.assertRegex(found["dtype"], r"Mismatch.*'float32 \[4\]', rank 1 has 'float64")
            self.assertIn("use method='allreduce'", found["method"])


if __name__ == "__main__":
    unittest.main()
