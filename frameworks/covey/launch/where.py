"""The question to all ranks where they are, and the ranks that do not answer. Internal."""

from __future__ import annotations

from typing import Callable, List, Mapping, Set

from covey.launch import endings, report
from covey.launch.process import DEAF, STOPPED
from covey.launch.ranks import Ranks

_LIMIT_S = 1.0  # As long as a Ctrl-C waits.


class Where:
    """The question that was asked last."""

    def __init__(self, ranks: Ranks, say: Callable[[str], None]) -> None:
        """Borrows `ranks`."""
        self._ranks, self._say = ranks, say
        self._asked: Set[int] = set()
        self._asked_at = 0.0

    @property
    def is_open(self) -> bool:
        """Whether there may be answers yet."""
        return bool(self._asked)

    def ask(self, now: float) -> None:
        """Has the ranks say what they wait for."""
        self._asked_at = now
        why = {it.rank: it.ask_where() for it in self._ranks.running()}
        self._asked = set(why)
        self.hear(why)

    def hear(self, why: Mapping[int, str]) -> None:
        """These do not say it: DEAF, STOPPED; "": they may."""
        self._asked -= {rank for rank in why if why[rank]}
        deaf = [rank for rank in why if why[rank] == DEAF]
        if deaf:
            reason = "not past covey.init(), or not Python"
            self._say(f"{report.ranks_in_words(deaf)} cannot say: {reason}")
        for name in self._named([rank for rank in why if why[rank] == STOPPED]):
            self._say(f"{name} does not answer: it is stopped")

    def look(self, now: float) -> None:
        """Sees who has answered, and tells of those that have not when it is time."""
        if not self._asked:
            return
        running = {process.rank for process in self._ranks.running()}
        said = {rank: self._ranks.said_at(rank) or 0.0 for rank in self._asked & running}
        silent = [rank for rank, at in said.items() if at < self._asked_at]
        if now >= self._asked_at + _LIMIT_S:
            self._asked = set()
            for name in self._named(silent):
                self._say(f"{name} does not answer")
        elif not silent and all(now >= at + endings.QUIET_S for at in said.values()):
            self._asked = set()

    def _named(self, ranks: List[int]) -> List[str]:
        """The names of those that run."""
        its = sorted((it.rank, it.pid) for it in self._ranks.running() if it.rank in ranks)
        return [f"rank {rank} (pid {pid})" for rank, pid in its]
