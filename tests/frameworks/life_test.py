"""Init, shutdown, fork, signals, and what the others see when a rank ends.

On numpy arrays: a rank that needs no torch starts ten times faster.
"""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import time
import unittest
from typing import Any, List, Optional

import numpy
from ranks import RANKS_MAY_DIE, SEED, Pool, on_one_host

import covey


def setUpModule() -> None:
    print(f"seed {SEED}")


def ones() -> Any:
    return numpy.full(3, 2.0 ** covey.rank())


# ---- Run on ranks -------------------------------------------------------------------------------


def init_again() -> str:
    covey.init()
    covey.init(comm=None)
    try:
        covey.init(settings={"start_timeout": "17s"})
    except ValueError as error:
        assert covey.allreduce(ones(), op=covey.Sum, name="still works")[0] == 2 ** covey.size() - 1
        return str(error)
    return ""


def before_init() -> None:
    assert not covey.is_initialized()
    place = (covey.rank, covey.size, covey.local_rank, covey.local_size, covey.cross_rank)
    for call in (*place, covey.stats):
        try:
            call()
            raise AssertionError(f"{call} worked before init")
        except ValueError as error:
            assert isinstance(error, covey.NotInitialized)
    for operation in (
        lambda: covey.allreduce(numpy.ones(2)),
        lambda: covey.broadcast(numpy.ones(2), 0),
        lambda: covey.allgather(numpy.ones(2)),
        lambda: covey.barrier(),
        lambda: covey.arena_empty(3, numpy.float32),
        lambda: covey.group([0]),
        lambda: covey.broadcast_object(1),
    ):
        try:
            operation()
            raise AssertionError("worked before init")
        except ValueError as error:
            assert "init" in str(error), error
    covey.init()
    assert covey.is_initialized() and covey.is_homogeneous()
    assert covey.local_rank() == covey.rank() and covey.local_size() == covey.size()
    assert (covey.cross_rank(), covey.cross_size()) == (0, 1)


def await_thread(name: str) -> None:
    """It names itself once it runs."""
    here = "/proc/self/task"
    while name not in (name_of(f"{here}/{thread}") for thread in os.listdir(here)):
        os.sched_yield()


def name_of(thread: str) -> str:
    try:
        with open(f"{thread}/comm", encoding="ascii") as file:
            return file.read().strip()
    except OSError:  # It has ended.
        return ""


def come_or_not() -> Any:
    """Rank 0 waits as long as it takes, rank 1 is impatient, rank 2 does not come."""
    rank = int(os.environ["TEST_RANK"])
    if rank == 2:
        return None
    try:
        covey.init(settings={"start_timeout": ("3600s", "1ms")[rank]})
    except covey.CoveyError as error:
        return type(error).__name__, error.peer_rank, str(error)
    return "joined"


def shut_down_beside(count: int) -> List[str]:
    """What threads are told that wait for what nobody else joins, when another shuts down."""
    said: List[str] = []
    began = threading.Barrier(count + 1)

    def wait(number: int) -> None:
        handle = covey.allreduce_async(ones(), name=f"{covey.rank()}.{number}")
        began.wait()
        try:
            handle.wait()
        except Exception as error:  # pylint: disable=broad-except  # The test looks at all.
            said.append(type(error).__name__)

    threads = [threading.Thread(target=wait, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    began.wait()
    covey.shutdown()
    for thread in threads:
        thread.join()
    return said


def live_twice() -> None:
    """shutdown and init on every rank; what was made before behaves."""
    group = covey.Group([0, 1])
    assert covey.allreduce(ones(), op=covey.Sum, name="a", group=group)[0] == 3
    flat = covey.arena_empty(1000, numpy.float32)
    gathered = covey.allgather(numpy.full(400_000, 2.0 ** covey.rank()), name="g")
    handle = covey.allreduce_async(ones(), op=covey.Sum, name="b")
    handle.wait()
    covey.barrier()
    covey.shutdown()
    covey.shutdown()
    assert not covey.is_initialized()
    for operation in (lambda: covey.allreduce(ones()), covey.rank):
        try:
            operation()
            raise AssertionError("worked after shutdown")
        except ValueError as error:
            assert isinstance(error, covey.NotInitialized)
    flat += 1
    assert flat.sum() == 1000 and gathered.sum() == 400_000 * 3
    covey.init(settings={"stall_warning": "7s"})
    assert {knob["name"]: knob["value"] for knob in covey.knobs()}["stall_warning"] == "7s"
    assert covey.allreduce(ones(), op=covey.Sum, name="a", group=group)[0] == 3
    flat.fill(covey.rank() + 1)
    assert covey.allreduce_(flat, op=covey.Sum, name="a")[0] == 3
    try:
        handle.wait()
        raise AssertionError("a handle of the first life can be waited for")
    except covey.Aborted:
        assert handle.poll()
    del handle, flat
    assert covey.allreduce(ones(), op=covey.Sum, name="b")[0] == 3


def fork_after_init() -> Optional[str]:
    """In a child of fork rank() answers, communication says what is wrong, the parent goes on."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        text = f"{covey.rank()} of {covey.size()}: "
        for call in (lambda: covey.allreduce(numpy.ones(2)), covey.init, lambda: covey.barrier()):
            try:
                call()
                text += "worked; "
            except covey.CoveyError as error:
                text += f"{type(error).__name__}: {error}; "
        os.write(writer, text.encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as file:
        text = file.read()
    assert os.waitpid(child, 0)[1] == 0
    assert covey.allreduce(ones(), op=covey.Sum, name="parent")[0] == 2 ** covey.size() - 1
    return text


def fork_keeps_the_parents_tensors(elements: int) -> None:
    """A child's writes, and what it frees and allocates anew, stay its own."""
    tensor = covey.arena_empty(elements, numpy.dtype("float32"))
    tensor[:] = 5
    child = os.fork()
    if child == 0:
        tensor[:] = -1
        grandchild = os.fork()
        if grandchild == 0:
            os._exit(0 if tensor[0] == tensor[-1] == -1 else 4)
        status = os.waitpid(grandchild, 0)[1]
        del tensor
        gc.collect()
        os._exit(os.waitstatus_to_exitcode(status))
    assert os.waitpid(child, 0)[1] == 0
    assert bool((tensor == 5).all())
    covey.allreduce_(tensor, op=covey.Sum, name=f"parents.{elements}")
    assert bool((tensor == 5 * covey.size()).all())


def leave(rank: int, how: str) -> Any:
    """The given rank leaves while the others wait for it; what they see."""
    if covey.rank() == rank:
        time.sleep(0.2)
        if how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        elif how == "shutdown":
            covey.shutdown()
            return None
        sys.exit(0) if how == "exit" else os._exit(3)
    errors: List[Any] = []
    for name in ("waiting", "after"):
        try:
            covey.allreduce(ones(), op=covey.Sum, name=name)
            errors.append("no error")
        except covey.OperationError as error:
            errors.append((type(error).__name__, error.peer_rank, str(error)))
    return errors


def wait_with_timeout() -> str:
    if covey.rank() == 1:
        covey.broadcast_object(None, 0, name="go")
        assert covey.allreduce(ones(), op=covey.Sum, name="slow")[0] == 3
        return ""
    handle = covey.allreduce_async(ones(), op=covey.Sum, name="slow")
    begun = time.monotonic()
    try:
        handle.wait(timeout=0.1)
        raise AssertionError("no timeout")
    except TimeoutError as error:
        assert isinstance(error, covey.Timeout)
        assert time.monotonic() - begun > 0.09
    assert not handle.poll()
    status = covey.status()
    covey.broadcast_object(None, 0, name="go")
    assert handle.wait()[0] == 3 and handle.poll()
    return status


def interrupt_and_report() -> str:
    """Rank 0 waits: SIGUSR1 prints where, Ctrl-C then ends the wait but not the operation."""
    if covey.rank() == 1:
        covey.broadcast_object(None, 0, name="go")
        assert covey.allreduce(ones(), op=covey.Sum, name="interrupted")[0] == 3
        return ""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    me = os.getpid()
    threading.Timer(0.2, os.kill, (me, signal.SIGUSR1)).start()
    threading.Timer(0.4, os.kill, (me, signal.SIGINT)).start()
    handle = covey.allreduce_async(ones(), op=covey.Sum, name="interrupted")
    try:
        handle.wait()
        raise AssertionError("not interrupted")
    except KeyboardInterrupt:
        assert not handle.poll()
    covey.broadcast_object(None, 0, name="go")
    assert handle.wait()[0] == 3
    return "interrupted"


def be_late_until_asked() -> None:
    """Rank 1 is late; it sees in its own stderr that others wait, and gives them time to ask."""
    if covey.rank() == 1:
        deadline = time.monotonic() + 20
        while b"'allreduce.late'" not in os.pread(2, 1 << 16, 0) and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(0.5)
    assert covey.allreduce(ones(), op=covey.Sum, name="late")[0] == 3


def wait_in_threads() -> None:
    """Several threads wait at once, while the main thread computes."""
    results: List[Any] = [None] * 8

    def work(index: int) -> None:
        results[index] = [
            float(covey.allreduce(ones() * (i + 1), op=covey.Sum, name=f"thread.{index}")[0])
            for i in range(50)
        ]

    threads = [threading.Thread(target=work, args=(index,)) for index in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    whole = 2.0 ** covey.size() - 1
    assert results == [[whole * (i + 1) for i in range(50)]] * 8


class LifeTest(unittest.TestCase):
    def test_init_again(self) -> None:
        with Pool(2, __file__) as pool:
            for text in pool.call(init_again):
                self.assertIn("start_timeout", text)

    @on_one_host("between hosts local_rank() is not rank()")
    def test_before_init(self) -> None:
        with Pool(2, __file__, init=False) as pool:
            pool.call(before_init)

    @on_one_host("between hosts each rank waits by its own start_timeout")
    def test_init_names_who_does_not_come(self) -> None:
        with Pool(3, __file__, init=False) as pool:
            patient, impatient, _ = pool.call(come_or_not)
            self.assertEqual(patient[:2], ("Aborted", 1), patient)
            self.assertIn("rank 1 gave up", patient[2])
            self.assertEqual(impatient[0], "Timeout", impatient)
            self.assertRegex(impatient[2], r"ranks? (0, )?2 did not call init within 0.001 s")

    def test_its_thread_has_a_name(self) -> None:
        with Pool(2, __file__) as pool:
            pool.call(await_thread, "covey-engine")

    def test_shutdown_and_init(self) -> None:
        with Pool(2, __file__) as pool:
            pool.call(live_twice)

    def test_fork_keeps_the_parents_tensors(self) -> None:
        with Pool(2, __file__) as pool:
            for elements in (1000, 20 << 20):
                pool.call(fork_keeps_the_parents_tensors, elements)

    def test_threads_that_wait_when_another_shuts_down_are_told_so(self) -> None:
        for _ in range(3):
            with Pool(2, __file__) as pool:
                for said in pool.call(shut_down_beside, 10):
                    self.assertEqual(said, ["Aborted"] * 10)

    def test_fork_after_init(self) -> None:
        with Pool(2, __file__) as pool:
            for rank, text in enumerate(pool.call(fork_after_init)):
                self.assertTrue(text.startswith(f"{rank} of 2: Forked: "), text)
                self.assertNotIn("worked", text)

    def test_a_rank_that_leaves_is_named(self) -> None:
        # MPI_Finalize waits for all ranks, and a rank that is killed ends an MPI job.
        ends = ("exit", "_exit", "kill") if RANKS_MAY_DIE else ()
        for how in ("shutdown", *ends):
            with self.subTest(how=how), Pool(3, __file__) as pool:
                pool.send(leave, 1, how)
                seen = pool.collect(may_end=True, timeout=30)
                self.assertIsNone(seen[1])
                for errors in (seen[0], seen[2]):
                    for kind, peer, text in errors:
                        self.assertEqual((kind, peer), ("Aborted", 1), text)
                        self.assertIn("rank 1", text)

    def test_wait_with_timeout(self) -> None:
        with Pool(2, __file__) as pool:
            status = pool.call(wait_with_timeout)[0]
            self.assertIn("slow", status)
            self.assertIn("1", status)

    def test_signals_while_waiting(self) -> None:
        with Pool(2, __file__) as pool:
            self.assertEqual(pool.call(interrupt_and_report), ["interrupted", ""])
            text = pool.stderr(0)
            self.assertIn("covey: rank 0 of 2 (process", text)
            self.assertIn("life_test.py:", text)
            self.assertIn("in interrupt_and_report", text)
            self.assertIn("interrupted", text)

    def test_a_late_rank_tells_its_line(self) -> None:
        with Pool(2, __file__, env={"COVEY_STALL_WARNING": "200ms"}) as pool:
            pool.call(be_late_until_asked)
            self.assertRegex(
                pool.stderr(0), r"rank 1: .*now at .*life_test\.py:\d+ in be_late_until_asked"
            )

    def test_threads(self) -> None:
        with Pool(2, __file__) as pool:
            pool.call(wait_in_threads)

    def test_a_rank_ends_with_its_launcher(self) -> None:
        with subprocess.Popen(["sleep", "60"]) as launcher, Pool(
            2, __file__, env={"COVEY_LAUNCHER_PID": str(launcher.pid)}
        ) as pool:
            pool.call(ones)
            launcher.kill()
            launcher.wait()
            for rank, process in enumerate(pool.processes):
                self.assertNotEqual(process.wait(timeout=10), 0)
                self.assertIn(f"rank {rank}: the launcher", pool.stderr(rank))


if __name__ == "__main__":
    unittest.main()
