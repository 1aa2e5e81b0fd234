"""A call of torch.distributed in flight, with Covey as backend. Internal."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any, Callable, Dict, List, Optional

import torch
import torch.distributed as dist

from covey.errors import Timeout
from covey.torch.call_limit import Limit
from covey.torch.completions import Completions, CoveyFuture, waiting


class CoveyWork(dist._Work):
    """One call in flight.

    The group's timeout is a limit of every wait for it, and its future fails then. The operation
    itself stays in flight, and calls that come later in the group after it: they end once those
    that are missing have come, and waiting again may succeed.

    A wait, or a look that finds it ended, brings the result to its tensors. A thread does so only
    for a call whose future is wanted: to wake one costs more than a small exchange.
    """

    def __init__(
        self,
        handle: Any,
        outputs: List[torch.Tensor],
        finish: Callable[[Any], None],
        future: CoveyFuture,
        limit: Limit,
        lane: Any,
        calls: InFlight,
    ) -> None:
        """``lane``: what orders it among other calls, as for Completions."""
        super().__init__()
        self._handle = handle
        self._outputs = outputs
        self._finish = finish
        self._lock = threading.Lock()
        self._finished = False
        self._error: Optional[Exception] = None
        self._future = future
        self._limit = limit
        self._lane = lane
        self._calls = calls
        self._is_completed = False  # By a thread, which ends its future.

    def _end(self, timeout: Optional[float]) -> None:
        # A waiting thread and Completions may both come: the second waits for the first.
        left = self._limit.left()
        is_last = timeout is None or timeout >= left
        limit = left if timeout is None else min(timeout, left)
        try:
            if not self._lock.acquire(timeout=limit):
                raise Timeout(f"a call of torch.distributed has not ended within {timeout} s")
            try:
                if not self._finished:
                    self._finish(self._handle.wait(self._limit.left() if is_last else limit))
                    self._finished = True
                    self._calls.forget(self)
            finally:
                self._lock.release()
        except Timeout as error:
            raise self._limit.passed(self._handle, None if is_last else timeout) from error

    def await_end(self) -> None:
        """Called by Completions, before end_future."""
        try:
            self._end(None)
        except Exception as error:  # pylint: disable=broad-except
            self._error = error

    def end_future(self) -> None:
        """Runs its callbacks."""
        if self._error is not None:
            self._future.set_exception(self._error)
        else:
            self._future.set_result(self._outputs)

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        with waiting():
            self._end(timeout.total_seconds() or None)
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
        return None

    def missing(self) -> List[int]:
        """The ranks of the job that the last Timeout has named."""
        return self._limit.missing

    def has_ended(self) -> bool:
        """Whether the operation has ended, with a result or a failure."""
        return bool(self._handle.poll())

    def get_future(self) -> torch.futures.Future:
        if not self._is_completed:
            self._is_completed = True
            self._calls.complete(self._lane, self)
        return self._future

    def result(self) -> List[torch.Tensor]:
        self.wait()
        return self._outputs


class InFlight:
    """The calls of a group that have not ended, and the threads for those with a future."""

    def __init__(self) -> None:
        self._works: Dict[CoveyWork, None] = {}  # In their order.
        self._completions = Completions()

    def add(self, work: CoveyWork) -> None:
        """The end of the group waits for the call."""
        self._works[work] = None

    def forget(self, work: CoveyWork) -> None:
        """The call has ended."""
        self._works.pop(work, None)

    def complete(self, lane: Any, work: CoveyWork) -> None:
        """A thread calls its await_end and end_future."""
        self._completions.add(lane, work)

    def close(self) -> None:
        """Waits for all that were added, until their timeouts, and for callbacks."""
        while self._works:
            work = next(iter(self._works))
            if not work.is_completed():
                work.await_end()
            self.forget(work)
        self._completions.close()

    def leave(self) -> None:
        """As Completions.leave."""
        self._completions.leave()
