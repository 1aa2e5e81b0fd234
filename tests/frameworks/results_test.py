"""Goal: gradients of a version are read where they lie in memory that all ranks read, and whatever
somebody writes there in place changes nothing for others, nor for a later version.

Method: whole numbers, in memory that shares pages; ranks that write into ``grad`` in all ways, now
and then or always, against training without that; one that is late, and one that holds a version
while others go far beyond the log.
"""

from __future__ import annotations

import unittest
from typing import Any, Callable, Dict, List, Tuple

import torch
import trainings
from ranks import SharedPool

import covey.torch as hvd

SIZES = (3, 5000, 1, 1023, 700)
STEPS = 24

pool = SharedPool(__file__)


def tearDownModule() -> None:
    pool.close()


# ---- On the ranks ------------------------------------------------------------------------------


def net_of(method: str, **options: Any) -> Tuple[List[torch.nn.Parameter], Any]:
    """Parameters of two types: two buckets."""
    parameters = [
        torch.nn.Parameter(torch.zeros(size, dtype=dtype))
        for dtype in (torch.float32, torch.float64)
        for size in SIZES
    ]
    sgd = torch.optim.SGD(parameters, lr=1.0, **options)
    return parameters, hvd.DistributedOptimizer(sgd, method=method)


def train(parameters: List[torch.nn.Parameter], optimizer: Any, step: int) -> None:
    optimizer.zero_grad()
    factor = float(step + 2 * hvd.rank())
    sum((parameter * (factor + i)).sum() for i, parameter in enumerate(parameters)).backward()
    optimizer.step()


def numpy_writes(gradient: torch.Tensor) -> None:
    gradient.numpy()[:] = -7


WRITERS: Dict[str, Callable[[torch.Tensor], Any]] = {
    "in place": lambda gradient: gradient.mul_(3),
    "past autograd": lambda gradient: gradient.data.add_(5),
    "numpy": numpy_writes,
    "one element": lambda gradient: gradient[-1:].fill_(9) if gradient.numel() == 3 else None,
}


def sums(parameters: List[torch.nn.Parameter]) -> List[float]:
    values = (parameter.detach().double() for parameter in parameters)
    return [float((value * torch.arange(1, value.numel() + 1)).sum()) for value in values]


def is_in_place(optimizer: Any) -> bool:
    return trainings.counts(optimizer)["copied"] == 0


def after_writing(writer: str, every: int) -> Tuple[bool, List[float]]:
    """Only rank 0 writes, after each so-many-th step."""
    parameters, optimizer = net_of("eager:admit=all,log=2")
    for step in range(STEPS):
        train(parameters, optimizer, step)
        if hvd.rank() == 0 and step % every == 0:
            for parameter in parameters:
                WRITERS[writer](parameter.grad)
    optimizer.finish()
    return is_in_place(optimizer), sums(parameters)


def with_nesterov(method: str) -> Tuple[bool, List[float]]:
    """Whose momentum torch adds to the gradients in place."""
    parameters, optimizer = net_of(method, momentum=0.5, nesterov=True, foreach=True)
    for step in range(STEPS):
        train(parameters, optimizer, step)
    optimizer.finish()
    in_place = method != "allreduce" and is_in_place(optimizer)
    return in_place, sums(parameters)


def plain(method: str) -> Tuple[bool, List[float]]:
    parameters, optimizer = net_of(method)
    for step in range(STEPS):
        train(parameters, optimizer, step)
    optimizer.finish()
    return method != "allreduce" and is_in_place(optimizer), sums(parameters)


def read_late() -> List[float]:
    """Rank 0 goes ahead and writes into what it has read; rank 1 reads that afterwards."""
    parameters, optimizer = net_of("eager:admit=solo,log=16,grace=0s")
    for late in (False, True):
        if hvd.rank() == (1 if late else 0):
            for step in range(6):
                train(parameters, optimizer, step)
                for parameter in parameters:
                    parameter.grad.fill_(99 + hvd.rank())
        hvd.barrier()
    optimizer.finish()
    return sums(parameters)


def held_meanwhile() -> Tuple[List[float], List[float]]:
    """Rank 0's gradients after a step, and after others have gone through the log many times."""
    parameters, optimizer = net_of("eager:admit=solo,log=2,grace=0s,max_staleness=100")
    before: List[float] = []
    if hvd.rank() == 0:
        train(parameters, optimizer, 1)
        before = [float(parameter.grad.sum()) for parameter in parameters]
    hvd.barrier()
    if hvd.rank() > 0:
        for step in range(12):
            train(parameters, optimizer, step)
    hvd.barrier()
    after = [float(parameter.grad.sum()) for parameter in parameters] if before else []
    optimizer.finish()
    return before, after


# ---- The tests ---------------------------------------------------------------------------------


class ResultsTest(unittest.TestCase):
    def setUp(self) -> None:
        _, self.expected = pool(2).call(plain, "allreduce")[0]
        self.can_hold = pool(2).call(plain, "eager:admit=all")[0][0]

    def test_nothing_is_copied_and_nothing_differs(self) -> None:
        for in_place, seen in pool(2).call(plain, "eager:admit=all"):
            self.assertEqual(seen, self.expected)
            self.assertEqual(in_place, self.can_hold)

    def test_what_is_written_now_and_then_is_seen_by_nobody(self) -> None:
        for writer in WRITERS:
            with self.subTest(writer):
                for in_place, seen in pool(2).call(after_writing, writer, 5):
                    self.assertEqual(seen, self.expected)
                    self.assertEqual(in_place, self.can_hold)

    def test_who_always_writes_much_gets_copies(self) -> None:
        for writer in WRITERS:
            with self.subTest(writer):
                ranks = pool(2).call(after_writing, writer, 1)
                self.assertEqual([seen for _, seen in ranks], [self.expected] * 2)
                stays = self.can_hold and writer == "one element"
                self.assertEqual([in_place for in_place, _ in ranks], [stays, self.can_hold])

    def test_an_optimizer_that_writes_into_gradients(self) -> None:
        _, expected = pool(2).call(with_nesterov, "allreduce")[0]
        for in_place, seen in pool(2).call(with_nesterov, "eager:admit=all,log=2"):
            self.assertEqual(seen, expected)
            self.assertFalse(in_place)

    def test_who_is_late_reads_what_others_have_written_into(self) -> None:
        first, second = pool(2).call(read_late)
        self.assertEqual(first, second)

    def test_what_a_rank_has_stays_while_others_go_on(self) -> None:
        before, after = pool(3).call(held_meanwhile)[0]
        self.assertEqual(len(before), 2 * len(SIZES))
        self.assertEqual(before, after)


if __name__ == "__main__":
    unittest.main()
