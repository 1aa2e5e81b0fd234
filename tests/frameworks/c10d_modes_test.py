"""Calls of torch.distributed over Covey in torch's modes: what a thread has set for its operations.

Method: two ranks. A result has to come whichever mode the waiting thread has.
"""

from __future__ import annotations

import unittest
from typing import Any, Callable

import torch
import torch.distributed as dist
from process_groups import in_group
from ranks import SharedPool

SIZE = 2
pools = SharedPool(__file__)


def tearDownModule() -> None:
    pools.close()


def gathering(ends: Callable[[Any], Any]) -> Any:
    """Begins an all_gather, which ``ends`` waits for; its outputs."""
    rows = [torch.zeros(2) for _ in range(SIZE)]
    own = torch.full((2,), float(dist.get_rank()))
    work = dist.all_gather(rows, own, async_op=True)
    ends(work)
    return work, rows


def check(rows: Any) -> None:
    assert [row.tolist() for row in rows] == [[float(r)] * 2 for r in range(SIZE)], rows


@in_group
def inference() -> None:
    """Calls made in the mode, and such as get tensors that were made in it."""
    with torch.inference_mode():
        work, rows = gathering(lambda _: None)
        check(gathering(lambda begun: begun.get_future().wait())[1])
        one = torch.ones(2)
    work.wait()
    check(rows)
    dist.reduce(one, 0)
    assert one.tolist() == [2.0 if dist.get_rank() == 0 else 1.0] * 2, one
    own = rows[dist.get_rank()].clone()
    with torch.inference_mode():
        rows = [torch.zeros(2) for _ in range(SIZE)]
    dist.all_gather(rows, own)
    check(rows)


@in_group
def awaited_in_inference() -> None:
    """A call made outside of the mode; what comes takes part in gradients."""
    work, rows = gathering(lambda _: None)
    with torch.inference_mode():
        work.wait()
    check(rows)
    weight = torch.ones(2, requires_grad=True)
    (weight * rows[1]).sum().backward()
    assert weight.grad is not None and weight.grad.tolist() == [1.0, 1.0]


@in_group
def defaults() -> None:
    """Ranks have other defaults of dtype and device."""
    with torch.device("meta"):
        dist.barrier()
    if dist.get_rank() == 0:
        torch.set_default_dtype(torch.float64)
    try:
        dist.barrier()
    finally:
        torch.set_default_dtype(torch.float32)


class ModesTest(unittest.TestCase):
    def test_inference_mode(self) -> None:
        pools(SIZE).call(inference)

    def test_a_wait_in_inference_mode(self) -> None:
        pools(SIZE).call(awaited_in_inference)

    def test_a_barrier_takes_no_default_of_torch(self) -> None:
        pools(SIZE).call(defaults)


if __name__ == "__main__":
    unittest.main()
