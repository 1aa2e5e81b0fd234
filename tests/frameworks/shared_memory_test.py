"""Tensors of one request that share memory: one that is listed twice (tied weights) has one result,
and those that share a part are refused by number."""

from __future__ import annotations

import unittest

import torch
from ranks import SharedPool

import covey
import covey.torch as hvd

pool = SharedPool(__file__)


def tearDownModule() -> None:
    pool.close()


# ---- On the ranks ------------------------------------------------------------------------------


def one_tensor_twice() -> None:
    """Every mention is reduced from what the tensor held before, as in a fusion buffer."""
    total = float(sum(range(1, hvd.size() + 1)))
    for count in (1, 1000, 1 << 20):
        for make_empty in (torch.empty, covey.arena_empty):
            tensor, other = (make_empty(count, dtype=torch.float32) for _ in range(2))
            tensor.fill_(hvd.rank() + 1)
            other.fill_(hvd.rank() + 1)
            hvd.grouped_allreduce_([tensor, other, tensor, tensor], op=hvd.Sum, name="twice")
            assert bool((tensor == total).all()) and bool((other == total).all()), (count, tensor)
            hvd.grouped_allreduce_([tensor, tensor], op=hvd.Average, name="averages")
            assert bool((tensor == total).all()), (count, tensor)


def views_that_share_a_part() -> str:
    whole = torch.ones(1000)
    try:
        hvd.grouped_allreduce_([whole[:600], whole[400:]], op=hvd.Sum, name="views")
    except covey.InvalidArgument as error:
        assert bool((whole == 1).all()), "touched"
        hvd.grouped_allreduce_([whole[:500], whole[500:]], op=hvd.Sum, name="views")
        assert bool((whole == hvd.size()).all())
        return str(error)
    raise AssertionError("no error")


def tied_weights() -> None:
    """The recipe of a script that reduces its gradients itself, with a weight of two modules."""
    encoder, decoder = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)
    decoder.weight = encoder.weight
    hvd.broadcast_parameters(encoder.state_dict(), root_rank=0)
    hvd.broadcast_parameters(decoder.state_dict(), root_rank=0)
    parameters = list(encoder.parameters()) + list(decoder.parameters())
    for p in parameters:
        p.grad = torch.full_like(p, float(hvd.rank()))
    hvd.grouped_allreduce_([p.grad for p in parameters], op=hvd.Average, name="gradients")
    mean = (hvd.size() - 1) / 2
    assert all(bool((p.grad == mean).all()) for p in parameters)


class SharedMemoryTest(unittest.TestCase):
    def test_one_tensor_twice_has_one_result(self) -> None:
        for size in (2, 3):
            pool(size).call(one_tensor_twice)

    def test_views_that_share_a_part_are_refused_by_number(self) -> None:
        for text in pool(3).call(views_that_share_a_part):
            self.assertIn("tensors 0 and 1 of the request share memory", text)

    def test_gradients_of_tied_weights(self) -> None:
        pool(2).call(tied_weights)


if __name__ == "__main__":
    unittest.main()
