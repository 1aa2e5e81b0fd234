"""A call of torch.distributed in flight, and how long it may take. Internal."""

from __future__ import annotations

import contextlib
import threading
import time
from datetime import timedelta
from typing import Any, Callable, ContextManager, Dict, List, NamedTuple, Optional, Sequence

import torch
import torch.distributed as dist

from covey.errors import CoveyError, InvalidArgument, Timeout
from covey.handles import awaited
from covey.torch.c10d.call_stream import CallStream
from covey.torch.c10d.completions import Call, Completions, CoveyFuture, waiting
from covey.torch.c10d.tracing import untraced

_ASK_S = 2.0
"""So long the rank that knows the missing ranks may take to answer."""
_LOOK_S = 0.01
_NOWHERE = contextlib.nullcontext()
_making = threading.Lock()  # A future.


def is_of_inference(outputs: Sequence[torch.Tensor]) -> bool:
    """Whether one of the tensors was made in torch's inference mode: it is written in that mode."""
    for tensor in outputs:  # A loop, as it is made for each call.
        if tensor.is_inference():
            return True
    return False


def in_mode(is_of_inference: bool) -> ContextManager[Any]:
    """A context with this mode, whichever the thread has."""
    if torch.is_inference_mode_enabled() == is_of_inference:
        return _NOWHERE
    return torch.inference_mode(is_of_inference)


class Limit:
    """The timeout of one call, which begins now."""

    def __init__(self, what: str, ranks: Sequence[int], timeout: timedelta) -> None:
        self._what = what
        self._ranks = ranks
        self._timeout_s = timeout.total_seconds()
        self._until = time.monotonic() + self._timeout_s
        self.missing: List[int] = []
        """The ranks of the job that the last error has named."""

    def left(self) -> float:
        """Seconds; 0 when it has passed."""
        return max(0.0, self._until - time.monotonic())

    def passed(self, handle: Any, waited_s: Optional[float] = None) -> Timeout:
        """The error when the operation of ``handle`` had not ended by then, or within
        ``waited_s`` of a wait that was shorter."""
        missing = self.missing = _missing(handle)
        whom = f"it waits for {_listed(missing)}" if missing else "nobody says who is missing"
        return Timeout(
            f"{self._what} of {_listed(self._ranks)} has not ended within "
            f"{self._within(waited_s)}: {whom}; it stays in flight, and later calls of the group "
            "come after it",
            missing[0] if len(missing) == 1 else -1,
        )

    def unmet(self, waited_s: Optional[float]) -> Timeout:
        """The error when no rank had begun its part by then, or within ``waited_s``."""
        within, ranks = self._within(waited_s), _listed(self._ranks)
        return Timeout(f"{self._what}: none of {ranks} has sent within {within}")

    def _within(self, waited_s: Optional[float]) -> str:
        if waited_s is None:
            return f"its timeout of {self._timeout_s:g} s"
        return f"the {waited_s:g} s of this wait"


def _missing(handle: Any) -> List[int]:
    """Members that have not made the call. The first answer may be older than the question."""
    awaited(handle)
    until = time.monotonic() + _ASK_S
    while time.monotonic() < until and not handle.poll():
        missing = awaited(handle)
        if missing:
            return missing
        try:
            handle.wait(_LOOK_S)
        except CoveyError:
            pass
    return []


def _listed(ranks: Sequence[int]) -> str:
    numbers = ", ".join(map(str, ranks))
    return f"rank {numbers}" if len(ranks) == 1 else f"ranks {numbers}"


class Place(NamedTuple):
    """The place of a call: this rank of a group, and torch's options.

    Attributes:
        rank: in the group.
        ranks: of the job, by rank in the group.
        group: its name.
    """

    rank: int
    ranks: List[int]
    group: str
    opts: Any

    @property
    def size(self) -> int:
        return len(self.ranks)

    @property
    def op(self) -> Any:
        """Torch's."""
        return self.opts.reduceOp

    @property
    def waits(self) -> bool:
        """Whether the call waits for its end: torch says so of calls without ``async_op``."""
        return getattr(self.opts, "asyncOp", True) is False

    @property
    def root(self) -> int:
        """The rank of the job. Raises InvalidArgument (a ValueError): it is not in the group."""
        root = self.opts.rootRank
        if not 0 <= root < self.size:
            raise InvalidArgument(
                f"rank {root} is not in process group '{self.group}', which has {self.size} ranks"
            )
        return self.ranks[root]


@untraced
class CoveyWork(dist._Work):
    """One call in flight.

    The group's timeout is a limit of every wait for it, and its future fails then. The operation
    itself stays in flight, and calls that come later in the group after it: they end once those
    that are missing have come, and waiting again may succeed.

    A wait, or a look that finds it ended, brings the result to its tensors, and the stream of CUDA
    on which it is made gets it. A thread does so only for a call whose future is wanted: to wake
    one costs more than a small exchange.
    """

    def __init__(
        self,
        handle: Any,
        outputs: List[torch.Tensor],
        finish: Callable[[Any], None],
        call: Call,
        stream: Optional[CallStream],
        limit: Limit,
        lane: Any,
        calls: InFlight,
    ) -> None:
        """``call``: its place among others, for its future. ``stream``: None on the CPU. ``lane``:
        what orders it, as for Completions."""
        super().__init__()
        self._handle = handle
        self._outputs = outputs
        self._is_of_inference = torch.is_inference_mode_enabled() or is_of_inference(outputs)
        self._finish = finish
        self._lock = threading.Lock()
        self._finished = False
        self._error: Optional[Exception] = None
        self._call = call
        self._future: Optional[CoveyFuture] = None  # Few calls have one: it costs 2 us.
        self._stream = stream
        self._limit = limit
        self._lane = lane
        self._calls = calls

    def _end(self, timeout: Optional[float]) -> None:
        # A waiting thread and Completions may both come: the second waits for the first.
        left = self._limit.left()
        is_last = timeout is None or timeout >= left
        limit = left if timeout is None else min(timeout, left)
        try:
            if not self._lock.acquire(timeout=limit):
                raise Timeout(f"a call of torch.distributed has not ended within {timeout} s")
            try:
                self._bring(self._limit.left() if is_last else limit)
            finally:
                self._lock.release()
        except Timeout as error:
            raise self._limit.passed(self._handle, None if is_last else timeout) from error

    def _bring(self, limit: float) -> None:
        """The lock is held."""
        if not self._finished:
            with self._entered(), in_mode(self._is_of_inference):
                self._finish(self._handle.wait(limit))
            self._finished = True
            self._calls.forget(self)

    def bring_if_ended(self) -> bool:
        """Brings the result; an error stays for the next wait. False: the operation has not ended,
        or another thread brings it."""
        if not self._handle.poll() or not self._lock.acquire(blocking=False):
            return False
        try:
            self._bring(0.0)
        except Exception:  # pylint: disable=broad-except
            self._calls.forget(self)
        finally:
            self._lock.release()
        return True

    def await_end(self) -> None:
        """Called by Completions, before end_future."""
        try:
            self._end(None)
        except Exception as error:  # pylint: disable=broad-except
            self._error = error

    def end_future(self) -> None:
        assert self._future is not None
        if self._error is not None:
            self._future.set_exception(self._error)
            return
        with self._entered():
            self._future.set_result(self._outputs)

    def _entered(self) -> ContextManager[Any]:
        """The stream of CUDA that the call was made on."""
        return self._stream.entered() if self._stream else _NOWHERE

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        with waiting():
            self._end(timeout.total_seconds() or None)
        if self._stream is not None:
            self._stream.join()
        return True

    def is_completed(self) -> bool:
        """Also, as torch has it, when its timeout is over: then ``exception()`` says so."""
        if self._handle.poll():
            self.exception()  # Brings the result.
            return True
        return self._limit.left() == 0

    def is_success(self) -> bool:
        return self.is_completed() and not isinstance(self.exception(), Exception)

    def exception(self) -> Any:
        try:
            self._end(0.0)
        except Exception as error:  # pylint: disable=broad-except
            return error
        if self._stream is not None:
            self._stream.join()
        return None

    def missing(self) -> List[int]:
        """The ranks of the job that the last Timeout has named."""
        return self._limit.missing

    def has_ended(self) -> bool:
        return bool(self._handle.poll())

    def get_future(self) -> torch.futures.Future:
        with _making:
            future, is_new = self._future, self._future is None
            if future is None:
                devices = self._stream.devices if self._stream else None
                future = self._future = CoveyFuture(self._call, devices)
        if is_new:
            if self._finished:  # As with torch's backends, its value is there after a wait.
                self.end_future()
            else:
                self._calls.completions.add(self._lane, self)
        return future

    def result(self) -> List[torch.Tensor]:
        self.wait()
        return self._outputs


@untraced
class EndedWork(dist._Work):
    """A call whose operation has ended, without an error, before the call returns."""

    def __init__(
        self, outputs: List[torch.Tensor], call: Call, stream: Optional[CallStream]
    ) -> None:
        """As for CoveyWork."""
        super().__init__()
        self._outputs = outputs
        self._call = call
        self._stream = stream

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        return True

    is_completed = is_success = wait

    def exception(self) -> None:
        return None

    def get_future(self) -> torch.futures.Future:
        future = CoveyFuture(self._call, self._stream.devices if self._stream else None)
        future.set_result(self._outputs)
        return future

    def result(self) -> List[torch.Tensor]:
        return self._outputs


class InFlight:
    """The calls of a group that have not ended, and the threads for those with a future.

    A call that nobody waits for is kept until another one is added after its end.
    """

    def __init__(self) -> None:
        self._works: Dict[CoveyWork, None] = {}  # In their order.
        self._lock = threading.Lock()
        self.completions = Completions()

    def add(self, work: CoveyWork) -> None:
        """The first ones that have ended bring their results, in their order."""
        first = self._first()
        while first is not None and first.bring_if_ended():
            first = self._first()
        with self._lock:
            self._works[work] = None

    def forget(self, work: CoveyWork) -> None:
        with self._lock:
            self._works.pop(work, None)

    def _first(self) -> Optional[CoveyWork]:
        with self._lock:
            return next(iter(self._works), None)

    def close(self) -> None:
        """Waits for all that were added, until their timeouts, and for callbacks."""
        for work in iter(self._first, None):
            if not work.is_completed():
                work.await_end()
            self.forget(work)
        self.completions.close()

    def leave(self) -> None:
        self.completions.leave()
