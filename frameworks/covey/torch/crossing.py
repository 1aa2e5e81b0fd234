"""The exchanges of all ranks between two parts of a training, with a limit to waiting. Internal.

Each such exchange takes milliseconds once all are there; but a rank may be stopped within one. So
where the part that ends has a ``max_wait``, a thread waits for the exchange, and the rank for the
thread, so long at most. Then it names the missing ranks. Taken up again it waits on: finished parts
are not done again, and an exchange under way is waited for, not begun anew.
"""

from __future__ import annotations

import math
import re
import threading
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple, TypeVar

from covey import _native
from covey.errors import Aborted, Timeout
from covey.method import Plan
from covey.state import state
from covey.torch.mirror import with_streams
from covey.torch.window import CHANGING, LOST, WHOLE, Mark, Window

T = TypeVar("T")
_SLICES = 16  # Of waiting.
_SEEN = (WHOLE, CHANGING)
_AT_END_S = 60.0  # max_wait=auto: not as in finish() of rounds: this raises when it is over.


def limit_of(plan: Plan) -> Optional[float]:
    """How long a rank waits where the steps of ``plan`` end; None: for ever."""
    return None if plan.max_wait_s == math.inf else plan.max_wait_s or _AT_END_S


class Board:
    """The number of such exchanges that a rank has come to, as others see it, so that all know the
    missing ranks."""

    def __init__(self, name: str, ranks: Sequence[int], group: Any) -> None:
        """Every member of the group makes one."""
        self._window = Window(name, group, (), Mark(0))
        self._ranks = ranks
        self._come = 0

    def come(self) -> None:
        """This rank has come to one more."""
        self._come += 1
        self._window.end(Mark(self._come))

    def missing(self) -> List[int]:
        """The ranks that have not come to that. Where they share no memory it says so of none."""
        return [
            rank
            for rank, (seen, mark) in zip(self._ranks, self._looks())
            if seen in _SEEN and mark.version < self._come
        ]

    def refuse_losses(self) -> None:
        """Raises Aborted if a rank has died."""
        looks = zip(self._ranks, self._looks())
        lost = [rank for rank, (seen, _) in looks if seen == LOST]
        if lost:
            names = ", ".join(map(str, lost))
            raise Aborted(f"rank {names} has died: finish() was of the others", lost[0])

    def _looks(self) -> List[Tuple[int, Mark]]:
        return [self._window.look(rank) for rank in self._ranks]

    def close(self) -> None:
        """No rank looks any more."""
        self._window.close()


class _Job:
    """One exchange."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self._call = call  # It keeps what is exchanged.
        self._result: Any = None
        self._error: Optional[BaseException] = None
        self._thread = threading.Thread(target=self._run, name="covey-crossing", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._result = self._call()
        except BaseException as error:  # For the rank that waits.
            self._error = error

    def is_over(self, patience_s: float) -> bool:
        """Whether it is, or will be by then."""
        self._thread.join(patience_s)
        return not self._thread.is_alive()

    def result(self) -> Any:
        """Of one that is over; raises what it has raised."""
        if self._error is not None:
            raise self._error
        return self._result


class Crossing:
    """The exchanges of ranks that go from one part to the next.

    Example:
        >>> Crossing().run("the answer", lambda: 42)
        42
    """

    def __init__(
        self, what: str = "", limit_s: Optional[float] = None, board: Optional[Board] = None
    ) -> None:
        """``limit_s``: None: for ever, at once, with no thread. ``what``: begins messages."""
        self._what = what
        self._limit_s = limit_s
        self._board = board
        self._jobs: Dict[str, _Job] = {}
        self._patience_s = 0.0  # That is left.
        self.has_left = False  # The part that ends.
        self.step_ns = 0  # So long a step of this rank's own took in it; 0: unknown.
        self.begin()

    def begin(self) -> None:
        """Begins, or is taken up again: from now on it waits for ``limit_s`` in all."""
        self._patience_s = self._limit_s or 0.0

    def run(self, key: str, call: Callable[[], T]) -> T:
        """The result of ``call()``, an exchange of all ranks; it is called once, whatever happens.

        Raises:
            Timeout: ranks are missing. Called again, after ``begin()``, it waits on.
        """
        if self._limit_s is None:
            return call()
        if key not in self._jobs:
            if self._board is not None:
                self._board.come()
            self._jobs[key] = _Job(with_streams(call))
        job = self._jobs[key]
        # In slices: of the time in which this rank was stopped itself one counts.
        slice_s = self._limit_s / _SLICES
        while not job.is_over(min(slice_s, self._patience_s)):
            self._patience_s -= slice_s
            if self._patience_s <= 0:
                raise self._timeout(key)
            state.help()  # The thread that waits in the core is another one.
        result: T = job.result()
        return result

    def _timeout(self, key: str) -> Timeout:
        ranks = [] if self._board is None else self._board.missing()
        found = re.search(r"waits for (rank[^\n]*)", _native.status())
        named = ", ".join(map(str, ranks))
        who = f"rank {named}" if ranks else found.group(1) if found else "ranks that do not come"
        return Timeout(
            f"{self._what} has waited {round(1000 * (self._limit_s or 0))} ms (max_wait) for "
            f"{who}, in {key}: nothing is lost, and the next step() or finish() waits on",
            ranks[0] if ranks else -1,
        )
