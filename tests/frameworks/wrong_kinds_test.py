"""Goal: an argument of the wrong kind is refused by its name on the rank that gives it, and the
next call works.
Method: every function of covey.torch and covey.numpy with every value of wrong_kinds.py."""

from __future__ import annotations

import unittest
from typing import List, Tuple

import numpy
import torch
from ranks import SharedPool
from wrong_kinds import not_refused

import covey
import covey.numpy
import covey.torch as hvd

_OF_ONE = (
    "allreduce", "allgather", "alltoall", "broadcast", "gather", "reducescatter",
)  # fmt: skip
_OF_SEVERAL = ("grouped_allreduce", "grouped_allgather", "grouped_reducescatter")
_LATER = tuple(f"{name}_async" for name in (*_OF_ONE, *_OF_SEVERAL))
_IN_PLACE = ("allreduce_", "allreduce_async_", "broadcast_", "grouped_allreduce_")
_OF_TORCH = (
    "DistributedDataParallel", "DistributedOptimizer", "broadcast_object",
    "broadcast_optimizer_state", "broadcast_parameters", "check_replicas", "start_timeline",
)  # fmt: skip
pool = SharedPool(__file__)


def tearDownModule() -> None:
    pool.close()


def of_torch() -> Tuple[int, List[str]]:
    weight = torch.nn.Parameter(torch.ones(2))
    given = {
        "tensor": lambda: torch.ones(4),
        "tensors": lambda: [torch.ones(2)],
        "root_rank": lambda: 0,
        "params": lambda: {"weight": weight},
        "module": lambda: torch.nn.Linear(2, 1),
        "optimizer": lambda: torch.optim.SGD([weight], lr=0.1),
        "model": lambda: {"weight": weight},
    }
    functions = (*_OF_ONE, *_OF_SEVERAL, *_LATER, *_IN_PLACE, *_OF_TORCH)
    # The first is accepted for Horovod's sake.
    right = ("broadcast_optimizer_state(model", "DistributedDataParallel(process_set=None")
    count, found = not_refused(hvd, functions, given, right)
    assert hvd.allreduce(torch.ones(2), op=hvd.Sum).tolist() == [hvd.size()] * 2
    return count, found


def of_numpy() -> Tuple[int, List[str]]:
    given = {
        "tensor": lambda: numpy.ones(4, "float32"),
        "tensors": lambda: [numpy.ones(2, "float32")],
        "root_rank": lambda: 0,
    }
    functions = (*_OF_ONE, *_OF_SEVERAL, *_LATER, *_IN_PLACE)
    count, found = not_refused(covey.numpy, functions, given)
    assert covey.numpy.allreduce(numpy.ones(2), op=covey.Sum).tolist() == [covey.size()] * 2
    return count, found


def too_large() -> List[str]:
    texts = []
    for call in (
        lambda: hvd.allreduce(torch.ones((1,) * 17)),
        lambda: hvd.allreduce_async(torch.ones(2), name="negative").wait(timeout=-1.0),
    ):
        try:
            call()
        except covey.InvalidArgument as error:
            texts.append(str(error))
    assert hvd.synchronize(hvd.allreduce_async(torch.ones(2), op=hvd.Sum))[0] == hvd.size()
    return texts


class WrongKindsTest(unittest.TestCase):
    maxDiff = None

    def test_what_the_extension_refuses_is_an_error_of_covey(self) -> None:
        for texts in pool(2).call(too_large):
            self.assertIn("at most 16 dimensions, this one has 17", texts[0])
            self.assertIn("timeout must be", texts[1])

    def test_each_is_refused_by_its_name(self) -> None:
        for function, least in ((of_torch, 600), (of_numpy, 400)):
            with self.subTest(function=function.__name__):
                for count, found in pool(2).call(function):
                    self.assertEqual(found, [])
                    self.assertGreater(count, least)


if __name__ == "__main__":
    unittest.main()
