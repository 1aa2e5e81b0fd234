"""Calls of torch.distributed over Covey in torch's modes: what a thread has set for its operations.

Method: two ranks. A result has to come whichever mode the waiting thread has.
"""

from __future__ import annotations

import unittest
from typing import Any, Callable, List, Set
from unittest import mock

import torch
import torch.distributed as dist
from process_groups import in_group
from ranks import SharedPool, refusal_of

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


@in_group
def profiled() -> Set[str]:
    """The names of calls that torch's profiler shows, of DDP's too."""
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2))
    one = torch.ones(4)
    with torch.profiler.profile() as profile:
        dist.all_reduce(one)
        dist.all_reduce(one, async_op=True).wait()
        dist.all_gather_into_tensor(torch.zeros(4 * SIZE), one)
        dist.barrier()
        if dist.get_rank() == 0:
            dist.send(one, 1)
        else:
            dist.recv(one, 0)
        model(torch.ones(1, 2)).sum().backward()
    counts = {event.key: event.count for event in profile.key_averages()}
    assert counts["c10d::allreduce_"] == 3, counts
    return {name for name in counts if name.startswith("c10d::")}


@in_group
def without_data() -> List[str]:
    """Refusals of tensors that have none; the next calls work."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    peer = SIZE - 1 - dist.get_rank()
    with FakeTensorMode():
        fake = torch.ones(4)
        calls: List[Callable[[], Any]] = [
            dist.barrier,
            lambda: dist.all_reduce(fake),
            lambda: dist.all_gather([fake] * SIZE, fake),
            lambda: dist.group.WORLD.allreduce_coalesced([fake, fake]),
            lambda: dist.send(fake, peer),
            lambda: dist.recv(fake, peer),
            lambda: dist.recv(fake),
        ]
        said = [refusal_of(call) for call in calls]
    dist.barrier()
    return said


def of_two_backends(names: str) -> List[str]:
    """Warnings of a default group of these backends and of groups within it."""
    import covey.torch  # noqa: F401

    with mock.patch("covey.notice.warn") as warn:
        dist.init_process_group(names)
        for group in (dist.group.WORLD, dist.new_group(), dist.new_group(backend="covey")):
            dist.all_reduce(torch.ones(1), group=group)
            dist.all_reduce(torch.ones(1), group=group)
        dist.destroy_process_group()
    return [call.args[0] for call in warn.call_args_list]


class ModesTest(unittest.TestCase):
    def test_inference_mode(self) -> None:
        pools(SIZE).call(inference)

    def test_a_wait_in_inference_mode(self) -> None:
        pools(SIZE).call(awaited_in_inference)

    def test_a_barrier_takes_no_default_of_torch(self) -> None:
        pools(SIZE).call(defaults)

    def test_the_profiler_shows_calls(self) -> None:
        names = {"allreduce_", "_allgather_base_", "barrier"}
        for of_message, shown in zip(("send", "recv_"), pools(SIZE).call(profiled)):
            self.assertEqual(shown, {f"c10d::{name}" for name in (*names, of_message)})

    def test_tensors_without_data_are_refused(self) -> None:
        for said in pools(SIZE).call(without_data):
            for text in said:
                self.assertIn("over Covey moves data, and a FakeTensor has none", text)

    def test_another_backend_for_a_device_is_not_used_which_is_said_once(self) -> None:
        # With Gloo first torch makes one of Gloo's, too, and drops it while others still connect.
        first, second = pools(SIZE).call(of_two_backends, "cpu:covey,cuda:gloo")
        self.assertEqual(len(first), 1, first)
        self.assertIn("the backend 'cpu:covey,cuda:gloo' of process group", first[0])
        self.assertIn("is Covey for every device", first[0])
        self.assertEqual(second, [])
        self.assertEqual(pools(SIZE).call(of_two_backends, "cpu:covey,cuda:covey"), [[], []])


if __name__ == "__main__":
    unittest.main()
