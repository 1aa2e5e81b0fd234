"""A handle that is dropped in flight: its tensors live until the operation ends, and no longer."""

from __future__ import annotations

import unittest
import weakref
from typing import List

import numpy

import covey
import covey.numpy
from ranks import Pool


def drop(how: str) -> List[bool]:
    """Of rank 0: whether the tensor lived after the handle was dropped, and after the end."""
    lives: List[bool] = []
    is_first = covey.rank() == 0
    if is_first:
        tensor = numpy.ones(3, numpy.float32)
        watched = weakref.ref(tensor)
        covey.allreduce_async(tensor, op=covey.Sum, name="dropped")
        del tensor
        lives.append(watched() is not None)  # Rank 1 has not begun it.
    covey.barrier()
    if how == "shutdown":
        covey.shutdown()
    else:
        if not is_first:
            covey.allreduce(numpy.ones(3, numpy.float32), op=covey.Sum, name="dropped")
        for _ in range(1000):
            covey.barrier()  # Looks after dropped operations.
    if is_first:
        lives.append(watched() is not None)
    return lives


class DroppedTest(unittest.TestCase):
    def check(self, how: str) -> None:
        with Pool(2, __file__) as pool:
            self.assertEqual(pool.call(drop, how)[0], [True, False])

    def test_its_tensors_are_let_go_when_the_operation_ends(self) -> None:
        self.check("end")

    def test_its_tensors_are_let_go_when_the_runtime_ends(self) -> None:
        self.check("shutdown")


if __name__ == "__main__":
    unittest.main()
