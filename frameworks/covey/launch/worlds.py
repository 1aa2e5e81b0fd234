"""The worlds of an elastic job: which workers are its ranks, and when others are. Values only: no
clock, no process, no socket.

A *place* has a number and a host: a process may run there. A *worker* is the process that does, by
the place's number. A *world* is the workers that are ranks together, until one comes or goes.

| a worker is | event                                      | it is then                           |
| ----------- | ------------------------------------------ | ------------------------------------ |
| starting    | it asks for a place                        | waiting                              |
| waiting     | a world is made                            | in that                              |
| in a world  | another one asks for a place (rule 6)      | called: it is to ask for a place too |
| in a world  | it says that it has the common state       | ready, until it ends                 |
| in a world  | it asks for a place                        | waiting                              |
| any         | it ends well                               | done: no further world is made       |
| any         | it fails                                   | gone: its place is free              |
| ending      | it fails                                   | gone: that is no failure of the job  |
| any         | its place is no more (rule 7)              | to end, once it is in no world       |
| in no world | it is to end, or gets no place any more    | ending                               |

Rules:
1. A world is made when no worker is in one or ending, and `least` are waiting. The first one waits
   for all workers that are starting, a later one for none: they come to the next.
2. Workers that are ready come first, in the order of their ranks before; the others follow by
   number. So rank 0 has the state, if there is one. Then those of a host stand behind its first.
3. Processes that have failed are replaced, at most `restarts` of them, but for those that went with
   their host. There are more, up to `most`, at places where none has failed. Free places where
   fewest have failed come first.
4. A worker in a world for which ready ones wait for `timeout_s` is late: it is to be ended.
5. The job has failed when a worker fails and none that is ready is left, when fewer than `least`
   can come, when they do not come within `timeout_s`, and instead of one world more than `resets`
   after the first. Where hosts may come, fewer than `least` are waited for.
6. One that comes from a world calls the others at once. A new one waits up to 5 s for workers that
   are starting: they come to one world together.
7. The place of a worker is no more when its host leaves the job. The workers of its world are
   called; it comes to no other, and is to be ended when it asks for a place.
"""

from __future__ import annotations

from collections import Counter
from typing import Dict, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Set

NOTICE_S, GATHER_S = 10.0, 5.0
RESTARTS, TIMEOUT_S = 3, 600.0
"""Terms of a job whose user says nothing else."""
STARTING, WAITING, INSIDE, ENDING, DONE = "starting", "waiting", "inside", "ending", "done"


class Terms(NamedTuple):
    """The settings of an elastic job.

    Attributes:
        least: ranks that a world needs.
        most: ranks that the job has at most.
        restarts: how many processes that have failed may be replaced.
        resets: how many worlds may follow the first; None: any number.
        timeout_s: for so long a world may wait for `least` workers.
        may_grow: hosts may come while the job runs.
    """

    least: int
    most: int
    restarts: int
    resets: Optional[int]
    timeout_s: float
    may_grow: bool = False


class World(NamedTuple):
    """A world: its number, from 0, and its workers in the order of their ranks."""

    number: int
    workers: List[int]


class Worlds:
    """All workers of a job.

    Attributes:
        failure: why the job has failed, in words; "": it has not.
        made: how many worlds were made.
    """

    def __init__(self, terms: Terms, hosts: Sequence[int], size: int) -> None:
        """`hosts`: of the places, by number. `size` workers are started first, at the first."""
        self._terms = terms
        self._host_of: Dict[int, int] = dict(enumerate(hosts))
        self._states: Dict[int, str] = {number: STARTING for number in range(size)}
        self._last: List[int] = []  # The last world.
        self._ready: Set[int] = set()
        self._called: Set[int] = set()
        self._free: Set[int] = set(range(size, len(hosts)))
        self._failed: Counter[int] = Counter()  # Processes, by place.
        self._left = terms.restarts
        self._full = size  # Workers, were none of them missing.
        self._since: Optional[float] = None  # No world for so long, though one asks for a place.
        self._held: Optional[float] = None  # Ready workers wait for some in a world for so long.
        self._knocked: Optional[float] = None  # New ones wait for those in a world since then.
        self._gathers: Optional[float] = None  # So long these are not called.
        self._late: Set[int] = set()
        self._noticed = 0
        self.failure = ""
        self.made = 0

    def rank_of(self, number: int) -> int:
        """The rank of a worker in the last world; -1: it is not in it."""
        is_member = number in self._last and self._states.get(number) == INSIDE
        return self._last.index(number) if is_member else -1

    def members(self) -> List[int]:
        """The workers that are in a world."""
        return self._those(INSIDE)

    def host_of(self, number: int) -> int:
        """The host of a place."""
        return self._host_of[number]

    @property
    def is_over(self) -> bool:
        """Whether no further world is made."""
        return bool(self.failure) or self.is_done

    @property
    def is_done(self) -> bool:
        """Whether a worker has ended well: no further world is made."""
        return DONE in self._states.values()

    def _those(self, *states: str) -> List[int]:
        return [number for number, state in self._states.items() if state in states]

    # ---- Events ------------------------------------------------------------------------------

    def offers(self, numbers: Mapping[int, int]) -> None:
        """There are new places: their hosts, by number."""
        self._host_of.update(numbers)
        self._free.update(numbers)

    def withdraws(self, numbers: Iterable[int]) -> None:
        """These places are no more; their workers are to end. May be called again."""
        for number in set(numbers) & set(self._host_of):
            del self._host_of[number]
            self._free.discard(number)

    def starts(self, number: int) -> None:
        """A process was started at a free place."""
        self._free.remove(number)
        if self._replaceable() > 0:
            self._left -= 1
        else:
            self._full += 1
        self._states[number] = STARTING

    def asks(self, number: int) -> None:
        """A worker asks for a place."""
        if number in self._states:
            self._states[number] = WAITING
            self._called.discard(number)

    def is_ready(self, number: int) -> None:
        """A worker has the state that all have."""
        self._ready.add(number)

    def ends(self, number: int, is_well: bool) -> None:
        """A worker has ended."""
        if is_well:
            self._states[number] = DONE
            return
        is_failure = self._states.pop(number) != ENDING
        self._called.discard(number)
        self._late.discard(number)
        was_ready = bool(self._ready)
        self._ready.discard(number)
        if number in self._host_of:
            self._failed[number] += 1
            self._free.add(number)
        else:
            self._full -= 1
        if is_failure and was_ready and not self._ready:
            self.failure = "no rank is left that has the state of the training"
        elif is_failure and not self._ready:
            self.failure = f"rank {number} failed before a rank had a state (hvd.elastic.run)"

    # ---- What follows from them --------------------------------------------------------------

    def wanted(self) -> List[int]:
        """The places where a process is to be started."""
        if self.is_over:
            return []
        free = sorted(self._free, key=lambda it: (self._failed[it], it))
        replaced = free[: self._replaceable()]
        more = [number for number in free[len(replaced) :] if self._failed[number] == 0]
        return replaced + more[: self._terms.most - self._full]

    def _replaceable(self) -> int:
        """So many missing workers may be replaced."""
        return min(self._left, self._full - len(self._states))

    def called(self, now: float) -> List[int]:
        """Workers that are to be told that others wait for them; each is named once."""
        waiting, inside = self._those(WAITING), self._those(INSIDE, ENDING)
        is_knocking = bool(waiting and inside)
        self._knocked = (now if self._knocked is None else self._knocked) if is_knocking else None
        self._gathers = None
        if self.is_done or not (waiting or self._placeless()):
            return []
        is_urgent = bool(self._ready.intersection(waiting) or self._placeless())
        if self._knocked is not None and not is_urgent and self._those(STARTING):
            if now < self._knocked + GATHER_S:
                self._gathers = self._knocked + GATHER_S
                return []
        new = [number for number in self._those(INSIDE) if number not in self._called]
        self._called.update(new)
        return new

    def _placeless(self) -> List[int]:
        """Workers whose place is no more."""
        return [number for number in self._states if number not in self._host_of]

    def superfluous(self) -> List[int]:
        """Workers that are in no world and never will; each is named once."""
        outside = self._those(STARTING, WAITING)
        if self.is_done:
            found = [number for number in outside if number not in self._ready]
        else:
            found = [number for number in self._placeless() if number in outside]
        self._states.update(dict.fromkeys(found, ENDING))
        return found

    def dismissed(self) -> List[int]:
        """Other workers that ask for a place in vain; each is named once."""
        if not self.is_over:
            return []
        found = [it for it in self._those(WAITING) if it in self._ready or not self.is_done]
        self._states.update(dict.fromkeys(found, ENDING))
        return found

    def advance(self, now: float) -> Optional[World]:
        """The world that is made now; None: not yet, or `failure` says why."""
        waiting, inside = self._those(WAITING), self._those(INSIDE, ENDING)
        waiting = [number for number in waiting if number in self._host_of]
        is_held = not self.is_over and bool(inside) and not self._ready.isdisjoint(waiting)
        self._held = self._begun(self._held, now) if is_held else None
        if self.is_over or inside:
            self._since = None
            return None
        starting = self._those(STARTING)
        is_complete = not starting if self.made == 0 else True
        if is_complete and len(waiting) >= self._terms.least:
            return self._make(waiting)
        self._since = self._begun(self._since, now) if waiting else None
        can_come = len(waiting) + len(starting) + len(self.wanted())
        if can_come < self._terms.least and not self._terms.may_grow:
            why = f"--max-restarts {self._terms.restarts}" if self._free else "no host has room"
            self.failure = (
                f"{can_come} of {self._terms.least} ranks are left (--min-np), and no more are "
                f"started: {why}"
            )
        elif self._since is not None and now >= self._since + self._terms.timeout_s:
            self.failure = (
                f"{len(waiting)} of {self._terms.least} ranks (--min-np) came within "
                f"{self._terms.timeout_s:g} s (--elastic-timeout)"
            )
        return None

    def _begun(self, before: Optional[float], now: float) -> float:
        """The beginning of a wait, which may have begun before."""
        if before is None:
            self._noticed = 0
        return now if before is None else before

    def _make(self, waiting: List[int]) -> Optional[World]:
        if self._terms.resets is not None and self.made > self._terms.resets:
            limit = self._terms.resets
            self.failure = f"the ranks would change once more than --reset-limit {limit}"
            return None
        before = [number for number in self._last if number in self._ready & set(waiting)]
        workers = self._by_host(before + sorted(set(waiting) - set(before)))
        for number in workers:
            self._states[number] = INSIDE
        self._last, self._since = list(workers), None
        self.made += 1
        return World(self.made - 1, workers)

    def _by_host(self, workers: Sequence[int]) -> List[int]:
        """Those of a host follow the first of them, in this order."""
        hosts = [self._host_of[number] for number in workers]
        places = sorted(range(len(workers)), key=lambda it: (hosts.index(hosts[it]), it))
        return [workers[place] for place in places]

    def late(self, now: float) -> List[int]:
        """Workers of rule 4; each is named once."""
        if self._held is None or now < self._held + self._terms.timeout_s:
            return []
        found = [number for number in self._those(INSIDE, ENDING) if number not in self._late]
        self._late.update(found)
        return found

    def notice(self, now: float) -> str:
        """A line each 10 s of waiting in vain, for ranks or for hosts; else empty."""
        since = self._waited_since()
        if since is None or now < since + NOTICE_S * (self._noticed + 1):
            return ""
        self._noticed += 1
        here, away = (" ".join(f"[{n}]" for n in self._those(it)) for it in (WAITING, INSIDE))
        limit = f"{self._terms.timeout_s:g} s"
        if self._held is None:
            return (
                f"for {now - since:.0f} s {here} waited for others: --min-np {self._terms.least}; "
                f"after {limit} the job ends (--elastic-timeout)"
            )
        return (
            f"for {now - since:.0f} s {here} waited for {away} to come to an operation or "
            f"state.commit(); after {limit} that is killed (--elastic-timeout)"
        )

    def _waited_since(self) -> Optional[float]:
        """When ready workers began to wait for some in a world, or for as many as a world needs."""
        return self._since if self._held is None else self._held

    def deadlines(self) -> List[float]:
        """When `advance`, `late` and `notice` have something to do, event or not."""
        found = [it + self._terms.timeout_s for it in (self._since, self._held) if it is not None]
        if self._gathers is not None:
            found.append(self._gathers)
        since = self._waited_since()
        return found if since is None else [*found, since + NOTICE_S * (self._noticed + 1)]
