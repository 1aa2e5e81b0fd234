"""How the ranks of a job have ended, and what follows from it for the job."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import List, Optional, Sequence

from covey.launch import report


@dataclass(frozen=True)
class Outcome:
    """How the job ended.

    Attributes:
        exit_code: 0, the first failing rank's (128 + signal), or 128 + the launcher's signal.
        failure: the rank that failed first, or None.
        summary: the lines that were shown about it.
    """

    exit_code: int
    failure: Optional[report.Exit]
    summary: Sequence[str]


@dataclass
class Ends:
    """The ends of all ranks so far.

    Attributes:
        failed: in their order.
        done: ranks that have ended with exit code 0 before anything failed, and
        done_late: after that.
        by_us: ranks that the launcher has ended: their deaths are no failures.
    """

    failed: List[report.Exit] = field(default_factory=list)
    done: List[int] = field(default_factory=list)
    done_late: List[int] = field(default_factory=list)
    by_us: List[int] = field(default_factory=list)

    @property
    def ended_well(self) -> List[int]:
        """Ranks that ended with exit code 0."""
        return [*self.done, *self.done_late]

    def end_well(self, rank: int, is_early: bool) -> None:
        """A rank has ended with exit code 0. `is_early`: nothing has failed."""
        (self.done if is_early else self.done_late).append(rank)

    def as_failure(self, end: report.Exit) -> Optional[report.Exit]:
        """The failure that this end is; None: it is none."""
        return report.as_failure(end, self.failed) if end.rank in self.by_us else end

    def without(self, unfinished: Sequence[int]) -> List[int]:
        """Ranks that ended well, and so did their training, before anything failed."""
        return [rank for rank in self.done if rank not in unfinished]

    def in_words(self, done: Sequence[int], size: int, worlds: int) -> str:
        """The last line of a job that went on without some ranks; `done`: those that ended well.
        `worlds`: so many were made; 0: of a job that is not elastic, of so many ranks."""
        if worlds:
            return report.changed(self.failed, done, worlds)
        return report.went_on(self.failed, done, size - len(self.failed) - len(self.done))

    def failure(self, way_on: Sequence[str]) -> Outcome:
        """The outcome of a failed job. `way_on`: advice where its first failure was a kill."""
        first = report.first_failure(self.failed)
        others = [end for end in self.failed if end.rank != first.rank]
        left = [rank for rank in self.done_late if rank not in self.by_us]
        summary = report.failure_summary(first, others, self.by_us, self.done, left)
        summary += way_on if first.code < 0 else []
        return Outcome(first.shell_code, first, summary)
