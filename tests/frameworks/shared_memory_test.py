"""Tensors that share memory. Of one request: one that is listed twice (tied weights) has one
result, and those that share a part are refused by number. Of requests in flight together: the
second is refused on every rank alike, unless both only read."""

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
    both = torch.nn.ModuleDict({"encoder": encoder, "decoder": decoder})
    hvd.broadcast_parameters(both.state_dict(), root_rank=hvd.size() - 1)
    parameters = list(encoder.parameters()) + list(decoder.parameters())
    for p in parameters:
        p.grad = torch.full_like(p, float(hvd.rank()))
    hvd.grouped_allreduce_([p.grad for p in parameters], op=hvd.Average, name="gradients")
    mean = (hvd.size() - 1) / 2
    assert all(bool((p.grad == mean).all()) for p in parameters)


def two_in_flight() -> str:
    """Whether the first has ended when the second comes is a matter of luck, the refusal is not."""
    first_alone = float(sum(range(1, hvd.size() + 1)))
    for count in (1, 4096):
        for _ in range(20):
            tensor = torch.full((count,), float(hvd.rank() + 1))
            handle = hvd.allreduce_async_(tensor, op=hvd.Sum, name="first")
            for begin_other in (
                lambda tied: hvd.allreduce_async_(tied, op=hvd.Sum, name="second"),
                lambda tied: hvd.allreduce_async(tied, op=hvd.Sum, name="second"),
                lambda tied: hvd.allgather_async(tied, name="second"),
                lambda tied: hvd.grouped_allreduce_async_([torch.ones(1), tied], name="second"),
            ):
                try:
                    begin_other(tensor)
                except covey.InvalidArgument as error:
                    text = str(error)
                else:
                    raise AssertionError("no error")
            hvd.synchronize(handle)
            assert bool((tensor == first_alone).all()), tensor
            hvd.allreduce_(tensor, op=hvd.Sum, name="second")
            assert bool((tensor == first_alone * hvd.size()).all()), tensor
    return text


def in_flight_in_order() -> None:
    """Readers go beside each other, and unnamed operations one after the other."""
    size = hvd.size()
    total = float(sum(range(1, size + 1)))
    for _ in range(20):
        tensor = torch.full((4096,), float(hvd.rank() + 1))
        reads = [hvd.allreduce_async(tensor, op=hvd.Sum, name=name) for name in "abc"]
        assert all(bool((hvd.synchronize(h) == total).all()) for h in reads)
        writes = [hvd.allreduce_async_(tensor, op=hvd.Sum) for _ in range(3)]
        for handle in writes:
            hvd.synchronize(handle)
        assert bool((tensor == total * size * size).all()), tensor


def strided_and_polled() -> None:
    """What is copied back is there once poll says so, of one tensor and of several."""
    total = float(sum(range(1, hvd.size() + 1)))
    for begin in (
        lambda whole: hvd.allreduce_async_(whole[::2], op=hvd.Sum, name="strided"),
        lambda whole: hvd.grouped_allreduce_async_(
            [whole[::4], whole[2::4]], op=hvd.Sum, name="strided"
        ),
    ):
        whole = torch.full((1000,), float(hvd.rank() + 1))
        handle = begin(whole)
        while not hvd.poll(handle):
            pass
        assert bool((whole[::2] == total).all()), whole
        assert bool((whole[1::2] == hvd.rank() + 1).all()), whole
        hvd.synchronize(handle)


class SharedMemoryTest(unittest.TestCase):
    def test_a_strided_result_is_there_once_polled(self) -> None:
        pool(2).call(strided_and_polled)

    def test_two_in_flight_are_refused_on_every_rank(self) -> None:
        for size in (2, 3):
            for text in pool(size).call(two_in_flight):
                self.assertRegex(text, "second' uses memory of allreduce 'allreduce.first'")

    def test_readers_and_unnamed_operations_share_memory(self) -> None:
        pool(3).call(in_flight_in_order)

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
