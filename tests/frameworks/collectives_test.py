"""Every operation on torch tensors: op x dtype x shape x way of calling, against the obvious.

Each rank computes what it expects from all ranks' inputs, which follow from the seed.
"""

from __future__ import annotations

import random
import unittest
from typing import Any, Callable, List, Optional

import torch
from ranks import SEED, SharedPool, also

import covey.torch as hvd

SHAPES = ((), (1,), (5,), (0,), (3, 0, 2), (7, 3), (2, 3, 4, 5), (4097,))
FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
INTEGERS = (
    *(torch.uint8, torch.int8, torch.int32, torch.int64),
    *(torch.int16, torch.uint16, *also(torch.uint32, torch.uint64)),
)
DTYPES = FLOATS + INTEGERS

pool = SharedPool(__file__)


def setUpModule() -> None:
    print(f"seed {SEED}")


def tearDownModule() -> None:
    pool.close()


# ---- Inputs and expected results ----------------------------------------------------------------


def make(rank: int, shape: Any, dtype: torch.dtype, salt: Any = 0, small: bool = False) -> Any:
    """Random integers times 2^rank (small: 1..3), so that sums over few ranks are exact."""
    seed = random.Random(f"{SEED} {rank} {dtype} {salt}").getrandbits(31)
    source = torch.Generator().manual_seed(seed)
    if small:
        return torch.randint(1, 4, shape, generator=source).to(dtype)
    low = -7 if dtype.is_signed else 0
    return (torch.randint(low, 8, shape, generator=source) * 2**rank).to(dtype)


def expected(inputs: List[Any], op: int) -> Any:
    """The reduction of all ranks' inputs, in double or 64-bit integers."""
    wide = torch.float64 if inputs[0].dtype.is_floating_point else torch.int64
    stack = torch.stack([tensor.to(wide) for tensor in inputs])
    if op == hvd.Sum:
        result = stack.sum(0)
    elif op == hvd.Average:
        result = stack.sum(0) / len(inputs)
        result = result if wide is torch.float64 else result.trunc()
    elif op == hvd.Product:
        result = stack.prod(0)
    else:
        result = stack.amin(0) if op == hvd.Min else stack.amax(0)
    return result.to(inputs[0].dtype)


def check(actual: Any, wanted: Any, what: Any) -> None:
    """Equal in shape and dtype; bitwise but for averages of three, which may round once more."""
    assert actual.shape == wanted.shape, (what, actual.shape, wanted.shape)
    assert actual.dtype == wanted.dtype, (what, actual.dtype, wanted.dtype)
    if not torch.equal(actual, wanted):
        tolerance = 2.0 ** -{torch.bfloat16: 7, torch.float16: 9}.get(wanted.dtype, 22)
        assert wanted.dtype.is_floating_point and hvd.size() == 3, (what, actual, wanted)
        torch.testing.assert_close(actual, wanted, rtol=tolerance, atol=0, msg=str(what))


def every(op: int) -> Any:
    """(shape, dtype, inputs of all ranks, a name) for every case."""
    for dtype in DTYPES:
        for number, shape in enumerate(SHAPES):
            salt = (number, int(op))
            inputs = [make(r, shape, dtype, salt, op == hvd.Product) for r in range(hvd.size())]
            yield shape, dtype, inputs, f"{int(op)}.{dtype}.{number}"


OPS = (hvd.Sum, hvd.Average, hvd.Min, hvd.Max, hvd.Product)


def reduce_all(way: str) -> None:
    for op in OPS:
        for shape, dtype, inputs, name in every(op):
            tensor = inputs[hvd.rank()].clone()
            before = tensor.clone()
            result = WAYS[way](tensor, name, op)
            wanted = expected(inputs, op)
            check(result, wanted, (way, op, dtype, shape))
            if way.endswith("_"):
                assert result is tensor
            else:
                assert torch.equal(tensor, before), "the input was changed"


WAYS: "dict[str, Callable[..., Any]]" = {
    "allreduce": lambda t, name, op: hvd.allreduce(t, name=name, op=op),
    "allreduce_": lambda t, name, op: hvd.allreduce_(t, name=name, op=op),
    "unnamed": lambda t, name, op: hvd.allreduce(t, op=op),
    "async": lambda t, name, op: hvd.synchronize(hvd.allreduce_async(t, name=name, op=op)),
    "async_": lambda t, name, op: hvd.synchronize(hvd.allreduce_async_(t, name=name, op=op)),
    "grouped": lambda t, name, op: hvd.grouped_allreduce([t], name=name, op=op)[0],
    "grouped_": lambda t, name, op: hvd.grouped_allreduce_([t], name=name, op=op)[0],
}


def reduce_scaled() -> None:
    for dtype in FLOATS:
        for number, (prescale, postscale) in enumerate(((0.5, 4.0), (2.0, 0.25), (-1.0, 8.0))):
            inputs = [make(r, (33,), dtype, number) for r in range(hvd.size())]
            actual = hvd.allreduce(
                inputs[hvd.rank()],
                op=hvd.Sum,
                name="scaled",
                prescale_factor=prescale,
                postscale_factor=postscale,
            )
            wanted = sum(tensor.double() * prescale for tensor in inputs) * postscale
            check(actual, wanted.to(dtype), (dtype, prescale, postscale))


def reduce_strided() -> None:
    for number, view in enumerate(
        (lambda t: t.t(), lambda t: t[::2, 1::3], lambda t: t[:, :1].expand(-1, 3), lambda t: t[2])
    ):
        whole = [make(r, (6, 9), torch.float32, number) for r in range(hvd.size())]
        wanted = expected([view(tensor) for tensor in whole], hvd.Sum)
        mine = whole[hvd.rank()].clone()
        check(hvd.allreduce(view(mine), op=hvd.Sum, name="strided"), wanted, number)
        if number == 2:
            continue  # Expanded memory cannot be written in place.
        outside = mine.clone()
        tensor = view(mine)
        assert hvd.allreduce_(tensor, op=hvd.Sum, name="strided") is tensor
        check(tensor, wanted, ("in place", number))
        view(outside).copy_(wanted)
        assert torch.equal(mine, outside), "memory beside the view was changed"


def broadcast_all() -> None:
    for dtype in DTYPES + (torch.bool,):
        for number, shape in enumerate(SHAPES):
            for root in range(hvd.size()):
                inputs = [make(r, shape, dtype, (number, root)) for r in range(hvd.size())]
                mine = inputs[hvd.rank()]
                name = f"b.{dtype}.{number}.{root}"
                check(hvd.broadcast(mine, root, name=name), inputs[root], name)
                check(hvd.synchronize(hvd.broadcast_async(mine, root)), inputs[root], name)
                mine = mine.clone()
                assert hvd.broadcast_(mine, root, name=name) is mine
                check(mine, inputs[root], name)


def gather_all() -> None:
    for dtype in DTYPES + (torch.bool,):
        for number, tail in enumerate(((), (3,), (2, 5), (0,))):
            for extents in ([1, 2, 3, 4], [0, 3, 0, 1], [0, 0, 0, 0], [2, 2, 2, 2]):
                shapes = [(extents[r], *tail) for r in range(hvd.size())]
                inputs = [make(r, shape, dtype, (number, 9)) for r, shape in enumerate(shapes)]
                mine = inputs[hvd.rank()]
                wanted = torch.cat(inputs)
                name = f"g.{dtype}.{number}"
                check(hvd.allgather(mine, name=name), wanted, (name, extents))
                check(hvd.synchronize(hvd.allgather_async(mine)), wanted, (name, extents))
                root = number % hvd.size()
                wanted = wanted if hvd.rank() == root else wanted[:0]
                check(hvd.gather(mine, root, name=name), wanted, (name, extents, root))


def gather_large() -> None:
    inputs = [make(r, (300_000 + r, 2), torch.float32) for r in range(hvd.size())]
    result = hvd.allgather(inputs[hvd.rank()], name="large")
    check(result, torch.cat(inputs), "large")
    result += 1  # The result is the caller's own.


def group_mixed() -> None:
    dtypes = (torch.float32, torch.int64, torch.float32, torch.bfloat16, torch.int64)
    inputs = [
        [make(r, (4, i + 1), dtype, i) for i, dtype in enumerate(dtypes)] for r in range(hvd.size())
    ]
    wanted = [expected([row[i] for row in inputs], hvd.Sum) for i in range(len(dtypes))]
    mine = [tensor.clone() for tensor in inputs[hvd.rank()]]
    for name in ("mixed", None):
        results = hvd.grouped_allreduce(mine, op=hvd.Sum, name=name)
        for i, result in enumerate(results):
            check(result, wanted[i], i)
        gathered = hvd.grouped_allgather(mine, name=name)
        for i, result in enumerate(gathered):
            check(result, torch.cat([row[i] for row in inputs]), i)
    handle = hvd.grouped_allreduce_async_(mine, op=hvd.Sum, name="mixed")
    results = hvd.synchronize(handle)
    assert hvd.poll(handle)
    for i, result in enumerate(results):
        assert result is mine[i]
        check(result, wanted[i], i)
    assert hvd.grouped_allreduce([], name="nothing") == []


def many_in_flight() -> None:
    """Submitted in another order on every rank, waited for in yet another."""
    order = list(range(200))
    inputs = {i: [make(r, (i,), torch.float32, i) for r in range(hvd.size())] for i in order}
    shuffle = random.Random(SEED + hvd.rank())
    shuffle.shuffle(order)
    handles = {
        i: hvd.allreduce_async(inputs[i][hvd.rank()], op=hvd.Sum, name=f"many.{i}") for i in order
    }
    shuffle.shuffle(order)
    for i in order:
        check(handles[i].wait(), expected(inputs[i], hvd.Sum), i)
        assert handles[i].poll()
        assert handles[i].wait() is handles[i].wait()


def dropped_handles() -> None:
    """A handle may be dropped: the operation goes on and ends."""
    tensors = [make(hvd.rank(), (1000,), torch.float32, i) for i in range(50)]
    for i, tensor in enumerate(tensors):
        hvd.allreduce_async_(tensor, op=hvd.Sum, name=f"dropped.{i}")
    for i, tensor in enumerate(tensors):
        inputs = [make(r, (1000,), torch.float32, i) for r in range(hvd.size())]
        handle = None
        while handle is None:  # The name is free once the dropped operation has ended.
            try:
                handle = hvd.allreduce_async(torch.zeros(1), name=f"dropped.{i}")
            except ValueError:
                hvd.synchronize(hvd.allreduce_async(torch.zeros(1), process_set=alone()))
        handle.wait()
        check(tensor, expected(inputs, hvd.Sum), i)


def alone() -> hvd.ProcessSet:
    return hvd.ProcessSet([hvd.rank()])


def gradients() -> None:
    size, rank = hvd.size(), hvd.rank()
    weights = [make(r, (size, 2), torch.float32, "w") for r in range(size)]
    total = sum(weights)

    x = make(rank, (size, 2), torch.float32).requires_grad_()
    (hvd.allreduce(x, op=hvd.Sum, name="d") * weights[rank]).sum().backward()
    check(x.grad, total, "allreduce, sum")

    x = make(rank, (size, 2), torch.float32).requires_grad_()
    (hvd.allreduce(x, name="d", prescale_factor=2.0) * weights[rank]).sum().backward()
    check(x.grad, 2 * total / size, "allreduce, average")

    x = make(rank, (size, 2), torch.float32).requires_grad_()
    y = make(rank, (1, 2), torch.float32).requires_grad_()
    a, b = hvd.grouped_allreduce([x, y], op=hvd.Sum, name="d")
    (a * b * weights[rank]).sum().backward()
    assert x.grad.shape == x.shape and y.grad.shape == y.shape

    x = make(rank, (size, 2), torch.float32).requires_grad_()
    (hvd.broadcast(x, 1, name="d") * weights[rank]).sum().backward()
    check(x.grad, total / size if rank == 1 else torch.zeros_like(total), "broadcast")

    x = make(rank, (rank, 2), torch.float32).requires_grad_()
    gathered = hvd.allgather(x, name="d")
    factors = [make(r, tuple(gathered.shape), torch.float32, "f") for r in range(size)]
    (gathered * factors[rank]).sum().backward()
    begin = sum(range(rank))
    check(x.grad, sum(factors)[begin : begin + rank] / size, "allgather")

    for root in range(size):
        x = make(rank, (rank, 2), torch.float32).requires_grad_()
        rows = hvd.gather(x, root, name="d")
        assert rows.shape == ((sum(range(size)) if rank == root else 0), 2)
        (rows * factors[root][: len(rows)]).sum().backward()
        check(x.grad, factors[root][begin : begin + rank], "gather")

    x, y = (make(rank, (2,), torch.float32).requires_grad_() for _ in range(2))
    first, second = hvd.grouped_allgather([x, y], name="d")
    ((first.sum() + 2 * second.sum()) * (rank + 1)).backward()
    mean = torch.full((2,), (size + 1) / 2)
    check(x.grad, mean, "grouped_allgather")
    check(y.grad, 2 * mean, "grouped_allgather")
    x = make(rank, (2,), torch.float32).requires_grad_(rank == 0)  # The others want no gradient.
    for count in (1, 2):
        for whole in hvd.grouped_allgather([x] * count, name="d"):
            assert whole.shape == (2 * size,)

    x = make(rank, (3,), torch.float32).requires_grad_()
    cubes = (hvd.allreduce(x, op=hvd.Sum, name="d") ** 3).sum()
    first = torch.autograd.grad(cubes, x, create_graph=True)[0]
    second = torch.autograd.grad(first.sum(), x)[0]
    assert second.shape == x.shape


def maximum_has_no_gradient() -> Optional[str]:
    x = torch.ones(3, requires_grad=True)
    y = hvd.allreduce(x, op=hvd.Max, name="m")
    try:
        y.sum().backward()
    except NotImplementedError as error:
        return str(error)
    return None


def compressed() -> None:
    inputs = [make(r, (65,), torch.float32) for r in range(hvd.size())]
    for compression in (hvd.Compression.fp16, hvd.Compression.bf16, hvd.Compression.none):
        result = hvd.allreduce(
            inputs[hvd.rank()], op=hvd.Sum, name="small", compression=compression
        )
        check(result, expected(inputs, hvd.Sum), compression)
    integers = [make(r, (65,), torch.int32) for r in range(hvd.size())]
    result = hvd.allreduce(
        integers[hvd.rank()], op=hvd.Sum, name="small", compression=hvd.Compression.fp16
    )
    check(result, expected(integers, hvd.Sum), "integers are not cast")


def in_the_arena() -> None:
    import covey

    for dtype in DTYPES:
        inputs = [make(r, (513,), dtype, "arena") for r in range(hvd.size())]
        flat = covey.arena_empty((513,), dtype)
        assert flat.data_ptr() % 64 == 0 and not flat.any()
        flat.copy_(inputs[hvd.rank()])
        parts = flat[:256], flat[256:]
        del flat
        for i, part in enumerate(parts):
            hvd.allreduce_(part, op=hvd.Sum, name=f"arena.{i}")
        check(torch.cat(parts), expected(inputs, hvd.Sum), dtype)


class OfThree(unittest.TestCase):
    """A job of 3 ranks: no power of two, so averages round."""

    size = 3

    def run_on_all(self, function: Callable[..., Any], *args: Any) -> List[Any]:
        return pool(self.size).call(function, *args, timeout=120)

    def test_allreduce(self) -> None:
        for way in WAYS:
            with self.subTest(way=way):
                self.run_on_all(reduce_all, way)

    def test_scales(self) -> None:
        self.run_on_all(reduce_scaled)

    def test_strided_tensors(self) -> None:
        self.run_on_all(reduce_strided)

    def test_broadcast(self) -> None:
        self.run_on_all(broadcast_all)

    def test_allgather_with_unequal_rows(self) -> None:
        self.run_on_all(gather_all)

    def test_large_allgather(self) -> None:
        self.run_on_all(gather_large)

    def test_groups_of_mixed_dtypes(self) -> None:
        self.run_on_all(group_mixed)

    def test_many_in_flight_in_any_order(self) -> None:
        self.run_on_all(many_in_flight)

    def test_dropped_handles(self) -> None:
        self.run_on_all(dropped_handles)

    def test_gradients(self) -> None:
        self.run_on_all(gradients)

    def test_maximum_has_no_gradient(self) -> None:
        for text in self.run_on_all(maximum_has_no_gradient):
            self.assertIn("Max has no gradient", text)

    def test_compression(self) -> None:
        self.run_on_all(compressed)

    def test_arena(self) -> None:
        self.run_on_all(in_the_arena)


class OfFour(OfThree):
    """A job of 4 ranks: every sum and average is exact."""

    size = 4


if __name__ == "__main__":
    unittest.main()
