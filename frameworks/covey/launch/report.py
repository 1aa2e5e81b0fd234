"""The rank that failed first, and the report of it. Pure functions over what the launcher has
seen."""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass, replace
from typing import List, Optional, Sequence, Set

MAX_TRACEBACK_LINES = 60
LINES_WITHOUT_TRACEBACK = 20
_TRACEBACK = "Traceback (most recent call last)"
_CHAINED = ("During handling of the above exception", "The above exception was the direct cause")
_FROM_RUNTIME = re.compile(r"^(covey|horovod)[\w.]*|^Horovod\w*", re.IGNORECASE)
_RANK_NAMED = re.compile(r"\brank (\d+)\b")


@dataclass(frozen=True)
class Exit:
    """The end of one rank.

    Attributes:
        code: as the shell does: 0 to 255, or minus the number of the signal.
        at: when the launcher saw the end (monotonic seconds).
        traceback_at: when the last traceback began on its stderr, or None.
        stderr_tail: its last lines of stderr.
        out_of_memory: the kernel killed a process for memory while the job ran.
        host: where it ran, when another launcher told of it; else empty.
        lost: how its launcher was lost, in words, when no launcher saw the end of the rank itself.
        was_ended: by its launcher, when it had failed and had not exited yet.
    """

    rank: int
    pid: int
    code: int
    at: float
    traceback_at: Optional[float]
    stderr_tail: Sequence[str]
    out_of_memory: bool = False
    host: str = ""
    lost: str = ""
    was_ended: bool = False

    @property
    def shell_code(self) -> int:
        """The exit code a shell would report."""
        return self.code if self.code >= 0 else 128 - self.code

    def how(self) -> str:
        """`exit code 3` or `killed by SIGSEGV`."""
        if self.was_ended:
            return f"exit code {self.code} (ended by the launcher, its exit took too long)"
        if self.code >= 0:
            return f"exit code {self.code}"
        try:
            name = signal.Signals(-self.code).name
        except ValueError:
            name = f"signal {-self.code}"
        why = " (the kernel was out of memory)" if self.out_of_memory else ""
        return f"killed by {name}{why}"


def last_traceback(lines: Sequence[str]) -> List[str]:
    """The last Python traceback in `lines` with the exceptions it was raised from, or []."""
    starts = [i for i, line in enumerate(lines) if line.startswith(_TRACEBACK)]
    if not starts:
        return []
    first = starts[-1]
    for start in reversed(starts[:-1]):
        between = lines[start:first]
        if not any(line.startswith(_CHAINED) for line in between):
            break
        first = start
    return list(lines[first:])


def exception_line(traceback: Sequence[str]) -> str:
    """`ValueError: text`: the first line after the last frames; empty without a traceback."""
    starts = [i for i, line in enumerate(traceback) if line.startswith(_TRACEBACK)]
    if not starts:
        return ""
    for line in traceback[starts[-1] + 1 :]:
        if line and not line[0].isspace():
            return line
    return ""


def blamed(end: Exit) -> Set[int]:
    """Other ranks that the error of the runtime of which this one died names."""
    line = exception_line(last_traceback(end.stderr_tail))
    if not _FROM_RUNTIME.match(line):
        return set()
    return {int(rank) for rank in _RANK_NAMED.findall(line)} - {end.rank}


def is_consequence(end: Exit, failed: Set[int]) -> bool:
    """True when the rank died of an error of the runtime that blames another failed rank."""
    return bool(blamed(end) & failed)


def as_failure(end: Exit, others: Sequence[Exit]) -> Optional[Exit]:
    """The end of a rank that its launcher has ended, if it was about to exit of an exception.

    Its traceback had begun when one of `others`, whose error names it, had its own end. A traceback
    alone says nothing: programs print those of exceptions that they handle.
    """
    begun = end.traceback_at
    if begun is None:
        return None
    if not any(end.rank in blamed(other) and begun <= other.at for other in others):
        return None
    return replace(end, code=max(end.code, 1), was_ended=True)


def first_failure(ends: Sequence[Exit]) -> Exit:
    """The root cause among `ends` (all failed, at least one).

    A rank that only reports another's failure comes after all that do not. Then the earlier one
    counts: by the time its traceback began, since a large process takes its time to exit.
    """
    assert ends and all(end.code != 0 for end in ends)
    failed = {end.rank for end in ends}

    def order(end: Exit) -> tuple:
        at = end.at if end.traceback_at is None else end.traceback_at
        return (is_consequence(end, failed), at, end.rank)

    return min(ends, key=order)


def last_words(end: Exit) -> List[str]:
    """The part of its stderr to show: the last traceback, else the last lines."""
    lines = last_traceback(end.stderr_tail)
    if not lines:
        return list(end.stderr_tail)[-LINES_WITHOUT_TRACEBACK:]
    if len(lines) > MAX_TRACEBACK_LINES:
        half = MAX_TRACEBACK_LINES // 2
        left_out = len(lines) - 2 * half
        lines = lines[:half] + [f"  ... {left_out} lines left out ..."] + lines[-half:]
    return lines


def ranks_in_words(ranks: Sequence[int]) -> str:
    """`rank 3`, `ranks 0, 1 and 3`."""
    names = [str(rank) for rank in sorted(ranks)]
    if len(names) == 1:
        return f"rank {names[0]}"
    return f"ranks {', '.join(names[:-1])} and {names[-1]}"


def losses(ends: Sequence[Exit], flag: str) -> List[str]:
    """The lines on lost ranks: one for those of a host that is lost. `flag`: lets the job go on;
    "": the job does not."""
    rest = f"; the job goes on ({flag})" if flag else ""
    return list(dict.fromkeys(f"{_loss(end)}{rest}" for end in ends))


def _loss(end: Exit) -> str:
    if end.lost.startswith("host "):  # With all its ranks.
        return end.lost
    if end.lost:
        return f"rank {end.rank} (pid {end.pid}) is lost: {end.lost}"
    words = exception_line(last_traceback(end.stderr_tail))
    said = f"{end.how()}: {words}" if words else end.how()
    where = f" on {end.host}" if end.host else ""
    return f"rank {end.rank}{where} (pid {end.pid}) has failed: {said}"


def went_on(ends: Sequence[Exit], done: Sequence[int], others: int) -> str:
    """The last thing of such a job. `others`: so many ranks are other launchers', and ended
    well."""
    failed = ranks_in_words([end.rank for end in ends])
    if not done:
        return f"{failed} failed, and nobody is left" + (" here" if others else "")
    return f"{failed} failed; {ranks_in_words(done)} went on and ended with exit code 0"


def changed(ends: Sequence[Exit], done: Sequence[int], worlds: int) -> str:
    """The last line of an elastic job that lost processes and made so many worlds."""
    failed = f"{len(ends)} process{'es' if len(ends) > 1 else ''} failed"
    if not done:
        return f"{failed}, and no rank has ended well"
    return f"{failed}; {ranks_in_words(done)} ended with exit code 0, in world {worlds}"


def left_unfinished(ranks: Sequence[int]) -> str:
    """The sentence on ranks that ended well, but not their training."""
    return (
        f"{ranks_in_words(ranks)} ended with exit code 0 in the middle of training: neither "
        "finish() nor covey.shutdown() was called (os._exit?)"
    )


def left_processes(ranks: Sequence[int]) -> List[str]:
    """The sentence on processes that ranks left in their process groups; none without one."""
    if not ranks:
        return []
    return [
        f"{ranks_in_words(ranks)} ended with exit code 0 and left processes, which were ended: one "
        "that is to go on needs a session of its own (start_new_session=True of subprocess.Popen)"
    ]


def failure_summary(
    first: Exit,
    others: Sequence[Exit],
    ended: Sequence[int],
    done: Sequence[int] = (),
    left: Sequence[int] = (),
) -> List[str]:
    """The last thing on the screen. `others` failed too; `ended` were ended by the launcher; `done`
    had ended well before, which may be what the first one failed of, and so may be `left`, which
    said goodbye before and ended well after."""
    where = f" on {first.host}" if first.host else ""
    lines = [f"rank {first.rank}{where} (pid {first.pid}) failed first: {first.how()}"]
    if first.lost:
        lines = [first.lost]
    lines += ["  " + line for line in last_words(first)]
    if done:
        lines.append(f"before that {ranks_in_words(done)} had ended with exit code 0")
    named = sorted(blamed(first) & set(left))
    if named:
        lines.append(f"{ranks_in_words(named)}, which it names, ended with exit code 0")
    for end in sorted(others, key=lambda end: end.at):
        if end.lost:
            continue
        words = exception_line(last_traceback(end.stderr_tail))
        lines.append(f"then rank {end.rank}: {end.how()}" + (f": {words}" if words else ""))
    failed = {first.rank, *(end.rank for end in others)}
    rest = [rank for rank in ended if rank not in failed]
    if rest:
        lines.append(f"{ranks_in_words(rest)} ended by the launcher")
    return lines


def way_on(method: str) -> List[str]:
    """The advice that would have kept a job going whose rank was killed; none without such a
    `method`."""
    return [f"with --keep-going the others go on: method {method} allows it"] if method else []


def without_tracebacks(lines: Sequence[str]) -> List[str]:
    """`lines` less every traceback: after a Ctrl-C each rank's KeyboardInterrupt says nothing."""
    kept: List[str] = []
    inside = False
    for line in lines:
        if line.startswith(_TRACEBACK):
            inside = True
        elif not inside:
            kept.append(line)
        elif line and not line[0].isspace():
            inside = False
    return [line for line in kept if not line.startswith(_CHAINED)]
