"""Goal: reducescatter and alltoall of torch tensors and numpy arrays give each rank its rows, with
rows that do not divide evenly, without rows, in groups and in every way of calling; gradients are
Horovod's; wrong calls say what is wrong.
Method: 1, 2 and 3 ranks; each computes what it expects from all ranks' inputs, which follow from
the ranks' numbers."""

from __future__ import annotations

import unittest
from typing import Any, Callable, List, Sequence

import numpy
import torch
from ranks import SharedPool

import covey
import covey.numpy
import covey.torch as hvd

DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.uint8, torch.int64)
ROWS = (0, 1, 2, 3, 5, 6, 7)
TAILS = ((), (3,), (2, 0), (2, 2))

pool = SharedPool(__file__)


def tearDownModule() -> None:
    pool.close()


def make(rank: int, shape: Sequence[int], dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Small numbers that differ by rank and place; their sums are exact in every dtype."""
    count = int(numpy.prod(shape, dtype=int))
    return ((torch.arange(count) * (rank + 1)) % 7 + rank).reshape(tuple(shape)).to(dtype)


def part(whole: Any, index: int, size: int) -> Any:
    """The rows of member `index`: the first ones get one more."""
    rows = [len(whole) // size + (r < len(whole) % size) for r in range(size)]
    return whole[sum(rows[:index]) : sum(rows[: index + 1])]


def check(actual: Any, wanted: Any, what: Any) -> None:
    assert actual.dtype == wanted.dtype, (what, actual.dtype, wanted.dtype)
    assert actual.shape == wanted.shape, (what, actual.shape, wanted.shape)
    torch.testing.assert_close(actual, wanted, rtol=2**-7, atol=0, msg=str((what, actual, wanted)))


# ---- reducescatter ------------------------------------------------------------------------------


def reduce_parts() -> None:
    rank, size = hvd.rank(), hvd.size()
    reduced = {
        hvd.Sum: lambda stack: stack.sum(0),
        hvd.Max: lambda stack: stack.amax(0),
        hvd.Average: lambda stack: (stack.sum(0) / size).trunc() if exact else stack.sum(0) / size,
    }
    for dtype in DTYPES:
        exact = not dtype.is_floating_point
        for rows in ROWS:
            for tail in TAILS:
                inputs = [make(r, (rows, *tail), dtype) for r in range(size)]
                for op, reduce in reduced.items():
                    whole = reduce(torch.stack(inputs).double()).to(dtype)
                    wanted, mine = part(whole, rank, size), inputs[rank].clone()
                    what = (dtype, rows, tail, op)
                    check(hvd.reducescatter(mine, op=op, name="part"), wanted, what)
                    check(hvd.reducescatter(mine, None, hvd.Compression.none, op), wanted, what)
                    handle = covey.reducescatter_async(mine, op=op)
                    check(covey.synchronize(handle), wanted, what)
                    assert torch.equal(mine, inputs[rank]), "the input was changed"


def reduce_other_ways() -> None:
    rank, size = hvd.rank(), hvd.size()
    inputs = [make(r, (7, 4)) for r in range(size)]
    total = sum(inputs)
    check(hvd.reducescatter(inputs[rank]), part(total / size, rank, size), "average is the default")
    scaled = hvd.reducescatter(inputs[rank], op=hvd.Sum, prescale_factor=2.0, postscale_factor=0.25)
    check(scaled, part(total / 2, rank, size), "scaled")
    small = hvd.reducescatter(inputs[rank], compression=hvd.Compression.bf16, op=hvd.Sum)
    check(small, part(total, rank, size), "compressed")
    check(hvd.reducescatter(inputs[rank].t(), op=hvd.Sum), part(total.t(), rank, size), "strided")
    result = covey.reducescatter(inputs[rank].numpy(), op=covey.Sum, name="array")
    assert isinstance(result, numpy.ndarray)
    check(torch.from_numpy(result), part(total, rank, size), "numpy")
    large = [torch.arange(1_000_003.0) % 97 + r for r in range(size)]
    check(hvd.reducescatter(large[rank], op=hvd.Sum), part(sum(large), rank, size), "large")


def reduce_grouped() -> None:
    rank, size = hvd.rank(), hvd.size()
    dtypes = (torch.float32, torch.int64, torch.float32, torch.bfloat16)
    inputs = [[make(r, (i, 2), dtype) for i, dtype in enumerate(dtypes)] for r in range(size)]
    wanted = [part(sum(row[i] for row in inputs), rank, size) for i in range(len(dtypes))]
    for results in (
        hvd.grouped_reducescatter(inputs[rank], op=hvd.Sum, name="mixed"),
        hvd.grouped_reducescatter_async(inputs[rank], op=hvd.Sum).wait(),
        covey.grouped_reducescatter(inputs[rank], name="own", op=covey.Sum),
    ):
        for i, result in enumerate(results):
            check(result, wanted[i], i)
    arrays = [numpy.ones(3), numpy.arange(4)]
    for result, array in zip(covey.numpy.grouped_reducescatter(arrays, op=covey.Sum), arrays):
        assert (result == part(array * size, rank, size)).all() and result.dtype == array.dtype


# ---- alltoall -----------------------------------------------------------------------------------


def counts_of(rank: int, size: int, turn: int) -> List[int]:
    """How many rows `rank` sends to each; zeros among them."""
    return [(rank * 2 + to * turn + turn) % 4 for to in range(size)]


def exchange_rows() -> None:
    rank, size = hvd.rank(), hvd.size()
    for dtype in DTYPES + (torch.bool,):
        for turn, tail in enumerate(TAILS):
            counts = [counts_of(r, size, turn) for r in range(size)]
            inputs = [make(r, (sum(counts[r]) + r, *tail), dtype) for r in range(size)]
            begins = [sum(counts[r][:rank]) for r in range(size)]
            pieces = [inputs[r][b : b + counts[r][rank]] for r, b in enumerate(begins)]
            came, wanted = [counts[r][rank] for r in range(size)], torch.cat(pieces)
            own = torch.tensor(counts[rank])
            for splits in (counts[rank], tuple(counts[rank]), own, own.int(), own.numpy()):
                result, received = hvd.alltoall(inputs[rank], splits=splits, name="rows")
                check(result, wanted, (dtype, turn, splits))
                assert received.dtype is torch.int32 and received.tolist() == came, received
            result, received = covey.alltoall_async(inputs[rank], counts[rank]).wait()
            check(result, wanted, (dtype, turn))
            assert received.tolist() == came


def exchange_equal_parts() -> None:
    rank, size = hvd.rank(), hvd.size()
    inputs = [make(r, (3 * size, 2)) for r in range(size)]
    wanted = torch.cat([tensor[3 * rank : 3 * rank + 3] for tensor in inputs])
    check(hvd.alltoall(inputs[rank], name="equal"), wanted, "equal parts")
    result, received = hvd.synchronize(hvd.alltoall_async(inputs[rank]))
    check(result, wanted, "the handle gives a pair, as Horovod's")
    assert received.tolist() == [3] * size
    array, received = covey.numpy.alltoall(inputs[rank].numpy(), splits=[3] * size)
    check(torch.from_numpy(array), wanted, "numpy")
    assert received.dtype == numpy.int32 and received.tolist() == [3] * size
    check(hvd.alltoall(torch.empty(0, 5)), torch.empty(0, 5), "no rows at all")


# ---- Both ---------------------------------------------------------------------------------------


def in_groups() -> None:
    group = hvd.ProcessSet([0, 2])
    rank, members = hvd.rank(), (0, 2)
    if not group.included():
        return
    inputs = {r: make(r, (5, 2)) for r in members}
    index = members.index(rank)
    result = hvd.reducescatter(inputs[rank], op=hvd.Sum, name="g", process_set=group)
    check(result, part(sum(inputs.values()), index, 2), "reducescatter")
    for one in hvd.grouped_reducescatter([inputs[rank]] * 2, process_set=group):
        check(one, part(sum(inputs.values()) / 2, index, 2), "grouped")
    splits = {0: [1, 4], 2: [3, 0]}
    result, received = hvd.alltoall(inputs[rank], splits[rank], name="g", process_set=group)
    wanted = [inputs[0][:1], inputs[2][:3]] if rank == 0 else [inputs[0][1:5], inputs[2][3:3]]
    check(result, torch.cat(wanted), "alltoall")
    assert received.tolist() == [len(piece) for piece in wanted]


def gradients() -> None:
    rank, size = hvd.rank(), hvd.size()
    weights = [make(r, (5, 2)) + 1 for r in range(size)]  # of the loss on each rank
    mine = part(weights[rank], 0, 1)[: len(part(weights[rank], rank, size))]
    gathered = torch.cat([weights[r][: len(part(weights[r], r, size))] for r in range(size)])
    for op, factor in ((hvd.Sum, size), (hvd.Average, 1)):
        x = make(rank, (5, 2)).requires_grad_()
        result = hvd.reducescatter(x, op=op, name="d", prescale_factor=2.0)
        (result * mine).sum().backward()
        check(x.grad, gathered * 2 * factor, ("reducescatter", op))
        x, y = make(rank, (5, 2)).requires_grad_(), make(rank, (1,)).requires_grad_()
        a, b = hvd.grouped_reducescatter([x, y], op=op, name="d")
        ((a * mine).sum() + b.sum() * 3).backward()
        check(x.grad, gathered * factor, ("grouped", op))
        check(y.grad, torch.full((1,), 3.0 * factor), ("grouped", op))

    counts = [counts_of(r, size, 3) for r in range(size)]
    x = make(rank, (sum(counts[rank]) + 2, 2)).requires_grad_()
    result, received = hvd.alltoall(x, counts[rank], name="d")
    assert not received.requires_grad
    (result * (rank + 1)).sum().backward()
    wanted = [float(to + 1) for to in range(size) for _ in range(counts[rank][to])] + [0.0, 0.0]
    check(x.grad, torch.tensor(wanted)[:, None].expand(-1, 2), "alltoall")
    x = make(rank, (size, 2)).requires_grad_()
    (hvd.alltoall(x) * (rank + 1)).sum().backward()
    check(x.grad, torch.arange(1.0, size + 1)[:, None].expand(-1, 2), "alltoall, equal parts")
    x = make(rank, (size,)).requires_grad_()
    cubes = (hvd.alltoall(x) ** 3).sum()
    first = torch.autograd.grad(cubes, x, create_graph=True)[0]
    check(torch.autograd.grad(first.sum(), x)[0], 6 * x.detach(), "alltoall, twice")


def refused() -> List[str]:
    """Each call is refused on this rank alone: nothing was submitted."""
    size, x = hvd.size(), torch.ones(4, 2)
    calls: Sequence[Callable[[], Any]] = (
        lambda: hvd.reducescatter(torch.tensor(1.0), name="r"),
        lambda: hvd.reducescatter(torch.ones(3, dtype=torch.bool)),
        lambda: hvd.reducescatter(x, op=hvd.Adasum),
        lambda: hvd.reducescatter(x, op=9),
        lambda: hvd.reducescatter(x, prescale_factor=0.0),
        lambda: hvd.alltoall(torch.tensor(1.0)),
        lambda: hvd.alltoall(x, [1] * (size + 1)),
        lambda: hvd.alltoall(x, []),
        lambda: hvd.alltoall(x, [5] + [0] * (size - 1)),
        lambda: hvd.alltoall(x, [-1] + [1] * (size - 1)),
        lambda: hvd.alltoall(x, [1.0] * size),  # type: ignore[list-item]
        lambda: hvd.alltoall(x, torch.ones(size)),
        lambda: hvd.alltoall(x, [[1] * size]),
        lambda: hvd.alltoall(x, 4),
        lambda: hvd.alltoall(torch.ones(7)) if size > 1 else hvd.alltoall(x, [5]),
    )
    texts = []
    for number, call in enumerate(calls):
        try:
            call()
        except ValueError as error:
            texts.append(str(error))
        else:
            raise AssertionError(f"call {number} was not refused")
    hvd.barrier()  # later operations work
    return texts


def disagreeing() -> List[str]:
    rank, texts = hvd.rank(), []
    for call in (
        lambda: hvd.reducescatter(torch.ones(4 + rank), name="rows"),
        lambda: hvd.alltoall(torch.ones(hvd.size(), 2 + rank), name="tails"),
        lambda: hvd.grouped_reducescatter([torch.ones(2)] * (1 + rank), name="numbers"),
    ):
        try:
            call()
        except covey.Mismatch as error:
            texts.append(str(error))
    check(hvd.reducescatter(torch.ones(hvd.size()), name="rows"), torch.ones(1), "after")
    return texts


class OfTwo(unittest.TestCase):
    size = 2

    def run_on_all(self, function: Callable[..., Any]) -> List[Any]:
        return pool(self.size).call(function)

    def test_reducescatter(self) -> None:
        self.run_on_all(reduce_parts)

    def test_reducescatter_in_other_ways(self) -> None:
        self.run_on_all(reduce_other_ways)

    def test_grouped_reducescatter(self) -> None:
        self.run_on_all(reduce_grouped)

    def test_alltoall_with_splits(self) -> None:
        self.run_on_all(exchange_rows)

    def test_alltoall_of_equal_parts(self) -> None:
        self.run_on_all(exchange_equal_parts)

    def test_gradients(self) -> None:
        self.run_on_all(gradients)

    def test_wrong_calls_are_refused(self) -> None:
        for texts in self.run_on_all(refused):
            self.assertIn("splits dimension 0 and the tensor is a scalar", texts[0])
            self.assertIn("does not take bool", texts[1])
            self.assertIn(f"{self.size + 1} splits for a group of {self.size}", texts[6])
            self.assertIn("0 splits for a group", texts[7])
            self.assertIn("more than dimension 0, which is 4", texts[8])
            self.assertIn("-1 is negative", texts[9])
            for text in texts[10:14]:
                self.assertIn("splits must hold one integer for each rank", text)

    def test_ranks_that_disagree_are_told(self) -> None:
        for texts in self.run_on_all(disagreeing):
            self.assertEqual(len(texts), 3 if self.size > 1 else 0)
            for text in texts:
                self.assertRegex(text, "rank")


class OfOne(OfTwo):
    size = 1


class OfThree(OfTwo):
    """A job in which parts have a middle, and a group can leave one out."""

    size = 3

    def test_groups(self) -> None:
        self.run_on_all(in_groups)


if __name__ == "__main__":
    unittest.main()
