"""A process takes part in one default process group after another: each has ranks of its own.

Method: three processes. A group is some of them, in some order, that share a store in a file.
"""

from __future__ import annotations

import os
import signal
import tempfile
import threading
import unittest
from typing import Any, List, Optional

import torch
import torch.distributed as dist
from ranks import Pool, on_one_host, ranks_may_die, refusal_of

SIZE = 3
_ME = "TEST_PROCESS"


def forget_launcher() -> None:
    """From now on the process knows of no job but those that it is told of."""
    os.environ[_ME] = os.environ["COVEY_RANK"]
    for name in list(os.environ):
        if name in ("RANK", "WORLD_SIZE") or (name.startswith("COVEY_") and "PLUGIN" not in name):
            del os.environ[name]


def begin(path: str, ranks: List[int]) -> Optional[int]:
    """`ranks`: processes, by their rank in the group. The number of this one; None: it has none."""
    import covey.torch  # noqa: F401  registers the backend

    me = int(os.environ.get(_ME) or os.environ["COVEY_RANK"])
    if me not in ranks:
        return None
    place = {"rank": ranks.index(me), "world_size": len(ranks)}
    dist.init_process_group("covey", store=dist.FileStore(path), **place)
    return me


def begin_in_job() -> None:
    """A group of the ranks that a launcher has started."""
    import covey.torch  # noqa: F401

    dist.init_process_group("covey")


def take_part(path: str, ranks: List[int], again: int = 1) -> Optional[float]:
    """An allreduce's sum. Process N contributes 10 to the power of N. None: not a member."""
    total = torch.zeros(1)
    for _ in range(again):
        me = begin(path, ranks)
        if me is None:
            return None
        total = torch.tensor([10.0**me])
        dist.all_reduce(total)
        first = torch.tensor([me])
        dist.broadcast(first, 0)
        assert first.item() == ranks[0], (first, ranks)
        if dist.get_rank() == 0:
            for _ in ranks[1:]:
                dist.recv(total)  # From any: by the store.
                assert total.item() == sum(10.0**process for process in ranks)
        else:
            dist.send(total, 0)
        first_alone = dist.new_group([0])
        if dist.get_rank() == 0:
            dist.all_reduce(torch.ones(1), group=first_alone)
        dist.destroy_process_group()
    return total.item()


def die(lost: int) -> None:
    if dist.get_rank() == lost:
        os.kill(os.getpid(), signal.SIGKILL)


def leave_the_dead() -> str:
    """What a survivor reads; then it leaves the group."""
    said = refusal_of(lambda: dist.all_reduce(torch.ones(4)))
    dist.destroy_process_group()
    return said


def sum_up(tensor: torch.Tensor) -> Any:
    return dist.all_reduce(tensor, async_op=True)


def receive(tensor: torch.Tensor) -> Any:
    return dist.irecv(tensor, 1)


def receive_any(tensor: torch.Tensor) -> Any:
    return dist.irecv(tensor)


CALLS = [sum_up, receive, receive_any]


def abort(path: str, number: int) -> str:
    """Rank 0 waits for the others until a thread of its own aborts the group; they wait for it in
    another group. What each reads."""
    if path:
        begin(path, [0, 1, 2])
    else:
        begin_in_job()
    other = dist.new_group([0, 1, 2])
    if dist.get_rank() == 0:
        work = CALLS[number](torch.ones(1 << 18))
        assert not work.is_completed()
        thread = threading.Thread(target=dist.distributed_c10d._abort_process_group)
        thread.start()
        said = refusal_of(work.wait)
        thread.join()
        return said
    said = refusal_of(lambda: dist.barrier(other))
    dist.distributed_c10d._abort_process_group()
    return said


def after_own_init(path: str) -> str:
    """The error of a default group in which ranks are in another order than in `hvd.init()`."""
    import covey.torch as hvd

    hvd.init()
    hvd.allreduce(torch.ones(1))
    place = {"rank": (hvd.rank() + 1) % SIZE, "world_size": SIZE}
    store = dist.FileStore(path)
    said = refusal_of(lambda: dist.init_process_group("covey", store=store, **place))
    hvd.allreduce(torch.ones(1))
    return said


def come_in_vain(path: str) -> str:
    """The error of ranks 0 and 2, as rank 1 does not come."""
    if os.environ["COVEY_RANK"] == "1":
        return ""
    return refusal_of(lambda: begin(path, [0, 1, 2]))


def begin_another(path: str) -> None:
    """A default group of another backend: torch's, which moves nothing."""
    import covey.torch  # noqa: F401
    from torch.testing._internal.distributed import fake_pg  # noqa: F401

    me = int(os.environ.get(_ME) or os.environ["COVEY_RANK"])
    dist.init_process_group("fake", store=dist.FileStore(path), rank=me, world_size=SIZE)


def groups_within(path: str, parts: List[List[int]]) -> Any:
    """The sums of the ranks of groups over Covey within that group, or the error."""
    begin_another(path)
    me, sums = dist.get_rank(), []
    try:
        for ranks in parts:
            total = torch.tensor([float(me)])
            group = dist.new_group(ranks, backend="covey")
            if me in ranks:
                dist.all_reduce(total, group=group)
                sums.append(total.item())
        return sums
    except (RuntimeError, ValueError) as error:
        return str(error)
    finally:
        dist.destroy_process_group()


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


class AgainTest(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self._folder = folder.name

    def pool(self, forgets: bool = True) -> Pool:
        pool = Pool(SIZE, __file__, init=False)
        self.addCleanup(pool.close)
        if forgets:
            pool.call(forget_launcher)
        return pool

    def path(self, name: str) -> str:
        return os.path.join(self._folder, name)

    def check(self, pool: Pool, name: str, ranks: List[int], again: int = 1) -> None:
        expected = sum(10.0**process for process in ranks)
        pool.send(take_part, self.path(name), ranks, again)
        wanted = [expected if me in ranks else None for me in range(SIZE)]
        self.assertEqual(pool.collect(may_end=True), wanted)

    def test_other_processes_in_other_orders(self) -> None:
        groups = ([0, 1, 2], [2, 0, 1], [1, 2], [0], [0, 2], [1], [0, 2, 1], [0, 1, 2], [2, 1])
        for forgets in (True, False):
            pool = self.pool(forgets)
            for number, ranks in enumerate(groups):
                with self.subTest(forgets=forgets, ranks=ranks):
                    self.check(pool, f"{forgets}{number}", ranks)

    def test_one_store_serves_one_group_after_another(self) -> None:
        pool = self.pool()
        self.check(pool, "store", [2, 0, 1], again=2)
        before = pool.call(descriptors)
        self.check(pool, "store", [2, 0, 1], again=5)
        self.assertEqual(pool.call(descriptors), before)

    @ranks_may_die
    def test_survivors_go_on_by_themselves(self) -> None:
        for lost in range(SIZE):
            with self.subTest(lost=lost):
                pool = self.pool()
                pool.call(begin, self.path(f"first{lost}"), [0, 1, 2])
                pool.send(die, lost)
                pool.collect(may_end=True)
                pool.send(leave_the_dead)
                said = pool.collect(may_end=True)
                survivors = [me for me in range(SIZE) if me != lost]
                for me in survivors:
                    self.assertIn(f"rank {lost}", said[me])
                self.check(pool, f"second{lost}", survivors)

    def test_an_abort_ends_what_is_in_flight(self) -> None:
        pool = self.pool()
        for number in range(len(CALLS)):
            said = pool.call(abort, self.path(f"aborted{number}"), number)
            for of_rank in said:
                self.assertIn("Aborted", of_rank)
            self.check(pool, f"after{number}", [0, 1, 2])

    def test_an_abort_in_the_job_of_a_launcher(self) -> None:
        pool = self.pool(forgets=False)
        for number in range(len(CALLS)):
            said = pool.call(abort, "", number)
            for of_rank in said:
                self.assertIn("Aborted", of_rank)
            self.check(pool, f"after{number}", [0, 1, 2])
            self.check(pool, f"others{number}", [2, 1])

    @on_one_host("between hosts COVEY_START_TIMEOUT has to be longer than COVEY_LEASE, of 10 s")
    def test_a_rank_that_does_not_come_is_named(self) -> None:
        pool = Pool(SIZE, __file__, {"COVEY_START_TIMEOUT": "1s"}, init=False)
        self.addCleanup(pool.close)
        said = pool.call(come_in_vain, self.path("late"))
        for rank in (0, 2):
            self.assertIn(f"rank {rank} of 3: ranks 1 did not call init_process_group", said[rank])

    def test_groups_within_a_default_group_of_another_backend(self) -> None:
        halves, everyone = [[0], [1, 2]], [0, 1, 2]
        said = self.pool(forgets=False).call(groups_within, self.path("a"), [*halves, everyone])
        self.assertEqual(said, [[0.0, 3.0], [3.0, 3.0], [3.0, 3.0]])
        without_launcher = self.pool()
        said = without_launcher.call(groups_within, self.path("b"), [everyone, *halves])
        self.assertEqual(said, [[3.0, 0.0], [3.0, 3.0], [3.0, 3.0]])

    def test_a_part_of_the_ranks_without_a_launcher_is_refused(self) -> None:
        said = self.pool().call(groups_within, self.path("part"), [[0, 1]])
        for rank in (0, 1):
            self.assertIn("of ranks [0, 1], a part of the 3 of a default group", said[rank])
            self.assertIn('call dist.new_group(backend="covey") before, on every rank', said[rank])

    @on_one_host("between hosts COVEY_START_TIMEOUT has to be longer than COVEY_LEASE, of 10 s")
    def test_a_first_group_of_a_part_of_the_ranks_waits_for_all(self) -> None:
        pool = Pool(SIZE, __file__, {"COVEY_START_TIMEOUT": "1s"}, init=False)
        self.addCleanup(pool.close)
        said = pool.call(groups_within, self.path("part"), [[0, 1]])
        self.assertIn("the first process group over Covey is of ranks [0, 1]: call dist", said[0])

    def test_the_job_of_own_init_stays(self) -> None:
        pool = self.pool(forgets=False)
        for rank, said in enumerate(pool.call(after_own_init, self.path("own"))):
            self.assertIn(f"is rank {(rank + 1) % SIZE} of {SIZE} for torch.distributed", said)
            self.assertIn(f"rank {rank} of {SIZE} for Covey", said)


if __name__ == "__main__":
    unittest.main()
