"""Which processes make a job together, agreed on by a store of torch.distributed. Internal.

A launcher starts ranks again over the store of those before, so the store holds words of processes
that are gone, and a process may have gone before it wrote any. Therefore each process draws an
identity, and ranks agree on a *generation*: one live process for each rank. Rank 0 leads.

    from     to       key               text
    rank r   rank 0   inbox/N           came R IDENTITY NOTE
    rank 0   rank r   IDENTITY/N        known, once
    rank 0   rank r   IDENTITY/N        propose GENERATION, when all ranks have come
    rank r   rank 0   inbox/N           here R GENERATION
    rank 0   rank r   IDENTITY/N        begin GENERATION NOTES, when all are here
    rank 0   rank r   IDENTITY/N        late RANKS, when COVEY_START_TIMEOUT is over

A process that is gone answers no proposal. When the process that replaces it comes, rank 0 proposes
another generation. N counts from 1; what a generation has read of the inbox, later ones skip.
"""

from __future__ import annotations

import contextlib
import time
import uuid
from collections import Counter
from datetime import timedelta
from typing import Any, Dict, List, NamedTuple, Optional, Set

from covey.errors import Timeout

_FAREWELL_S = 5.0  # So long rank 0 waits for those that it has told who is late.
# A process may go between counting its message and writing it: so long the message is awaited.
_GAP_S = 1.0


class Generation(NamedTuple):
    """One live process for each rank.

    Attributes:
        name: differs from that of every other generation, and is the same on its ranks.
        notes: the different ones that its ranks gave to ``agree``, in order.
    """

    name: str
    notes: List[str]


def agree(store: Any, rank: int, size: int, call: str, note: str = "-") -> Generation:
    """The generation that this process is of, as ``rank`` of ``size``.

    Args:
        store: of torch.distributed. It may have served other generations of as many ranks.
        call: which call the ranks meet in, for errors.
        note: a word for the other ranks.

    Raises:
        Timeout: ranks did not come within COVEY_START_TIMEOUT; those that came name them.
    """
    from covey.launch.rendezvous_handler import start_timeout_s

    limit_s = start_timeout_s()
    box = _Box(store, f"covey/generation/{size}")
    if rank == 0:
        outcome = _Leader(box, size, note).lead(limit_s)
    else:
        outcome = _follow(box, rank, note, limit_s)
    if isinstance(outcome, Generation):
        return outcome
    raise Timeout(
        f"rank {rank} of {size}: ranks {outcome} did not call {call} within {limit_s:g} s "
        "(COVEY_START_TIMEOUT)"
    )


class _Box:
    """Messages by the store."""

    def __init__(self, store: Any, prefix: str) -> None:
        self._store = store
        self._prefix = prefix

    def tell_leader(self, text: str) -> None:
        self.put(f"inbox/{self._store.add(f'{self._prefix}/count', 1)}", text)

    def count(self) -> int:
        """How many messages the leader was told, or is about to be told."""
        return int(self._store.add(f"{self._prefix}/count", 0))

    def put(self, key: str, text: str) -> None:
        self._store.set(f"{self._prefix}/{key}", text)

    def has(self, key: str) -> bool:
        return bool(self._store.check([f"{self._prefix}/{key}"]))

    def get(self, key: str) -> str:
        return str(self._store.get(f"{self._prefix}/{key}").decode("utf-8", "replace"))

    def wait(self, keys: List[str], until: float) -> bool:
        """Whether they are there before the clock says ``until``."""
        left_s = max(until - time.monotonic(), 0.001)
        try:
            self._store.wait([f"{self._prefix}/{key}" for key in keys], timedelta(seconds=left_s))
        except RuntimeError:  # torch's: the time is over, or the store is gone, which `has` raises
            return all(self.has(key) for key in keys)
        return True


def _follow(box: _Box, rank: int, note: str, limit_s: float) -> Generation | str:
    """The generation, or the ranks that are late."""
    identity = uuid.uuid4().hex
    until = time.monotonic() + limit_s
    box.tell_leader(f"came {rank} {identity} {note}")
    number = 1
    while box.wait([f"{identity}/{number}"], until):
        kind, *words = box.get(f"{identity}/{number}").split()
        number += 1
        if kind == "known":  # Rank 0 came later: its time ends later.
            until = time.monotonic() + limit_s + _FAREWELL_S
        elif kind == "propose":
            box.tell_leader(f"here {rank} {words[0]}")
        elif kind == "begin":
            return Generation(words[0], words[1:])
        elif kind == "late":
            box.put(f"{identity}/heard", "")
            return " ".join(words)
    return "0"


class _Process(NamedTuple):
    identity: str
    note: str


class _Leader:
    """Rank 0."""

    def __init__(self, box: _Box, size: int, note: str) -> None:
        self._box = box
        self._note = note
        self._others = range(1, size)
        self._identity = uuid.uuid4().hex
        self._proposals = 0
        self._newest: Dict[int, _Process] = {}  # of each rank that has come
        self._told: Counter[str] = Counter()  # messages to each process
        self._here: Set[int] = set()
        self._read = int(box.get("read")) if box.has("read") else 0

    def lead(self, limit_s: float) -> Generation | str:
        """The generation, or the ranks that are late."""
        until = time.monotonic() + limit_s
        there = self._box.count()  # They may be of several processes of a rank: the newest counts.
        is_due = False
        while len(self._here) < len(self._others):
            text = self._next(until)
            if text is None:
                return self._give_up()
            is_due |= self._take(text)
            if is_due and self._read >= there and len(self._newest) == len(self._others):
                self._propose()
                is_due = False
        notes = sorted({self._note, *(process.note for process in self._newest.values())})
        for other in self._others:
            self._tell(self._newest[other].identity, " ".join(("begin", self._name(), *notes)))
        self._box.put("read", str(self._read))
        return Generation(self._name(), notes)

    def _name(self) -> str:
        return f"{self._identity}.{self._proposals}"

    def _next(self, until: float) -> Optional[str]:
        """The next message of the inbox; None: the time is over."""
        key = f"inbox/{self._read + 1}"
        while not self._box.wait([key], min(until, time.monotonic() + _GAP_S)):
            if time.monotonic() >= until:
                return None
            if self._box.count() > self._read + 1 and not self._box.has(key):
                break  # Its sender has gone.
        self._read += 1
        return self._box.get(key) if self._box.has(key) else ""

    def _take(self, text: str) -> bool:
        """Whether another process is the newest of its rank."""
        kind, rank, *words = (text.split() + ["", ""])[:4]
        if not rank.isdigit() or int(rank) not in self._others:
            return False  # Its sender has gone, or is a stranger.
        if kind == "came" and len(words) == len(_Process._fields):
            process = self._newest[int(rank)] = _Process(*words)
            self._tell(process.identity, "known")
            return True
        if kind == "here" and words[0] == self._name():
            self._here.add(int(rank))
        return False

    def _propose(self) -> None:
        self._proposals += 1
        self._here.clear()
        for process in self._newest.values():
            self._tell(process.identity, f"propose {self._name()}")

    def _tell(self, identity: str, text: str) -> None:
        """An earlier process of rank 0 may have told it something already."""
        number = self._told[identity] + 1
        while self._box.has(f"{identity}/{number}"):
            number += 1
        self._told[identity] = number
        self._box.put(f"{identity}/{number}", text)

    def _give_up(self) -> str:
        """Says to those that have come which ranks are late: the store may be this process's."""
        come = sorted(self._here if self._proposals else self._newest)
        late = ", ".join(str(other) for other in self._others if other not in come)
        for process in self._newest.values():
            self._tell(process.identity, f"late {late}")
        with contextlib.suppress(RuntimeError):
            heard = [f"{self._newest[other].identity}/heard" for other in come]
            self._box.wait(heard, time.monotonic() + _FAREWELL_S)
        return late
