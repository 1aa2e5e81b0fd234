"""Messages between two ranks over torch.distributed with Covey as backend.

Method: three ranks. Ranks that come late do so when the test has seen what the others do.
"""

from __future__ import annotations

import os
import signal
import threading
import unittest
from datetime import timedelta
from typing import Any, List, cast

import torch
import torch.distributed as dist
from ranks import Pool, SharedPool, ranks_may_die, refusal_of

SIZE = 3
pools = SharedPool(__file__)
works: List[Any] = []
received: List[torch.Tensor] = []


def tearDownModule() -> None:
    pools.close()


def begin() -> None:
    import covey.torch  # noqa: F401  registers the backend

    dist.init_process_group("covey")


def threads() -> List[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("covey-c10d")]


def end() -> None:
    works.clear()
    received.clear()
    dist.destroy_process_group()
    assert not threads(), threads()


def ring() -> None:
    """Each to the next, all at once, of many kinds; then a message of each tag in another order."""
    rank = dist.get_rank()
    after, before = (rank + 1) % SIZE, (rank - 1) % SIZE
    small = torch.float8_e4m3fn  # Covey's own operations do not know it.
    for dtype in (torch.float32, torch.float16, torch.int64, torch.bool, torch.complex64, small):
        mine = torch.full((3, 2), rank + 1).to(dtype)
        into = torch.zeros(2, 3, dtype=dtype).t()
        ops = [
            dist.P2POp(dist.irecv, into, before),
            dist.P2POp(dist.isend, mine, after),
        ]
        for work in dist.batch_isend_irecv(ops):
            work.wait()
        wide = torch.complex64 if dtype.is_complex else torch.float32
        sent = torch.full((3, 2), before + 1).to(dtype)
        assert torch.equal(into.to(wide), sent.to(wide)), (dtype, into)
    sends = [
        dist.isend(torch.tensor([10.0 * tag + i]), after, tag=tag)
        for tag in (0, 5, 9)
        for i in range(2)
    ]
    for tag in (9, 0, 5):
        for i in range(2):
            one = torch.zeros(1)
            assert dist.recv(one, before, tag=tag) == before
            assert one.item() == 10.0 * tag + i, (tag, i, one)
    for work in sends:
        work.wait()
    future = None
    if rank == 0:
        dist.isend(torch.ones(2), 1).wait()
    elif rank == 1:
        future = dist.irecv(torch.zeros(2), 0).get_future()
        assert future.wait()[0].tolist() == [1.0, 1.0]


def from_any() -> None:
    """Rank 0 takes what comes; the others have more than one message under way."""
    rank = dist.get_rank()
    if rank == 0:
        counts = {1: 0, 2: 0}
        one = torch.zeros(2)

        def take(source: int) -> None:
            assert one.tolist() == [float(source), float(counts[source])], one
            counts[source] += 1

        for _ in range(3):
            take(dist.recv(one))
        while counts[2] < 3:
            take(dist.recv(one, 2))
        while counts[1] < 3:
            take(dist.recv(one))
        assert dist.recv(one, tag=3) in (1, 2)
        dist.send(one, 1)
        dist.send(one, 2)
        dist.recv(one, tag=3)
        return
    sends = [dist.isend(torch.tensor([float(rank), float(i)]), 0) for i in range(3)]
    sends.append(dist.isend(torch.ones(2), 0, tag=3))
    dist.recv(torch.zeros(2))  # Its own sends may wait meanwhile.
    for work in sends:
        work.wait()


def in_order() -> None:
    """Receives from any rank that are waited for in another order, or come before others."""
    rank = dist.get_rank()
    if rank == 1:
        sends = [dist.isend(torch.tensor([float(i)]), 0) for i in range(6)]
        for work in sends:
            work.wait()
    elif rank == 0:
        first, second, third, fourth, fifth, sixth = (torch.zeros(1) for _ in range(6))
        begun = [dist.irecv(first), dist.irecv(second)]
        assert dist.recv(third) == 1
        fourth_work, fifth_work = dist.irecv(fourth), dist.irecv(fifth, 1)
        assert dist.recv(sixth, 1) == 1
        for work in (fifth_work, fourth_work, *reversed(begun)):
            work.wait()
            assert work._source_rank() == 1
        come = [first, second, third, fourth, fifth, sixth]
        assert [one.item() for one in come] == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0], come


def while_others_wait() -> None:
    """A send ends though the receiver from any rank waits for something else."""
    rank, one = dist.get_rank(), torch.zeros(1)
    work = dist.irecv(one) if rank == 0 else None
    if rank == 1:
        dist.send(torch.ones(1), 0)
    dist.barrier()
    if work is not None:
        work.wait()
        assert one.item() == 1.0


def after_a_timeout() -> None:
    """A receive from any rank that is given up takes no message; it may be waited for again."""
    group, rank = dist.new_group(range(SIZE)), dist.get_rank()
    vain, one = torch.zeros(1), torch.zeros(1)
    if rank == 0:
        group.set_timeout(timedelta(seconds=0.2))
        again = dist.irecv(torch.zeros(1), group=group)
        for call in (again.wait, lambda: dist.recv(vain, group=group)):
            assert "none of ranks 0, 1, 2 has sent" in refusal_of(call)
        group.set_timeout(timedelta(minutes=5))
    dist.barrier()
    if rank == 1:
        sends = [dist.isend(torch.full((1,), value), 0, group=group) for value in (1.0, 2.0)]
        for work in sends:
            work.wait()
    elif rank == 0:
        assert dist.recv(one, group=group) == 1
        assert (one.item(), vain.item()) == (1.0, 0.0)
        while not again.is_success():
            refusal_of(again.wait)
        assert again.result()[0].item() == 2.0


def send_later() -> None:
    """Rank 1 has begun to receive from rank 0 and from any rank."""
    if dist.get_rank() == 1:
        received.extend([torch.zeros(1), torch.zeros(1)])
        works.append(dist.irecv(received[0], 0))
        works.append(dist.irecv(received[1]))
        assert not works[0].is_completed() and not works[1].is_completed()


def send_now() -> Any:
    rank = dist.get_rank()
    if rank == 1:
        for work in works:
            work.wait()
        return [one.item() for one in received], works[1]._source_rank()
    dist.send(torch.tensor([rank + 5.0]), 1)
    return None


def receive_while_one_dies(lost: int) -> Any:
    """Rank `lost` dies, rank 0 receives from any rank, the third sends. On rank 0: the value or the
    error."""
    if dist.get_rank() == lost:
        os.kill(os.getpid(), signal.SIGKILL)
    if dist.get_rank() == 0:
        come = torch.zeros(1)
        said = refusal_of(lambda: dist.recv(come))
        return come.item() if said == "nothing" else said
    dist.send(torch.full((1,), 7.0), 0)
    return None


def end_as_of_old() -> None:
    """As torch before 2.7 ends the backends of groups."""
    from covey.torch.c10d.backend import _with_shutdown

    rank = dist.get_rank()
    sent = dist.isend(torch.ones(1), (rank + 1) % SIZE)
    dist.recv(torch.zeros(1), (rank - 1) % SIZE)
    sent.wait()
    assert threads()
    others: List[Any] = []
    shut_down = _with_shutdown(others.append)
    shut_down(dist.group.WORLD)
    shut_down("NCCL's")
    assert not threads() and others == ["NCCL's"], (threads(), others)


def refusals() -> List[str]:
    """The refusals of wrong messages; the next message arrives."""
    rank, said = dist.get_rank(), []
    three = torch.zeros(3)
    hasty = dist.new_group(range(SIZE), timeout=timedelta(seconds=0.5))
    if rank == 0:
        said.append(refusal_of(lambda: dist.isend(three, 0)))
        said.append(refusal_of(lambda: dist.group.WORLD.send([three], 7, 0)))
        said.append(refusal_of(lambda: dist.send(three, 1)))
        dist.send(torch.full((3,), 4.0), 1)
        said.append(refusal_of(lambda: dist.recv(three, 2, group=hasty)))
        said.append(refusal_of(lambda: dist.recv(three, group=hasty)))
    elif rank == 1:
        said.append(refusal_of(lambda: dist.recv(torch.zeros(2), 0)))
        dist.recv(three, 0)
        said.append(str(three.tolist()))
    return said


def objects() -> None:
    if dist.get_rank() == 0:
        dist.send_object_list([{"a": 1}, "b"], dst=2)
    elif dist.get_rank() == 2:
        listed: List[Any] = [None, None]
        dist.recv_object_list(listed, src=0)
        assert listed == [{"a": 1}, "b"]


class PointsTest(unittest.TestCase):
    def test_messages_of_many_kinds_and_tags(self) -> None:
        pool = pools(SIZE)
        pool.call(begin)
        pool.call(ring)
        pool.call(objects)
        pool.call(end)

    def test_from_any_rank(self) -> None:
        pool = pools(SIZE)
        pool.call(begin)
        pool.call(from_any)
        pool.call(in_order)
        pool.call(while_others_wait)
        pool.call(after_a_timeout)
        pool.call(send_later)
        said, source = pool.call(send_now)[1]
        self.assertEqual((said, source), ([5.0, 7.0], 2))
        pool.call(end)

    @ranks_may_die
    def test_from_any_rank_that_is_left(self) -> None:
        pool = Pool(SIZE, __file__, init=False)
        self.addCleanup(pool.close)
        pool.call(begin)
        in_vain = "no rank is left that could send; lost ranks: [1, 2]"
        for lost, expected in ((1, "7.0"), (2, in_vain)):
            pool.send(receive_while_one_dies, lost)
            self.assertIn(expected, str(pool.collect(may_end=True)[0]))

    def test_torch_before_2_7_ends_the_threads_of_a_group_too(self) -> None:
        pool = pools(SIZE)
        pool.call(begin)
        pool.call(end_as_of_old)
        pool.call(end)

    def test_a_wrong_message_says_why_and_the_next_arrives(self) -> None:
        pool = pools(SIZE)
        pool.call(begin)
        sent, come, _ = pool.call(refusals)
        self.assertIn("rank 0 of process group '0' sends nothing to rank 0", sent[0])
        self.assertIn("sends nothing to rank 7: the others of its 3 ranks", sent[1])
        self.assertTrue(sent[2].startswith("Mismatch"), sent[2])
        self.assertIn("of ranks 0, 2 has not ended within its timeout of 0.5 s", sent[3])
        self.assertIn("it waits for rank 2", sent[3])
        self.assertIn("none of ranks 0, 1, 2 has sent within its timeout of 0.5 s", sent[4])
        self.assertTrue(come[0].startswith("Mismatch"), come[0])
        self.assertEqual(come[1], "[4.0, 4.0, 4.0]")
        pool.close()  # Rank 2 has not sent its message.

    def test_the_end_of_a_group_may_come_while_the_last_send_is_looked_at(self) -> None:
        import covey.torch  # noqa: F401
        from covey.torch.c10d.points import Announcer

        announcer = Announcer()
        looked, closed, ends = threading.Event(), threading.Event(), threading.Event()

        class Send:
            """Ends when the group does."""

            def has_ended(self) -> bool:
                looked.set()
                ends.wait()
                return True

        class Joined:
            """The announcer's thread, of which close() awaits the end last."""

            def __init__(self, thread: Any) -> None:
                self.thread = thread

            def join(self, timeout: float) -> None:
                closed.set()
                self.thread.join()

        announcer.add(cast(Any, Send()), lambda: True)
        looked.wait()
        announcer._thread = cast(Any, Joined(announcer._thread))
        closing = threading.Thread(target=announcer.close, daemon=True)
        closing.start()
        closed.wait()
        ends.set()
        closing.join(60)
        self.assertFalse(closing.is_alive())


if __name__ == "__main__":
    unittest.main()
