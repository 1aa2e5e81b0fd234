"""Operations among a part of the ranks: overlapping groups, opposite orders, wrong ranks."""

from __future__ import annotations

import itertools
import random
import unittest
from typing import Any, List

import torch
from ranks import SEED, SharedPool, differ

import covey
import covey.torch as hvd

SIZE = 4
pool = SharedPool(__file__)


def setUpModule() -> None:
    differ()
    print(f"seed {SEED}")


def tearDownModule() -> None:
    pool.close()


def value(rank: int, salt: Any) -> torch.Tensor:
    """Random integers times 2^rank."""
    source = torch.Generator().manual_seed(random.Random(f"{SEED} {rank} {salt}").getrandbits(31))
    return torch.randint(-9, 9, (50,), generator=source).float() * 2**rank


def total(ranks: Any, salt: Any) -> torch.Tensor:
    return sum((value(rank, salt) for rank in ranks), torch.zeros(50))


def all_groups() -> List[List[int]]:
    """Every set of ranks of a job of SIZE."""
    return [
        list(ranks)
        for count in range(1, SIZE + 1)
        for ranks in itertools.combinations(range(SIZE), count)
    ]


def every_group() -> None:
    """All sets of ranks at once, each rank submitting to its groups in an order of its own."""
    sets = all_groups()
    random.Random(SEED + hvd.rank()).shuffle(sets)
    handles = []
    for ranks in sets:
        if hvd.rank() in ranks:
            tensor = value(hvd.rank(), ranks)
            given = list(reversed(ranks))  # Order does not matter.
            handle = hvd.allreduce_async(
                tensor, op=hvd.Sum, name="x", process_set=hvd.ProcessSet(given)
            )
            handles.append((ranks, handle))
    for ranks, handle in reversed(handles):
        assert torch.equal(handle.wait(), total(ranks, ranks)), ranks


def opposite_order() -> None:
    """Two overlapping groups, named the same, in opposite order and both ways of waiting."""
    left, right = hvd.ProcessSet([0, 1, 2]), hvd.ProcessSet([1, 2, 3])
    for turn in range(50):
        order = [left, right] if (hvd.rank() + turn) % 2 else [right, left]
        mine = [group for group in order if group.included()]
        handles = [
            hvd.allreduce_async(value(hvd.rank(), turn), op=hvd.Sum, name="y", process_set=group)
            for group in mine
        ]
        for group, handle in zip(mine, handles):
            assert torch.equal(handle.wait(), total(group.ranks, turn))


def other_operations() -> None:
    group = hvd.ProcessSet([1, 3])
    if not group.included():
        return
    rank = hvd.rank()
    # The root is a global rank, also inside the group.
    assert torch.equal(hvd.broadcast(value(rank, "b"), 3, process_set=group), value(3, "b"))
    gathered = hvd.allgather(value(rank, "g")[: rank + 1], name="g", process_set=group)
    assert torch.equal(gathered, torch.cat([value(1, "g")[:2], value(3, "g")[:4]]))
    average = hvd.allreduce(value(rank, "a"), name="a", process_set=group)
    assert torch.equal(average, total([1, 3], "a") / 2)
    assert hvd.allgather_object(rank, process_set=group) == [1, 3]
    assert hvd.broadcast_object(rank, 3, process_set=group) == 3
    hvd.barrier(group)
    x = value(rank, "d").requires_grad_()
    (hvd.allgather(x, name="d", process_set=group) * (rank + 1)).sum().backward()
    assert torch.equal(x.grad, torch.full((50,), (2 + 4) / 2)), x.grad  # The mean, as in Horovod.


def properties() -> None:
    group = covey.group([3, 1])
    assert group.ranks == [1, 3] and group.size() == 2
    assert group.included() == (covey.rank() in (1, 3))
    assert group.rank() == {1: 0, 3: 1}.get(covey.rank())
    assert group == hvd.ProcessSet((1, 3)) and group != covey.world
    assert group.process_set_id == covey.group([1, 3]).process_set_id != 0
    assert covey.Group(range(SIZE)) == covey.world and hash(covey.Group(range(SIZE)))
    assert hvd.global_process_set.process_set_id == 0
    assert hvd.global_process_set.ranks == [0, 1, 2, 3]
    added = hvd.add_process_set([0, 2])
    assert hvd.remove_process_set(added) and not hvd.remove_process_set(hvd.global_process_set)
    hvd.init(process_sets=[hvd.ProcessSet([0, 1]), [2, 3]])
    hvd.init(process_sets="dynamic", comm=range(SIZE))


def errors() -> List[str]:
    texts = []
    calls = (
        lambda: covey.group([0, SIZE]),
        lambda: covey.group([0, 0]),
        lambda: covey.group(["a"]),
        lambda: covey.group([]),
        lambda: covey.group([-1, 0]),
        lambda: hvd.allreduce(torch.ones(2), process_set=hvd.ProcessSet([(hvd.rank() + 1) % SIZE])),
        lambda: hvd.broadcast(torch.ones(2), (hvd.rank() + 1) % SIZE, process_set=alone()),
        lambda: hvd.broadcast_object(1, (hvd.rank() + 1) % SIZE, process_set=alone()),
        lambda: hvd.init(comm=[0, 1]),
        lambda: hvd.init(process_sets="static"),
        lambda: hvd.init(comm=object()),
        lambda: hvd.init(process_sets=3),
        lambda: hvd.allreduce(torch.ones(2), process_set=[0, 1]),
        lambda: hvd.barrier(None),
        lambda: hvd.broadcast_object(1, 0, process_set=0),
        lambda: hvd.broadcast(torch.ones(2), "0"),
        lambda: hvd.broadcast_optimizer_state(None, 0),
        lambda: setattr(hvd.ProcessSet([0]), "process_set_id", 10),
    )
    for number, call in enumerate(calls):
        try:
            call()
        except ValueError as error:
            texts.append(str(error))
        else:
            raise AssertionError(f"call {number} did not fail")
    return texts


def alone() -> Any:
    return hvd.ProcessSet([hvd.rank()])


class GroupsTest(unittest.TestCase):
    def test_every_set_of_ranks_at_once(self) -> None:
        pool(SIZE).call(every_group)

    def test_overlapping_groups_in_opposite_order(self) -> None:
        pool(SIZE).call(opposite_order)

    def test_other_operations_inside_a_group(self) -> None:
        pool(SIZE).call(other_operations)

    def test_properties(self) -> None:
        pool(SIZE).call(properties)

    def test_wrong_ranks_are_value_errors(self) -> None:
        for rank, texts in enumerate(pool(SIZE).call(errors)):
            self.assertIn("listed twice", texts[1])
            self.assertIn(f"rank {rank} is not a member", texts[5])
            self.assertIn("only all ranks of the job (0..3) or None is possible", texts[10])
            self.assertEqual("process_sets must be groups or 'dynamic', not 3", texts[11])
            for text, given in zip(texts[12:15], ("[0, 1]", "None", "0")):
                self.assertIn("process_set must be a process set", text)
                self.assertTrue(text.endswith(f"not {given}"), text)
            self.assertEqual("root_rank must be an integer, not '0'", texts[15])
            self.assertEqual("optimizer must be a torch optimizer, not a NoneType", texts[16])
            self.assertIn("process_set_id is read only", texts[-1])


if __name__ == "__main__":
    unittest.main()
