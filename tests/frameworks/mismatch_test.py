"""When ranks disagree: every rank is told what, who and both values, and the next one works."""

from __future__ import annotations

import random
import unittest
from typing import Any, Callable, List, Tuple

import torch
from ranks import SEED, SharedPool

import covey
import covey.torch as hvd

SIZE = 3
ODD = random.Random(SEED).randrange(SIZE)
"""The rank that does something else."""

pool = SharedPool(__file__)


def setUpModule() -> None:
    print(f"seed {SEED}")


def tearDownModule() -> None:
    pool.close()


def choose(usual: Any, other: Any) -> Any:
    return other if hvd.rank() == ODD else usual


CASES: "dict[str, Tuple[Callable[[], Any], str, str]]" = {
    "shape": (
        lambda: hvd.allreduce(torch.ones(choose((2, 3), (3, 2))), name="x"),
        "[2, 3]",
        "[3, 2]",
    ),
    "dimensions": (
        lambda: hvd.allreduce(torch.ones(choose((6,), (6, 1))), name="x"),
        "[6]",
        "[6, 1]",
    ),
    "dtype": (
        lambda: hvd.allreduce(torch.ones(3, dtype=choose(torch.float32, torch.int64)), name="x"),
        "float32",
        "int64",
    ),
    "op": (
        lambda: hvd.allreduce(torch.ones(3), op=choose(hvd.Sum, hvd.Max), name="x"),
        "sum",
        "max",
    ),
    "average": (
        lambda: hvd.allreduce(torch.ones(3), op=choose(hvd.Sum, hvd.Average), name="x"),
        "sum",
        "average",
    ),
    "prescale": (
        lambda: hvd.allreduce(torch.ones(3), name="x", prescale_factor=choose(1.0, 0.5)),
        "1",
        "0.5",
    ),
    "postscale": (
        lambda: hvd.allreduce(torch.ones(3), name="x", postscale_factor=choose(1.0, 0.25)),
        "1",
        "0.25",
    ),
    "root": (lambda: hvd.broadcast(torch.ones(3), choose(1, 2), name="x"), "1", "2"),
    "columns": (
        lambda: hvd.allgather(torch.ones(2, choose(3, 4)), name="x"),
        "3",
        "4",
    ),
    "shape of a sparse tensor": (
        lambda: hvd.sparse_allreduce_async(
            torch.ones(choose((3, 2), (5, 2))).to_sparse(), "x", hvd.Sum
        )(),
        "[3, 2]",
        "[5, 2]",
    ),
    "number of tensors": (
        lambda: hvd.grouped_allreduce([torch.ones(3)] * choose(2, 3), name="x"),
        "2",
        "3",
    ),
    "in place": (
        lambda: hvd.allreduce_(torch.ones(choose(4, 5)), name="x"),
        "[4]",
        "[5]",
    ),
}


def disagree(case: str) -> str:
    """Runs a case; the message of its error, after checking that the next operations work."""
    call = CASES[case][0]
    message = ""
    try:
        call()
    except covey.Mismatch as error:
        assert isinstance(error, hvd.HorovodInternalError) and isinstance(error, RuntimeError)
        message = str(error)
    works_again()
    return message


def works_again() -> None:
    mine = torch.full((3,), 2.0 ** hvd.rank())
    for name in ("x", "y", None):
        result = hvd.allreduce(mine, op=hvd.Sum, name=name)
        assert torch.equal(result, torch.full((3,), 2.0**SIZE - 1)), (name, result)


def disagree_among_others() -> None:
    """Only the tensor that differs fails; others in flight at the same time do not."""
    handles = [
        hvd.allreduce_async(
            torch.full((i + 1,), 2.0 ** hvd.rank())
            if i != 5
            else torch.ones(choose((6,), (7,))),
            op=hvd.Sum,
            name=f"among.{i}",
        )
        for i in range(10)
    ]
    for i, handle in enumerate(handles):
        if i != 5:
            assert torch.equal(handle.wait(), torch.full((i + 1,), 2.0**SIZE - 1)), i
            continue
        for _ in range(2):  # The error stays with the handle.
            try:
                handle.wait()
                raise AssertionError("no error")
            except covey.Mismatch as error:
                assert "among.5" in str(error)
    works_again()


def change_later() -> None:
    """The same name with another shape, on every rank: no mismatch."""
    for shape in ((3,), (4, 2), (3,), ()):
        result = hvd.allreduce(torch.full(shape, 2.0 ** hvd.rank()), op=hvd.Sum, name="later")
        assert torch.equal(result, torch.full(shape, 2.0**SIZE - 1))
    for dtype in (torch.float32, torch.int32, torch.float64):
        tensor = torch.full((3,), 2 ** hvd.rank()).to(dtype)
        result = hvd.allreduce(tensor, op=hvd.Sum, name="later")
        assert result.dtype == dtype and result.tolist() == [2**SIZE - 1] * 3


def duplicate() -> List[str]:
    """A name that is in flight is refused at once, and only that call fails."""
    slow = None
    if hvd.rank() != 0:
        slow = hvd.allreduce_async(torch.full((3,), 2.0 ** hvd.rank()), op=hvd.Sum, name="twice")
    texts = []
    if hvd.rank() != 0:
        try:
            hvd.allreduce_async(torch.ones(3), op=hvd.Sum, name="twice")
        except ValueError as error:
            assert isinstance(error, covey.InvalidArgument)
            texts.append(str(error))
    hvd.barrier()
    if slow is None:
        slow = hvd.allreduce_async(torch.full((3,), 2.0 ** hvd.rank()), op=hvd.Sum, name="twice")
    assert torch.equal(slow.wait(), torch.full((3,), 2.0**SIZE - 1))
    works_again()
    return texts


class MismatchTest(unittest.TestCase):
    def test_every_kind_of_difference(self) -> None:
        for case, (_, usual, other) in CASES.items():
            with self.subTest(case=case):
                messages = pool(SIZE).call(disagree, case)
                for message in messages:
                    self.assertIn("x", message)
                    self.assertRegex(message, rf"\b{ODD}\b", "names the rank that differs")
                    self.assertIn(usual, message)
                    self.assertIn(other, message)
                self.assertEqual(len(set(messages)), 1, "one message on every rank")

    def test_other_operations_are_untouched(self) -> None:
        pool(SIZE).call(disagree_among_others)

    def test_a_name_may_change_its_signature(self) -> None:
        pool(SIZE).call(change_later)

    def test_duplicate_name_in_flight(self) -> None:
        texts = pool(SIZE).call(duplicate)
        self.assertEqual(texts[0], [])
        for text in texts[1:]:
            self.assertIn("twice", text[0])


if __name__ == "__main__":
    unittest.main()
