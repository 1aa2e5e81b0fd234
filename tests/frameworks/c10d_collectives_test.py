"""The collectives of torch.distributed with Covey as backend, compared with what plain torch makes
of all ranks' tensors.

Method: three ranks of a group that lacks rank 0 of four, so ranks of the group and of the job
differ. Each rank can compute what every rank gives, from the seed.
"""

from __future__ import annotations

import datetime
import functools
import unittest
from typing import Any, Callable, List

import torch
import torch.distributed as dist
from process_groups import in_group
from ranks import SEED, SharedPool, refusal_of

WORLD, RANKS = 4, [1, 2, 3]
SIZE = len(RANKS)
DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.uint8)
pools = SharedPool(__file__)


def setUpModule() -> None:
    print(f"seed {SEED}")


def tearDownModule() -> None:
    pools.close()


def in_subgroup(function: Callable[..., Any]) -> Callable[..., Any]:
    """``function(group, rank, *args)`` on the ranks of the group."""

    @in_group
    @functools.wraps(function)
    def call(*args: Any) -> Any:
        group = dist.new_group(RANKS)
        return function(group, dist.get_rank(group), *args) if dist.get_rank() in RANKS else None

    return call


def given(rank: int, shape: Any, dtype: torch.dtype, what: int = 0) -> torch.Tensor:
    """A rank's contribution: small integers, which sum without rounding."""
    random = torch.Generator().manual_seed((SEED + 31 * rank + 1009 * what) % (1 << 31))
    return torch.randint(1, 6, shape, generator=random).to(dtype)


def equal(mine: torch.Tensor, expected: torch.Tensor, what: str) -> None:
    torch.testing.assert_close(mine, expected.to(mine.dtype), rtol=0, atol=0, msg=what)


@in_subgroup
def reductions(group: Any, rank: int) -> None:
    """allreduce, reduce, reduce_scatter of a list and of one tensor."""
    ops = {
        dist.ReduceOp.SUM: lambda rows: rows.sum(0),
        dist.ReduceOp.MIN: lambda rows: rows.amin(0),
        dist.ReduceOp.MAX: lambda rows: rows.amax(0),
        dist.ReduceOp.PRODUCT: lambda rows: rows.prod(0),
    }
    for dtype in DTYPES:
        each = torch.stack([given(r, (SIZE, 5), dtype) for r in range(SIZE)])
        for op, reduced in ops.items():
            name = f"{op} of {dtype}"
            expected = reduced(each.to(torch.float64))
            tensor = each[rank].clone()
            dist.all_reduce(tensor, op, group=group)
            equal(tensor, expected, name)
            tensor = each[rank].clone()
            dist.reduce(tensor, group_dst=1, op=op, group=group)
            equal(tensor, expected if rank == 1 else each[rank], f"reduce, {name}")
            out = torch.empty(5, dtype=dtype)
            dist.reduce_scatter(out, list(each[rank]), op, group=group)
            equal(out, expected[rank], f"reduce_scatter, {name}")
            dist.reduce_scatter_tensor(out, each[rank].reshape(-1), op, group=group)
            equal(out, expected[rank], f"reduce_scatter_tensor, {name}")
    parts = [given(rank, (1 + r,), torch.float32, r) for r in range(SIZE)]
    out = torch.empty(1 + rank)
    dist.reduce_scatter(out, parts, group=group)
    equal(out, sum(given(r, (1 + rank,), torch.float32, rank) for r in range(SIZE)), "uneven")


@in_subgroup
def of_complex_numbers(group: Any, rank: int) -> List[str]:
    """reduce and reduce_scatter, of conjugates too, which torch hands on as they are."""
    each = torch.stack([given(r, (SIZE, 4), torch.complex64) * (1 + 2j) for r in range(SIZE)])
    total, mine = each.conj().sum(0), each[rank].conj()
    tensor = mine.resolve_conj().clone()
    dist.reduce(tensor, group_dst=1, group=group)
    assert torch.equal(tensor, total if rank == 1 else mine), tensor
    out = torch.empty(4, dtype=torch.complex64)
    dist.reduce_scatter(out, list(mine), group=group)
    assert torch.equal(out, total[rank]), out
    dist.reduce_scatter_tensor(out, mine.reshape(-1), group=group)
    assert torch.equal(out, total[rank]), out
    parts = [torch.full((1 + r,), 1j * (1 + rank)) for r in range(SIZE)]
    uneven = torch.empty(1 + rank, dtype=torch.complex64)
    dist.reduce_scatter(uneven, parts, group=group)
    assert uneven.tolist() == [6j] * (1 + rank), uneven
    most = dist.ReduceOp.MAX
    return [
        refusal_of(lambda: dist.reduce_scatter_tensor(out, mine.reshape(-1), most, group=group)),
        refusal_of(lambda: dist.reduce(out, group_dst=1, op=most, group=group)),
    ]


@in_subgroup
def of_bits_and_truths(group: Any, rank: int) -> None:
    """BAND, BOR, BXOR; bool; sparse tensors; averages."""
    each = torch.stack([given(r, (SIZE, 4), torch.int64) for r in range(SIZE)])
    for op, combine in (
        (dist.ReduceOp.BAND, torch.bitwise_and),
        (dist.ReduceOp.BOR, torch.bitwise_or),
        (dist.ReduceOp.BXOR, torch.bitwise_xor),
    ):
        expected = functools.reduce(combine, each)
        tensor = each[rank].clone()
        dist.all_reduce(tensor, op, group=group)
        equal(tensor, expected, str(op))
        out = torch.empty(4, dtype=torch.int64)
        dist.reduce_scatter_tensor(out, each[rank].reshape(-1), op, group=group)
        equal(out, expected[rank], str(op))
    for op, expected in (
        (dist.ReduceOp.SUM, [True, True, False]),
        (dist.ReduceOp.MIN, [False, True, False]),
    ):
        truths = torch.tensor([rank == 0, True, False])
        dist.all_reduce(truths, op, group=group)
        assert truths.tolist() == expected, (op, truths)
    sparse = torch.sparse_coo_tensor([[rank, 4]], [1.0, 2.0], (5,))
    dist.all_reduce(sparse, group=group)
    assert sparse.to_dense().tolist() == [1.0, 1.0, 1.0, 0.0, 6.0], sparse
    mean = torch.full((3,), float(rank))
    dist.all_reduce(mean, dist.ReduceOp.AVG, group=group)
    assert mean.tolist() == [1.0] * 3, mean


@in_subgroup
def moves(group: Any, rank: int) -> None:
    """Tensors that go from rank to rank unchanged: of every dtype, and such as do not lie in one
    piece."""
    for dtype in (*DTYPES, torch.bool):
        each = [given(r, (2, 6), dtype).t() for r in range(SIZE)]
        own = each[rank]
        rows = [torch.zeros(6, 2, dtype=dtype) for _ in range(SIZE)]
        dist.all_gather(rows, own, group=group)
        for row, expected in zip(rows, each):
            equal(row, expected, f"all_gather of {dtype}")
        whole = torch.zeros(SIZE * 6, 2, dtype=dtype)
        dist.all_gather_into_tensor(whole, own.contiguous(), group=group)
        equal(whole, torch.cat(each), "all_gather_into_tensor")
        tensor = own.clone()
        dist.broadcast(tensor, group_src=2, group=group)
        equal(tensor, each[2], "broadcast")
        rows = [torch.zeros(6, 2, dtype=dtype) for _ in range(SIZE)]
        dist.gather(own, rows if rank == 1 else None, group_dst=1, group=group)
        for row, expected in zip(rows, each if rank == 1 else ()):
            equal(row, expected, "gather")
        whole = torch.zeros(SIZE * 6 if rank == 1 else 0, 2, dtype=dtype)
        group.gather_single(whole, own, root=1).wait()  # dist.gather_single: from torch 2.14 on.
        equal(whole, torch.cat(each) if rank == 1 else whole, "gather_single")
        out = torch.zeros(2, 2, dtype=dtype)
        parts = list(own.contiguous().view(SIZE, 2, 2)) if rank == 2 else None
        dist.scatter(out, parts, group_src=2, group=group)
        equal(out, each[2].contiguous().view(SIZE, 2, 2)[rank], "scatter")
        out = torch.zeros(6, 2, dtype=dtype)
        dist.all_to_all_single(out, own.contiguous(), group=group)
        equal(out, torch.cat([one[2 * rank : 2 * rank + 2] for one in each]), "all_to_all_single")
    rows = [torch.zeros(1 + r) for r in range(SIZE)]
    dist.all_gather(rows, torch.full((1 + rank,), float(rank)), group=group)
    assert [row.tolist() for row in rows] == [[float(r)] * (1 + r) for r in range(SIZE)]


@in_subgroup
def uneven_exchanges(group: Any, rank: int) -> None:
    """Rank r sends 1 + r + t rows to rank t."""
    going = [1 + rank + target for target in range(SIZE)]
    coming = [1 + source + rank for source in range(SIZE)]
    out = torch.zeros(sum(coming), 2)
    rows = torch.full((sum(going), 2), float(rank))
    dist.all_to_all_single(out, rows, coming, going, group=group)
    expected = torch.cat([torch.full((n, 2), float(r)) for r, n in enumerate(coming)])
    equal(out, expected, "all_to_all_single")
    outputs = [torch.zeros(n, 2) for n in coming]
    dist.all_to_all(outputs, list(rows.split(going)), group=group)
    equal(torch.cat(outputs), expected, "all_to_all")


@in_subgroup
def coalesced(group: Any, rank: int) -> None:
    """Several tensors in one call."""
    manager = dist.distributed_c10d._coalescing_manager
    tensors = [torch.full((3,), float(rank + i)) for i in range(4)]
    with manager(group):
        for tensor in tensors:
            dist.all_reduce(tensor, group=group)
    assert [tensor[0].item() for tensor in tensors] == [3.0 + 3 * i for i in range(4)]
    whole = [torch.zeros(SIZE * 2) for _ in range(3)]
    with manager(group, async_ops=True) as work:
        for i, one in enumerate(whole):
            dist.all_gather_into_tensor(one, torch.full((2,), float(rank + i)), group=group)
    work.wait()
    for i, one in enumerate(whole):
        assert one.tolist() == [float(r + i) for r in range(SIZE) for _ in range(2)], one
    parts = [torch.zeros(2) for _ in range(3)]
    with manager(group):
        for i, part in enumerate(parts):
            dist.reduce_scatter_tensor(part, torch.arange(SIZE * 2.0) + i, group=group)
    for i, part in enumerate(parts):
        assert part.tolist() == [SIZE * (2.0 * rank + i), SIZE * (2.0 * rank + 1 + i)], part
    into = [[torch.zeros(1 + i) for i in range(2)] for _ in range(SIZE)]
    own = [torch.full((1 + i,), 10.0 * rank + i) for i in range(2)]
    group.allgather_coalesced(into, own).wait()
    for r, of_rank in enumerate(into):
        assert [one[0].item() for one in of_rank] == [10.0 * r, 10.0 * r + 1], of_rank


@in_subgroup
def coalesced_bits_and_truths(group: Any, rank: int) -> str:
    """The same of bits and of truths; the refusal of truths and numbers together."""
    manager, ops = dist.distributed_c10d._coalescing_manager, dist.ReduceOp
    of = [torch.arange(SIZE * 2) * (r + 1) % 5 for r in range(SIZE)]
    for dtype, op, combine in (
        (torch.int32, ops.BAND, torch.bitwise_and),
        (torch.int64, ops.BXOR, torch.bitwise_xor),
        (torch.bool, ops.BOR, torch.bitwise_or),
        (torch.bool, ops.SUM, torch.logical_or),
        (torch.bool, ops.MIN, torch.logical_and),
    ):
        expected = functools.reduce(combine, [it.to(dtype) for it in of])
        tensors = [of[rank].to(dtype, copy=True) for _ in range(2)]
        with manager(group):
            for tensor in tensors:
                dist.all_reduce(tensor, op, group=group)
        parts = [torch.zeros(2, dtype=dtype) for _ in range(2)]
        with manager(group):
            for part in parts:
                dist.reduce_scatter_tensor(part, of[rank].to(dtype), op, group=group)
        for tensor, part in zip(tensors, parts):
            equal(tensor, expected, f"{dtype} {op}")
            equal(part, expected[2 * rank : 2 * rank + 2], f"part of {dtype} {op}")
    truths = [torch.ones(2, dtype=torch.bool), torch.ones(2)]
    return refusal_of(lambda: group.allreduce_coalesced(truths))


@in_subgroup
def objects(group: Any, rank: int) -> None:
    listed: List[Any] = [None] * SIZE
    dist.all_gather_object(listed, {"rank": rank}, group=group)
    assert [one["rank"] for one in listed] == [0, 1, 2]
    into = [None] * SIZE if rank == 0 else None
    dist.gather_object("x" * rank, into, group_dst=0, group=group)
    assert into in (None, ["", "x", "xx"])
    mine: List[Any] = [None]
    dist.scatter_object_list(mine, [r + 7 for r in range(SIZE)], group_src=1, group=group)
    assert mine == [rank + 7]
    told = [rank, "from"]
    dist.broadcast_object_list(told, group_src=2, group=group)
    assert told == [2, "from"]


@in_subgroup
def forms(group: Any, rank: int) -> List[str]:
    """Methods of the group itself, with one tensor in place of lists and no options object; the
    refusals of wrong ones."""
    most, minute = dist.ReduceOp.MAX, datetime.timedelta(minutes=1)
    each = [torch.full((2,), r + 1.0) for r in range(SIZE)]
    own = each[rank]
    rows = [torch.full((2,), 10.0 * r + rank) for r in range(SIZE)]
    into = [torch.zeros(2) for _ in range(SIZE)]
    for call, expected in (
        (lambda it: group.allreduce(it), 6),
        (lambda it: group.allreduce(it, most), 3),
        (lambda it: group.allreduce(tensor=it, op=most, timeout=minute), 3),
        (lambda it: group.allreduce([it], most), 3),
        (lambda it: group.allreduce([it], op=most), 3),
        (lambda it: group.allreduce(tensors=[it]), 6),
        (lambda it: group.broadcast(it, 1), 2),
        (lambda it: group.broadcast(it, root=2, timeout=minute), 3),
        (lambda it: group.broadcast([it], options_of(1)), 2),
        (lambda it: group.reduce(it, root=1, op=most), 3 if rank == 1 else rank + 1),
        (lambda it: group.scatter(it, rows if rank == 2 else [], 2), 10 * rank + 2),
        (lambda it: group.reduce_scatter(it, rows), 30 * rank + 3),
        (lambda it: group.reduce_scatter(output=it, input=rows, op=most), 10 * rank + 2),
    ):
        tensor = own.clone()
        call(tensor).wait()
        equal(tensor, torch.full((2,), float(expected)), f"of {expected}")
    group.allgather(into, own).wait()
    equal(torch.stack(into), torch.stack(each), "allgather")
    group.gather(into if rank == 1 else [], -own, root=1).wait()
    equal(torch.stack(into), torch.stack(each) * (-1 if rank == 1 else 1), "gather")
    group.alltoall(output_tensors=into, input_tensors=rows).wait()
    equal(torch.stack(into)[:, 0], 10 * rank + torch.arange(3.0), "alltoall")
    group.barrier(timeout=minute).wait()
    group.barrier().wait()
    wrong = (lambda: group.broadcast(own), lambda: group.allreduce(own, root=1), group.allgather)
    said = []
    for call in wrong:
        try:
            call()
        except TypeError as error:
            said.append(str(error))
    return said


@in_subgroup
def refusals(group: Any, rank: int) -> List[str]:
    """The refusals of wrong calls; then all ranks go on."""
    three, calls = torch.zeros(3), []
    calls.append(lambda: dist.all_gather([three, three], three, group=group))
    calls.append(lambda: dist.reduce_scatter_tensor(three, torch.zeros(8), group=group))
    calls.append(lambda: dist.all_to_all_single(torch.zeros(4), torch.zeros(4), group=group))
    calls.append(lambda: dist.all_to_all_single(three, three, [1, 1, 1], [2, 2, 2], group=group))
    calls.append(lambda: dist.all_reduce(three, dist.ReduceOp.BAND, group=group))
    calls.append(lambda: group.broadcast([three], options_of(9)))
    said = [refusal_of(call) for call in calls]
    coming = [1, 1, 1] if rank else [2, 1, 1]
    call = functools.partial(dist.all_to_all_single, torch.zeros(sum(coming)), three, coming)
    said.append(refusal_of(functools.partial(call, [1, 1, 1], group=group)))
    wide = torch.zeros(9, dtype=torch.float64)
    said.append(refusal_of(lambda: dist.all_gather_into_tensor(wide, three, group=group)))
    said.append(refusal_of(lambda: group.register_pre_hook(1, print)))
    dist.all_reduce(three + 1, group=group)
    return said


def options_of(root: int) -> Any:
    options = dist.BroadcastOptions()
    options.rootRank = root
    return options


class CollectivesTest(unittest.TestCase):
    def check(self, function: Callable[..., Any]) -> List[Any]:
        return pools(WORLD).call(function)[1:]

    def test_reductions(self) -> None:
        self.check(reductions)

    def test_reductions_of_bits_truths_and_sparse_tensors(self) -> None:
        self.check(of_bits_and_truths)

    def test_reductions_of_complex_numbers(self) -> None:
        for said in self.check(of_complex_numbers):
            for text in said:
                self.assertIn("complex numbers have SUM and AVG, no ReduceOp.MAX", text)

    def test_moves(self) -> None:
        self.check(moves)

    def test_exchanges_of_uneven_parts(self) -> None:
        self.check(uneven_exchanges)

    def test_several_tensors_in_one_call(self) -> None:
        self.check(coalesced)
        for said in self.check(coalesced_bits_and_truths):
            self.assertIn("bool and other tensors have no ReduceOp.SUM in one call", said)

    def test_objects(self) -> None:
        self.check(objects)

    def test_methods_of_a_group_take_one_tensor(self) -> None:
        for said in self.check(forms):
            self.assertIn("broadcast(): missing a required argument: 'root'", said[0])
            self.assertIn("allreduce(): got an unexpected keyword argument 'root'", said[1])
            self.assertIn("allgather(): missing a required argument", said[2])

    def test_a_wrong_call_says_why_and_the_next_works(self) -> None:
        for rank, said in enumerate(self.check(refusals)):
            self.assertIn("the list has 2 tensors, but the group has 3 ranks", said[0])
            self.assertIn("shares, 3 elements of torch.float32, do not make 8", said[1])
            self.assertIn("4 rows cannot be divided among 3 ranks", said[2])
            self.assertIn("the split sizes [2, 2, 2] are not 3 numbers whose sum is 3", said[3])
            self.assertIn("ReduceOp.BAND is no reduction of Covey's for this tensor", said[4])
            self.assertIn("rank 9 is not in process group", said[5])
            expected = (
                "nothing" if rank else "Mismatch: all_to_all_single: the ranks send [1, 1, 1]"
            )
            self.assertTrue(said[6].startswith(expected), said[6])
            self.assertIn("of torch.float32, do not make 9 of torch.float64", said[7])
            self.assertIn("coveyrun --timeline DIR records every call", said[8])


if __name__ == "__main__":
    unittest.main()
