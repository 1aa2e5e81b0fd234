"""How calls of torch.distributed end for code that waits for their futures. Internal.

torch runs the callbacks of a future (``then``) on the thread that ends it, and its own
communication hooks make further calls and wait for them there. A *lane* is the calls that one place
of the program makes one after another: the program itself, or one callback. Three rules:

1. A thread that runs callbacks is not waited for: another one ends the calls that come next. At
   most one thread waits for the calls of a lane, in their order, and before it ends a future it
   leaves the lane to another.
2. Callbacks of a lane's calls run one at a time and begin in the order of the calls, as hooks are
   written for; while one waits for a call or a future of its own, others run.
3. Calls made in a callback are not part of the ordered stream of unnamed operations, since ranks
   run callbacks at different times: each has a name, made of the call whose future had the
   callback, of the callback's place among that future's callbacks, and of its own place in the
   callback. Such calls find each other on all ranks in whatever order callbacks run.

Names are used again, as a name that is new costs more than one that is known: the program's calls
of a process group take SLOTS numbers in turn, and the callbacks of a call begin once all that come
of earlier calls with its number have returned.
"""

from __future__ import annotations

import atexit
import contextlib
import threading
import weakref
from collections import Counter, deque
from typing import Any, Callable, Deque, Dict, Iterator, List, NamedTuple, Optional

import torch

from covey.torch.c10d.tracing import untraced

SLOTS = 16
_MOST_IDLE = 2
LEAVE_S = 5.0
"""So long a process that ends waits for a thread."""
_here = threading.local()


class Turns:
    """The order of callbacks: by the number of the call that they belong to."""

    def __init__(self, one_at_a_time: bool) -> None:
        self._one_at_a_time = one_at_a_time
        self._news = threading.Condition()
        self._left: Counter[int] = Counter()  # Callbacks that have not returned, by call.
        self._is_running = False

    def expect(self, call: int) -> None:
        """A callback will run for ``call``."""
        with self._news:
            self._left[call] += 1

    def begin(self, call: int) -> None:
        """Waits until those of earlier calls have returned, and until no other one runs."""
        with self._news:
            self._news.wait_for(lambda: not self._is_running and min(self._left) >= call)
            self._is_running = self._one_at_a_time

    def end(self, call: int) -> None:
        """It has returned."""
        with self._news:
            self._left[call] -= 1
            if self._left[call] == 0:
                del self._left[call]
            self._is_running = False
            self._news.notify_all()

    def resume(self, call: int) -> None:
        """It goes on after an ``end`` that was none: it has waited for something."""
        with self._news:
            self._news.wait_for(lambda: not self._is_running)
            self._left[call] += 1
            self._is_running = True


class Call(NamedTuple):
    """Where a call stands.

    Attributes:
        name: what the names of calls in its callbacks begin with.
        number: among the calls of its lane.
        turns: of its lane.
        slot: turns among callbacks of the program's calls that take one number: they begin once all
            that come of earlier ones have returned.
        origin: the number of that one.
        program: that has made it.
    """

    name: str
    number: int
    turns: Turns
    slot: Turns
    origin: int
    program: Program


class Program:
    """The calls of a process group that the program itself makes.

    Attributes:
        has_failed: a future has ended with an error, so ranks may not make the same calls any more.
    """

    def __init__(self, group: str) -> None:
        self.has_failed = False
        self._names = [f"c10d.{group}.{number}" for number in range(SLOTS)]
        self._slots = [Turns(False) for _ in range(SLOTS)]
        self._turns = Turns(True)
        self._made = 0

    def next_call(self) -> Call:
        slot, made = self._made % SLOTS, self._made
        return Call(self._names[slot], made, self._turns, self._slots[slot], made, self)

    def made(self) -> None:
        self._made += 1


class Lane:
    """The calls that one callback makes, one after another."""

    def __init__(self, name: str, call: Call) -> None:
        """A callback of ``call``. It has to be entered, once."""
        self.name = name
        self._call = call
        self._turns = Turns(True)
        self._made = 0
        call.slot.expect(call.origin)
        call.turns.expect(call.number)

    def next_call(self) -> Call:
        name, turns = f"{self.name}.{self._made}", self._turns
        return self._call._replace(name=name, number=self._made, turns=turns)

    def made(self) -> None:
        self._made += 1

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """Calls of this thread meanwhile belong to the lane."""
        outer = current_lane()
        self._call.slot.begin(self._call.origin)
        self._call.turns.begin(self._call.number)
        _here.lane = self
        try:
            yield
        finally:
            _here.lane = outer
            self._call.turns.end(self._call.number)
            self._call.slot.end(self._call.origin)

    @contextlib.contextmanager
    def suspended(self) -> Iterator[None]:
        """Other callbacks may run meanwhile."""
        self._call.turns.end(self._call.number)
        try:
            yield
        finally:
            self._call.turns.resume(self._call.number)


def current_lane() -> Optional[Lane]:
    """None: this is no callback."""
    return getattr(_here, "lane", None)


def waiting() -> Any:
    """A context in which this thread waits for something that others do."""
    lane = current_lane()
    return contextlib.nullcontext() if lane is None else lane.suspended()


class _Failure:
    """The value of a failed future for readers where no Python runs, such as DDP:
    they look for tensors by pickling it, and die when there are none and nothing is raised."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def __repr__(self) -> str:
        return f"a failure ({self._error})"

    def __reduce__(self) -> Any:
        raise self._error


@untraced
class CoveyFuture(torch.futures.Future):
    """A future whose callbacks are lanes."""

    _error: Optional[Exception] = None
    _callbacks = 0

    def __init__(self, call: Call, devices: Optional[List[torch.device]] = None) -> None:
        """``devices``: of CUDA, those of tensors in its value. Where it is waited for, and in its
        callbacks, the streams in use come after those on which it was ended."""
        super().__init__(devices=devices)
        self._call = call
        self._devices = devices

    def _lane(self) -> Lane:
        self._callbacks += 1
        return Lane(f"{self._call.name}/{self._callbacks - 1}", self._call)

    def set_exception(self, result: Any) -> None:
        def fail(_: Any) -> None:
            raise result

        self._error = result
        self._call.program.has_failed = True
        self._set_unwrap_func(fail)
        self.set_result(_Failure(result))

    def wait(self) -> Any:
        with contextlib.nullcontext() if self.done() else waiting():
            return self._read(super().wait)

    def value(self) -> Any:
        return self._read(super().value)

    def _read(self, read: Callable[[], Any]) -> Any:
        """On CUDA torch makes a RuntimeError of its own of every error, since the value tells it of
        no tensors."""
        try:
            return read()
        except RuntimeError as error:
            raise (self._error or error) from None

    def then(self, callback: Callable[[Any], Any]) -> "CoveyFuture":
        lane = self._lane()
        after = CoveyFuture(self._call._replace(name=lane.name), self._devices)

        def run(_: Any) -> None:
            try:
                with lane.entered():
                    result = callback(self)
            except Exception as error:  # pylint: disable=broad-except  # It is the future's.
                after.set_exception(error)
            else:
                after.set_result(result)

        super().add_done_callback(run)
        return after

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        lane = self._lane()

        def run(_: Any) -> None:
            with lane.entered():
                callback(self)

        super().add_done_callback(run)


class Queue:
    """Calls of one lane whose futures have not ended."""

    def __init__(self) -> None:
        self.due: Deque[Any] = deque()
        self.is_waited_for = False  # Or will be: it is among the ready ones.


def at_exit(method: Callable[[], None]) -> None:
    """``method`` is called when the process ends, if its object lives then: it sees to it that no
    thread is inside of torch. One that is stopped there aborts the process."""
    atexit.register(_call, weakref.WeakMethod(method))


def _call(known: "weakref.WeakMethod[Callable[[], None]]") -> None:
    method = known()
    if method is not None:
        method()


class Completions:
    """The threads that end futures: torch waits for them where no Python runs.

    There are as many as wait for calls or run callbacks at one time, and a few idle ones.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._queues: Dict[Any, Queue] = {}  # Only those with calls.
        self._ready: Deque[Queue] = deque()  # A thread is on its way for each.
        self._turn = threading.Semaphore(0)  # Idle threads wait for it.
        self._idle = 0
        self._threads: List[threading.Thread] = []
        self._is_closed = False
        self._ending = 0  # So many threads end a future just now, or free what its call has held.
        self._has_left = False  # The process ends: no more futures do.
        self._quiet = threading.Condition(self._lock)
        at_exit(self.leave)

    def add(self, lane: Any, work: Any) -> None:
        """``work.await_end()`` then ``work.end_future()`` will be called, on one thread. ``lane``:
        what orders the call: a Lane, None for the program's, or another stream."""
        with self._lock:
            queue = self._queues.setdefault(lane, Queue())
            queue.due.append((lane, work))
            self._provide(queue)

    def close(self) -> None:
        """Waits for all that was added, and for what its callbacks have added."""
        with self._lock:
            self._is_closed = True
            self._turn.release(self._idle or 1)
            self._idle = 0
        for thread in iter(self._other_thread, None):
            thread.join()

    def leave(self) -> None:
        """The process ends: begins to end no more futures, and waits LEAVE_S at most for those
        that end just now."""
        with self._lock:
            self._has_left = True
            self._quiet.wait_for(lambda: self._ending == 0, LEAVE_S)

    def _other_thread(self) -> Optional[threading.Thread]:
        """One that has not ended."""
        with self._lock:
            living = (thread for thread in self._threads if thread.is_alive())
            return next((one for one in living if one is not threading.current_thread()), None)

    def _provide(self, queue: Queue) -> None:
        """A thread for a lane that has none. The lock is held."""
        if queue.is_waited_for:
            return
        queue.is_waited_for = True
        self._ready.append(queue)
        if self._idle:
            self._idle -= 1
            self._turn.release()
            return
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        self._threads.append(threading.Thread(target=self._run, name="covey-c10d", daemon=True))
        self._threads[-1].start()

    def _run(self) -> None:
        while self._end_one() or self._rest():
            pass

    def _end_one(self) -> bool:
        """False: no lane is in want of a thread."""
        with self._lock:
            if not self._ready or self._has_left:
                return False
            queue = self._ready.popleft()
            lane, work = queue.due[0]
        work.await_end()
        with self._lock:
            if self._has_left:
                return False
            self._ending += 1
            queue.due.popleft()
            queue.is_waited_for = False
            if queue.due:
                self._provide(queue)
            else:
                del self._queues[lane]
        try:
            work.end_future()
        finally:
            del lane, work  # torch lets other threads run as it frees a tensor.
            with self._lock:
                self._ending -= 1
                self._quiet.notify_all()
        return True

    def _rest(self) -> bool:
        """Waits for calls. False: there will be none, or enough threads wait for them."""
        with self._lock:
            if self._ready and not self._has_left:
                return True
            if self._has_left or self._is_closed or self._idle >= _MOST_IDLE:
                return False
            self._idle += 1
        self._turn.acquire()
        return True
