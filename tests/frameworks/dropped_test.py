"""A handle that is dropped in flight: its tensors live until the operation ends, and no longer."""

from __future__ import annotations

import unittest
import weakref
from typing import Any, Callable, Dict, List

import numpy

import covey
import covey.numpy
from ranks import Pool, refusal_of


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


def repeat() -> Dict[str, List[str]]:
    """The error of the second of two calls of one name, by the way to begin the first. A group
    of one rank: an operation may have ended before its handle is dropped, or not."""
    value = numpy.ones(3, numpy.float32)
    alone, everyone = covey.group([covey.rank()]), covey.group(range(covey.size()))

    def begin(name: str, where: Any = alone) -> Any:
        return covey.allreduce_async(value, op=covey.Sum, name=name, group=where)

    def look(handle: Any) -> None:
        while not handle.poll():
            pass

    def drop_it(handle: Any) -> None:
        del handle

    def drop_ended(handle: Any) -> None:
        while covey.stats()["in_flight"] > 0:
            pass
        del handle

    ways: Dict[str, Callable[[str], None]] = {
        "dropped": lambda name: drop_it(begin(name)),
        "dropped when it had ended": lambda name: drop_ended(begin(name)),
        "waited for": lambda name: begin(name).wait(),
        "looked at": lambda name: look(begin(name)),
        "of another group": lambda name: drop_it(begin(name, everyone)),
        "before another": lambda name: (drop_it(begin(name)), begin(f"{name}.other").wait())[0],
    }
    found: Dict[str, List[str]] = {}
    for how, first in ways.items():
        for number in range(50):
            name = f"{how}.{number}"
            first(name)
            said = refusal_of(lambda name=name: begin(name).wait())
            found.setdefault(how, []).append(said.replace(name, "N"))
    return found


class DroppedTest(unittest.TestCase):
    def check(self, how: str) -> None:
        with Pool(2, __file__) as pool:
            self.assertEqual(pool.call(drop, how)[0], [True, False])

    def test_its_tensors_are_let_go_when_the_operation_ends(self) -> None:
        self.check("end")

    def test_its_tensors_are_let_go_when_the_runtime_ends(self) -> None:
        self.check("shutdown")

    def test_a_second_call_directly_after_it_is_refused_whether_it_has_ended_or_not(self) -> None:
        with Pool(2, __file__) as pool:
            for found in pool.call(repeat):
                for how, said in found.items():
                    if how.startswith("dropped"):
                        for one in said:
                            self.assertRegex(one, "InvalidArgument: .*N.* wait for it first, or")
                    else:
                        self.assertEqual(set(said), {"nothing"}, how)


if __name__ == "__main__":
    unittest.main()
