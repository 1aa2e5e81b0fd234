"""Callbacks of futures of torch.distributed with Covey as its backend: they may make further calls
and wait for them, as torch's own communication hooks do.

Method: two ranks. Hooks that only move the work elsewhere are compared with plain DDP, and so is
PowerSGD at full rank, which loses nothing. Ranks come to their callbacks in different orders.
"""

from __future__ import annotations

import threading
import time
import unittest
import weakref
from typing import Any, Callable, List, Tuple
from unittest import mock

import torch
import torch.distributed as dist
from process_groups import in_group
from ranks import SEED, Pool, SharedPool
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.distributed.algorithms.ddp_comm_hooks.ddp_zero_hook import (
    hook_with_zero_step,
    hook_with_zero_step_interleaved,
)
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

from covey.torch.c10d.completions import Completions
from covey.torch.c10d.points import Announcer

SIZE = 2
STEPS = 8
WIDTH = 24  # A layer has 24 * 25 numbers: as one square matrix, 25 * 25.
LEARNING_RATE = 0.05
pools = SharedPool(__file__)


def setUpModule() -> None:
    print(f"seed {SEED}")


def tearDownModule() -> None:
    pools.close()


def trained(prepare: Callable[[Any], Any], skipped: int = 0) -> Tuple[List[float], float]:
    """A model, one bucket for each layer, after some steps, the first of which change nothing; and
    how far the ranks are apart."""
    torch.manual_seed(SEED)
    layers = [torch.nn.Linear(WIDTH, WIDTH) for _ in range(6)]
    parallel = DistributedDataParallel(torch.nn.Sequential(*layers), bucket_cap_mb=0.002)
    optimizer = prepare(parallel)
    own = torch.Generator().manual_seed(SEED + dist.get_rank())
    for step in range(STEPS):
        data = torch.randn(8, WIDTH, generator=own)
        parallel.zero_grad()
        (parallel(data) - data.flip(1)).pow(2).mean().backward()
        if optimizer is not None and step >= skipped:
            optimizer.step()
    flat = torch.cat([parameter.detach().flatten() for parameter in parallel.parameters()])
    every = [torch.empty_like(flat) for _ in range(dist.get_world_size())]
    dist.all_gather(every, flat)
    return flat.tolist(), max((flat - other).abs().max().item() for other in every)


def sgd(parallel: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parallel.parameters(), lr=LEARNING_RATE)


@in_group
def plain(skipped: int) -> Any:
    return trained(sgd, skipped)


@in_group
def power(batched: bool) -> Any:
    state = powerSGD_hook.PowerSGDState(
        None, matrix_approximation_rank=WIDTH + 1, start_powerSGD_iter=2, min_compression_rate=0
    )
    hook = powerSGD_hook.batched_powerSGD_hook if batched else powerSGD_hook.powerSGD_hook
    three = powerSGD_hook._orthogonalize

    def two(matrix: torch.Tensor, epsilon: float = 0) -> None:
        """torch 2.13's batched hook hands one matrix to what takes a batch of them."""
        three(matrix if matrix.dim() == 3 else matrix.unsqueeze(0), epsilon)

    def prepare(parallel: Any) -> torch.optim.Optimizer:
        parallel.register_comm_hook(state, hook)
        return sgd(parallel)

    powerSGD_hook._orthogonalize = two
    try:
        return trained(prepare)
    finally:
        powerSGD_hook._orthogonalize = three


@in_group
def zero(interleaved: bool) -> Any:
    wrap = hook_with_zero_step_interleaved if interleaved else hook_with_zero_step

    def prepare(parallel: Any) -> None:
        optimizer = ZeroRedundancyOptimizer(
            parallel.parameters(), torch.optim.SGD, overlap_with_ddp=True, lr=LEARNING_RATE
        )
        # The hook does its steps.
        parallel.register_comm_hook(None, wrap(default_hooks.allreduce_hook, parallel, optimizer))

    return trained(prepare)


def begun(value: float) -> Any:
    return dist.all_reduce(torch.tensor([value]), async_op=True).get_future()


@in_group
def nested(calls: int) -> List[float]:
    """Each call has a callback that waits for another, whose callback waits for a third. One rank
    waits for each chain before the next call, the others do not."""

    def first(future: Any) -> torch.Tensor:
        inner = begun(future.value()[0].item() * 3).then(second)
        return inner.wait() + begun(1.0).wait()[0]

    def second(future: Any) -> torch.Tensor:
        return future.value()[0] + begun(10.0).then(lambda third: third.value()[0] * 2).wait()

    chains = []
    for number in range(calls):
        chains.append(begun(float(number)).then(first).then(lambda done: done.value().item()))
        if dist.get_rank() == 0:
            chains[-1].wait()
    return [chain.wait() for chain in chains]


@in_group
def values_after_waits(calls: int) -> List[float]:
    """The value of a future that is asked for after the wait for its call."""
    values = []
    for number in range(calls):
        work = dist.all_reduce(torch.tensor([float(number)]), async_op=True)
        work.wait()
        values.append(work.get_future().value()[0].item())
    return values


@in_group
def values_of_ended(calls: int) -> List[float]:
    """Calls that wait for their end, as torch makes them without ``async_op``. Rank 0 makes every
    second one so that it waits by itself."""
    group, values = dist.group.WORLD, []
    assert group is not None
    options = dist.AllreduceOptions()
    for number in range(calls):
        options.asyncOp = dist.get_rank() == 0 and number % 2 == 1
        tensor = torch.tensor([float(number)])
        work = group.allreduce([tensor], options)
        assert work.wait() and work.is_completed() and work.is_success()
        assert work.exception() is None and work.result() == [tensor]
        values.append(work.get_future().then(lambda done: done.value()[0].item()).wait())
    return values


@in_group
def errors() -> List[str]:
    def fail(_: Any) -> None:
        raise KeyError("mine")

    said = []
    failed = begun(1.0).then(fail)
    for future in (failed, failed.then(lambda done: done.value())):
        try:
            future.wait()
        except KeyError as error:
            said.append(str(error))
    heard: List[float] = []
    ended = begun(2.0)
    ended.add_done_callback(lambda done: heard.append(done.value()[0].item()))
    dist.barrier()
    ended.then(lambda _: None).wait()
    return [*said, *map(str, heard)]


@in_group
def dropped() -> int:
    """Calls that nobody waits for. So many tensors of theirs live after later calls; results have
    come."""
    watched, kept = [], []
    for number in range(8):
        tensor = torch.full((2,), float(number))
        watched.append(weakref.ref(tensor))
        kept.append([torch.zeros(2) for _ in range(SIZE)])
        dist.all_gather(kept[-1], tensor, async_op=True)
        dist.broadcast(tensor, 0, async_op=True)
        del tensor
    for _ in range(1000):
        dist.barrier(async_op=True).wait()
    for number, rows in enumerate(kept):
        assert [row.tolist() for row in rows] == [[float(number)] * 2] * SIZE, rows
    return sum(one() is not None for one in watched)


@in_group
def left_alone() -> str:
    """A callback of rank 1 fails, and a call of it is in flight that rank 0 does not make."""
    if dist.get_rank() == 0:
        begun(1.0).wait()
        return "done"
    failed = begun(1.0).then(lambda _: 1 / 0)
    begun(2.0)
    failed.wait()
    return "no error"


class CallbacksTest(unittest.TestCase):
    def check_trains(self, skipped: int, function: Callable[..., Any], *args: Any) -> None:
        pool = pools(SIZE)
        reference = pool.call(plain, skipped)[0][0]
        for model, apart in pool.call(function, *args):
            self.assertEqual(apart, 0.0)
            torch.testing.assert_close(torch.tensor(model), torch.tensor(reference))

    def test_power_sgd_trains(self) -> None:
        self.check_trains(0, power, False)

    def test_batched_power_sgd_trains(self) -> None:
        self.check_trains(0, power, True)

    def test_zero_redundancy_steps_in_hooks(self) -> None:
        # Its first two steps only learn what the buckets are.
        self.check_trains(2, zero, False)
        self.check_trains(2, zero, True)

    def test_callbacks_wait_for_calls_whose_callbacks_wait(self) -> None:
        calls = 50
        # SIZE * number, times 3 and summed again; SIZE * 10 twice; SIZE.
        wanted = [SIZE * SIZE * 3.0 * number + 2 * SIZE * 10 + SIZE for number in range(calls)]
        for result in pools(SIZE).call(nested, calls):
            self.assertEqual(result, wanted)

    def test_a_future_has_its_value_after_a_wait(self) -> None:
        for values in pools(SIZE).call(values_after_waits, 50):
            self.assertEqual(values, [float(SIZE * number) for number in range(50)])

    def test_a_call_that_waits_has_a_future_that_has_ended(self) -> None:
        for values in pools(SIZE).call(values_of_ended, 50):
            self.assertEqual(values, [float(SIZE * number) for number in range(50)])

    def test_a_call_that_nobody_waits_for_is_not_kept_after_its_end(self) -> None:
        self.assertEqual(pools(SIZE).call(dropped), [0] * SIZE)

    def test_errors_of_callbacks_are_those_of_their_futures(self) -> None:
        self.assertEqual(pools(SIZE).call(errors), [["'mine'", "'mine'", "4.0"]] * SIZE)

    def test_a_group_whose_callback_has_failed_waits_for_no_call(self) -> None:
        with Pool(SIZE, __file__) as pool:
            with self.assertRaisesRegex(AssertionError, "ZeroDivisionError"):
                pool.call(left_alone)


class LeavingTest(unittest.TestCase):
    def test_no_future_begins_to_end_when_the_process_ends(self) -> None:
        began, goes_on, left = threading.Event(), threading.Event(), threading.Event()
        ended = []

        class Work:
            def __init__(self, await_end: Any, end_future: Any) -> None:
                self.await_end, self.end_future = await_end, end_future

        def end_slowly() -> None:
            began.set()
            goes_on.wait(60)
            ended.append("first")

        completions = Completions()
        completions.add(None, Work(lambda: None, end_slowly))
        completions.add(None, Work(lambda: left.wait(60), lambda: ended.append("second")))
        self.assertTrue(began.wait(60))
        leaving = threading.Thread(target=completions.leave)
        leaving.start()
        while not completions._has_left:
            time.sleep(0)
        self.assertTrue(leaving.is_alive())  # A future ends just now.
        goes_on.set()
        leaving.join(60)
        left.set()
        for thread in completions._threads:
            thread.join(60)
        self.assertEqual(ended, ["first"])

    def test_what_a_call_has_held_is_freed_before_the_process_ends(self) -> None:
        frees, goes_on = threading.Event(), threading.Event()

        class Work:
            def await_end(self) -> None:
                pass

            end_future = await_end

            def __del__(self) -> None:
                frees.set()
                goes_on.wait(60)

        completions = Completions()
        completions.add(None, Work())
        self.assertTrue(frees.wait(60))
        leaving = threading.Thread(target=completions.leave)
        leaving.start()
        while not completions._has_left:
            time.sleep(0)
        self.assertTrue(leaving.is_alive())
        goes_on.set()
        leaving.join(60)
        self.assertFalse(leaving.is_alive())

    def test_sends_are_announced_no_more_when_the_process_ends(self) -> None:
        asked, goes_on = threading.Event(), threading.Event()

        class Send:
            def has_ended(self) -> bool:
                return False

        def announce() -> bool:
            asked.set()
            return goes_on.wait(60)

        with mock.patch("atexit.register") as register:
            announcer = Announcer()
        announcer.add(Send(), announce)  # type: ignore[arg-type]
        self.assertTrue(asked.wait(60))
        at_exit, *given = register.call_args.args
        leaving = threading.Thread(target=at_exit, args=given)
        leaving.start()
        announcer._closed.wait(60)
        self.assertTrue(leaving.is_alive())  # The thread is within torch's store.
        goes_on.set()
        leaving.join(60)
        assert announcer._thread is not None
        self.assertFalse(announcer._thread.is_alive())


if __name__ == "__main__":
    unittest.main()
