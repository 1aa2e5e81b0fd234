"""Timeouts of process groups of torch.distributed with Covey as backend: a call that a rank does
not make raises after the timeout, and says which call and which rank. It stays in flight: with the
missing rank all ends as if nothing had been.

Method: ranks that come late do so when the others have told the test that they gave up.
"""

from __future__ import annotations

import functools
import os
import unittest
from datetime import timedelta
from typing import Any, Callable, List, Optional, Tuple

import torch
import torch.distributed as dist
from ranks import RANKS_MAY_DIE, SharedPool

import covey

SIZE = 3
SHORT = timedelta(seconds=0.5)
pools = SharedPool(__file__)


def tearDownModule() -> None:
    pools.close()


def begin(timeout: Optional[timedelta]) -> None:
    import covey.torch  # noqa: F401  registers the backend
    from torch.distributed.rendezvous import rendezvous

    # All come to the store in any case: the timeout is that of calls.
    store, rank, size = next(rendezvous("env://"))
    dist.init_process_group("covey", store=store, rank=rank, world_size=size, timeout=timeout)


def end() -> None:
    dist.destroy_process_group()


def text_of(call: Callable[[], Any]) -> Tuple[str, int]:
    """What a call times out with."""
    try:
        call()
    except covey.Timeout as error:
        return str(error), error.peer_rank
    raise AssertionError("no timeout")


works: List[Any] = []
totals: List[torch.Tensor] = []


def sum_without(late: List[int]) -> Any:
    """Those that are not late call; twice, and the first call has been made by all once before."""
    if dist.get_rank() in late:
        return None
    totals.append(torch.ones(4))
    works.append(dist.all_reduce(totals[-1], async_op=True))
    said = text_of(works[-1].wait)
    totals.append(torch.ones(4))
    return said, text_of(functools.partial(dist.all_reduce, totals[-1]))


def sum_late() -> List[List[float]]:
    """All ranks come to have made both calls and one more."""
    while len(totals) < 2:
        totals.append(torch.ones(4))
        dist.all_reduce(totals[-1])
    totals.append(torch.full((4,), 2.0))
    dist.all_reduce(totals[-1])
    result = [total.tolist() for total in totals]
    if works:
        works[0].wait()  # It has ended.
        works.clear()
    totals.clear()
    return result


def other_calls() -> Any:
    """Those of rank 0, which is alone."""
    part = dist.new_group([0, 2], timeout=SHORT)
    if dist.get_rank() != 0:
        return None
    one = torch.ones(2)
    rows = [torch.empty(2) for _ in range(SIZE)]
    future = dist.all_reduce(torch.ones(1), async_op=True).get_future()
    return [
        text_of(call)[0]
        for call in (
            future.wait,
            future.then(lambda done: done.value()).wait,
            functools.partial(dist.broadcast, one, 1),
            functools.partial(dist.all_gather, rows, one),
            dist.barrier,
            functools.partial(dist.all_reduce, torch.ones(2), group=part),
        )
    ]


def meet_without(late: List[int], wait_all_ranks: bool = False) -> Any:
    """torch's monitored_barrier, to which some ranks come late. All ranks call that of a group."""
    part = dist.new_group([0, 1])
    dist.monitored_barrier(part, wait_all_ranks=True)
    if dist.get_rank() in late:
        return None
    return text_of(functools.partial(dist.monitored_barrier, None, SHORT, wait_all_ranks))


def meet_late(late: List[int]) -> None:
    """All come; a group of Gloo has torch's own."""
    from covey.torch import monitored_barrier

    if dist.get_rank() in late:
        dist.monitored_barrier()
    monitored_barrier(timeout=timedelta(seconds=60))
    monitored_barrier(dist.new_group(backend="gloo"), timedelta(seconds=60))
    dist.distributed_c10d.monitored_barrier(dist.new_group(backend="gloo"))


def meet_in_part() -> Any:
    """Calls of a group whose ranks have other numbers in the job; at once, and after 0.25 s."""
    part = dist.new_group([1, 2])
    if dist.get_rank() != 1:
        return None
    at_once = text_of(functools.partial(part.monitored_barrier, timedelta(0)))
    return at_once, text_of(functools.partial(dist.monitored_barrier, part, 0.25))


def apart() -> Any:
    """Rank 1 makes no call of the first group, and those of the two others the other way round."""
    alone, *groups = [dist.new_group(range(SIZE), timeout=t) for t in (SHORT, None, None)]
    rank = dist.get_rank()
    said = []
    if rank != 1:
        work = dist.all_reduce(torch.ones(1), group=alone, async_op=True)
        said.append(text_of(functools.partial(work.wait, timedelta(milliseconds=100)))[0])
        said.append(text_of(work.wait)[0])
        assert work.is_completed() and not work.is_success()
        assert isinstance(work.exception(), covey.Timeout)
    values = [torch.full((3,), 1.0 + rank), torch.full((3,), 100.0 * (1 + rank))]
    calls = list(zip(values, groups))
    if rank == 1:
        calls.reverse()
    begun = [dist.all_reduce(value, group=group, async_op=True) for value, group in calls]
    for work in begun:
        work.wait()
    return said, [value.tolist() for value in values]


def train(dies: bool) -> Any:
    """A step of DDP that one rank does not do."""
    parallel = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(3, 2))
    if dist.get_rank() == 1:
        if dies:
            os._exit(1)
        return None
    try:
        parallel(torch.ones(1, 3)).sum().backward()
    except RuntimeError as error:
        return str(error)
    raise AssertionError("no error")


class TimeoutTest(unittest.TestCase):
    def check(self, said: Tuple[str, int], late: List[int]) -> None:
        text, rank = said
        whom = f"rank {late[0]};" if len(late) == 1 else f"ranks {late[0]}, {late[1]};"
        self.assertIn("all_reduce in process group '0' of ranks 0, 1, 2 has not ended", text)
        self.assertIn("within its timeout of 0.5 s: it waits for " + whom, text)
        self.assertEqual(rank, late[0] if len(late) == 1 else -1)

    def test_names_call_and_ranks_and_goes_on_when_they_come(self) -> None:
        pool = pools(SIZE)
        pool.call(begin, SHORT)
        for late in ([1], [0], [1, 2], [0, 1]):
            with self.subTest(late=late):
                for rank, said in enumerate(pool.call(sum_without, late)):
                    self.assertEqual(said is None, rank in late)
                    for one in said or ():
                        self.check(one, late)
                three, six = [float(SIZE)] * 4, [2.0 * SIZE] * 4
                self.assertEqual(pool.call(sum_late), [[three, three, six]] * SIZE)
        pool.call(end)

    def test_monitored_barrier_names_the_rank_that_does_not_come(self) -> None:
        pool = pools(SIZE)
        pool.call(begin, timedelta(seconds=60))
        words = {
            0: "Rank 0 timed out in monitoredBarrier after 500 ms: Rank 1 failed to pass monitored",
            2: "Rank 2 successfully reached monitoredBarrier, but received errors while waiting",
        }
        for rank, said in enumerate(pool.call(meet_without, [1])):
            if rank != 1:
                text, missing = said
                self.assertIn("within its timeout of 0.5 s: it waits for rank 1;", text)
                self.assertEqual(missing, 1)
                self.assertIn(words[rank], text)
        pool.call(meet_late, [1])
        pool.call(end)

    def test_monitored_barrier_names_one_rank_or_all_that_do_not_come(self) -> None:
        pool = pools(SIZE)
        pool.call(begin, timedelta(seconds=60))
        for wait_all_ranks, whom in ((False, "Rank 1"), (True, "Ranks 1, 2")):
            text, missing = pool.call(meet_without, [1, 2], wait_all_ranks)[0]
            self.assertIn(f": {whom} failed to pass monitoredBarrier: barrier in process", text)
            self.assertIn("it waits for ranks 1, 2;", text)
            self.assertEqual(missing, -1)
            pool.call(meet_late, [1, 2])
        at_once, by_number = pool.call(meet_in_part)[1]
        for (text, missing), limit in ((at_once, 1), (by_number, 250)):
            self.assertIn(f"Rank 0 timed out in monitoredBarrier after {limit} ms: Rank 1 fa", text)
            self.assertEqual(missing, 2)
        pool.close()  # Rank 2 does not come.

    def test_every_call_of_every_group_has_its_groups_timeout(self) -> None:
        pool = pools(SIZE)
        pool.call(begin, SHORT)
        said = pool.call(other_calls)[0]
        whats = ("all_reduce", "all_reduce", "broadcast", "all_gather", "barrier", "all_reduce")
        for text, what in zip(said[:-1], whats):
            self.assertTrue(text.startswith(what + " in process group '0' of ranks 0, 1, 2"), text)
        self.assertIn("of ranks 0, 2 has not ended within its timeout of 0.5 s", said[-1])
        self.assertIn("it waits for rank 2;", said[-1])
        pool.close()  # Nobody makes the other calls.

    def test_groups_of_the_same_ranks_have_an_order_and_a_timeout_each(self) -> None:
        pool = pools(SIZE)
        pool.call(begin, timedelta(seconds=60))
        for rank, (said, values) in enumerate(pool.call(apart)):
            self.assertEqual(values, [[6.0] * 3, [600.0] * 3])
            for limit, text in zip(("the 0.1 s of this wait", "its timeout of 0.5 s"), said):
                self.assertIn(f"has not ended within {limit}: it waits for rank 1; it stays", text)
            self.assertEqual(len(said), 0 if rank == 1 else 2)
        pool.close()  # Rank 1 does not make the first group's call.

    def test_a_step_of_ddp_says_why_it_fails(self) -> None:
        late, dead = (False, SHORT, "it waits for rank 1;"), (True, None, "rank 1")
        for dies, timeout, why in (late, dead) if RANKS_MAY_DIE else (late,):
            pool = pools(SIZE)
            pool.call(begin, timeout)
            pool.send(train, dies)
            said = pool.collect(may_end=True)
            self.assertIn(why, said[0])
            self.assertIn(why, said[2])
            pool.close()


if __name__ == "__main__":
    unittest.main()
