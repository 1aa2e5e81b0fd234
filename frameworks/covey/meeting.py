"""Ranks that do something together. If it goes wrong on one of them it has on all. Internal."""

from __future__ import annotations

import contextlib
from typing import Any, Callable, Dict, Iterator, List, Optional, Type

from covey.errors import BadCheckpoint, CoveyError, InvalidArgument, NotSaved
from covey.group import Group
from covey.objects import allgather_object

_KINDS: Dict[str, Type[CoveyError]] = {
    kind.__name__: kind for kind in (InvalidArgument, BadCheckpoint, NotSaved)
}


class Meeting:
    """Of the members of a group, each of which makes one and then does the same with it."""

    def __init__(self, what: str, group: Group) -> None:
        """``what``: a word for names and messages, such as "save"."""
        self.group = group
        self.index = group.rank() or 0
        self.leads = self.index == 0
        self._what = what
        self._count = 0
        self._problem: Optional[BaseException] = None

    def gather(self, value: Any) -> List[Any]:
        """That of every member."""
        self._count += 1
        name = f"covey.{self._what}.{self._count}"  # The same each time: names are kept for ever.
        everyone: List[Any] = allgather_object(value, name, self.group)
        return everyone

    @contextlib.contextmanager
    def part(self) -> Iterator[None]:
        """Within it this rank does its part. ``agree`` raises its errors."""
        if self._problem is not None:
            raise AssertionError("agree() comes after part()")
        try:
            yield
        except Exception as problem:  # pylint: disable=broad-except  # All kinds: agree() raises.
            self._problem = problem

    def agree(self) -> None:
        """Whether all have done their part.

        Raises:
            CoveyError: one has not, the same on all: InvalidArgument, BadCheckpoint or NotSaved, as
                on the first of them; ``peer_rank`` is that rank.
        """
        problem, self._problem = self._problem, None
        everyone = self.gather(None if problem is None else _told(problem))
        for rank, told in zip(self.group.ranks, everyone):
            if told is not None:
                kind, text = told
                who = "" if len(everyone) == 1 else f"rank {rank}: "
                raise _KINDS.get(kind, CoveyError)(f"{self._what}: {who}{text}", rank) from problem

    def on_lead(self, function: Callable[[], Any]) -> Any:
        """Its result on all members, of the first one's doing."""
        result = None
        with self.part():
            result = function() if self.leads else None
        self.agree()
        return self.gather(result)[0]


def _told(problem: Exception) -> Any:
    """How it is said to the others: which kind, and its text."""
    for kind in (BadCheckpoint, NotSaved, InvalidArgument):
        if isinstance(problem, kind):
            return kind.__name__, str(problem)
    if isinstance(problem, OSError):
        return NotSaved.__name__, str(problem)
    return "", f"{type(problem).__name__}: {problem}"
