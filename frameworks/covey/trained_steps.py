"""The steps of a training whose adapter has no clock of its own: the core times them. Internal.

For ``covey.stats()``, the table at a job's end, ``--inject``, and a script that ends without
``finish()``. Nothing here knows a framework.
"""

from __future__ import annotations

import contextlib
import json
import time
import weakref
from typing import Any, Dict, Iterator

from covey import _native
from covey.group import Group
from covey.method import GRADIENTS, plans
from covey.method_summary import announce
from covey.notice import tell
from covey.state import state
from covey.step_stats import StepStats
from covey.trainer_handle import Position


class TrainedSteps:
    """The steps of one trainer of the core."""

    def __init__(
        self, number: int, method: str, group: Group, length_bytes: int, adapter: Any
    ) -> None:
        """The training begins, which is announced; all members of ``group`` make one.

        Args:
            number: the core's.
            method: the whole text.
            length_bytes: of the gradients.
            adapter: has a method ``finish(strict)``.
        """
        announce(method, group, length_bytes)
        self._number, self._adapter = number, weakref.ref(adapter)  # The statistics outlive it.
        self._stats = StepStats(method, group.ranks)
        self._stats.refresh = self.count
        self._counts: Dict[str, Any] = {}
        self._is_due = False  # A finish(), since the last step.
        self._tells = group.size() > 1 and group.rank() == 0
        self._slept = 0  # Steps, at the end of which a delay was due.
        parts = [plan for _, plan in plans(method, group.id)] if group.size() > 1 else []
        self._needs_finish = any(it.in_rounds or it.payload != GRADIENTS for it in parts)
        if any(it.in_versions and it.payload == GRADIENTS for it in parts):
            state.add_flush(self)

    def begin(self) -> None:
        """A step begins; where steps are part of a graph: they will."""
        if self._needs_finish and not self._is_due:
            self._is_due = True
            self._stats.exchanged()

    def finished(self) -> None:
        """A ``finish()`` has ended, or the training."""
        self._is_due = False
        self._stats.finished()

    @property
    def are_delayed(self) -> bool:
        """Whether ``begin_work`` and ``sleep`` belong around each step."""
        return self._stats.injector is not None

    def begin_work(self) -> None:
        """A step begins, whose end may be delayed."""
        self._stats.begin_step()

    def sleep(self) -> None:
        """It has ended."""
        self._stats.sleep(self._slept)
        self._slept += 1

    @contextlib.contextmanager
    def step(self) -> Iterator[None]:
        """A step, outside of a graph."""
        self.begin()
        self.begin_work()
        yield
        self.sleep()

    def close(self) -> None:
        """To be called before the trainer is closed."""
        self.count()
        self.finished()

    def count(self) -> None:
        """Brings the statistics up to now."""
        counts = json.loads(_native.trainer_stats(self._number))
        if not counts:
            return  # It is closed, or within a call.
        self._stats.applied(counts, self._counts)
        self._stats.timed(counts)
        self._stats.came(_native.trainer_arrivals(self._number))
        self._counts = counts

    def flush(self) -> None:
        """For the end of a script that has not called ``finish()``."""
        adapter = self._adapter()
        if not self._is_due or adapter is None:
            return
        self._is_due = False
        begun, failure = time.monotonic(), ""
        try:
            before = self._version()
            adapter.finish(True)
        except Exception as error:  # Of the framework: the runtime ends in any case.
            failure = str(error)
        versions = 0 if failure else self._version() - before
        if self._tells and (failure or versions > 0):
            tell(
                f"a script ends without finish(): {failure or 'all gradients count now'}; "
                f"{versions} version{' was' if versions == 1 else 's were'} applied after its "
                f"last step, in {time.monotonic() - begun:.1f} s"
            )

    def _version(self) -> int:
        return Position(*_native.trainer_position(self._number)).version
