"""Messages between two ranks of a process group: send, recv, and recv from any rank. Internal.

A message is a broadcast in the group of its two ranks, which has a stream of its own for each
direction: the messages of one tag are received in the order in which they were sent. So a send ends
when its receive has begun, as Gloo's does.

A receive from any rank has to learn whose message is next. Rules:

1. A rank that receives so says it in the group's store, once: key ``asks.RANK``.
2. A send that has not ended after LOOK_S looks for its receiver's key, again and again, and is
   announced once the key is there: message N to a rank is ``to.RANK.N``. One thread looks for all
   sends of a group, and sleeps while there are none.
3. The receiver takes the first announced message of its tag that it has not received otherwise, and
   deletes what it has read.
4. Receives of one tag find their messages in the order in which they were begun: a receive from a
   named rank waits until those from any rank before it have found theirs. The thread of rule 2
   looks for them too, so a message is received while the program waits for something else.

So a send to a rank that names its senders costs no look into the store unless it waits long. A
receive from any rank ends with an error when no other rank of the group is left.
"""

from __future__ import annotations

import contextlib
import functools
import threading
import time
from collections import Counter, deque
from datetime import timedelta
from typing import Any, Callable, Deque, Dict, List, NamedTuple, Optional, Tuple

import torch
import torch.distributed as dist

import covey.torch as hvd
from covey import basics
from covey.errors import Aborted, InvalidArgument
from covey.group import GroupApart
from covey.state import state
from covey.torch.c10d.call_stream import CallStream, stream_of
from covey.torch.c10d.completions import LEAVE_S, Program, at_exit, waiting
from covey.torch.c10d.tracing import check_real, untraced
from covey.torch.c10d.work import CoveyWork, InFlight, Limit
from covey.torch.tensors import CODES

LOOK_S = 0.02
_LEAST_PAUSE_S = 0.0002
_MOST_PAUSE_S = 0.005


class Message(NamedTuple):
    """A message that was announced: the ``number``-th of that tag from ``source``."""

    source: int
    tag: int
    number: int


class Stream:
    """The messages from one rank of the group to another."""

    def __init__(self, ranks: List[int], source: int, target: int, group: str) -> None:
        name = f"c10d.{group}.{source}.{target}"
        self.root = ranks[source]
        self.ranks = sorted((ranks[source], ranks[target]))
        self.group = GroupApart(self.ranks, name)
        self.program = Program(name)
        self.begun: Counter[int] = Counter()  # Messages, by tag.


class Announcer:
    """The thread of rules 2 and 4, which the first send, or receive from any rank, starts."""

    def __init__(self) -> None:
        self._sends: Deque[Tuple[Any, Callable[[], bool]]] = deque()
        self._news = threading.Event()
        self._closed = threading.Event()
        self._thread: Optional[threading.Thread] = None
        at_exit(self.close)

    def add(self, work: Any, announce: Callable[[], bool]) -> None:
        """``announce`` is called until it says true, unless ``work.has_ended()`` says so before."""
        self._sends.append((work, announce))
        if self._thread is None:
            run = functools.partial(_announce, self._sends, self._news, self._closed)
            self._thread = threading.Thread(target=run, name="covey-c10d-sends", daemon=True)
            self._thread.start()
        if not self._news.is_set():
            self._news.set()

    def close(self) -> None:
        """Ends the thread, and waits LEAVE_S at most for it. Sends that have not ended are
        announced no more."""
        if self._thread is not None:
            self._closed.set()
            self._news.set()
            self._thread.join(LEAVE_S)


def _announce(
    sends: Deque[Tuple[Any, Callable[[], bool]]],
    news: threading.Event,
    closed: threading.Event,
) -> None:
    while True:
        news.wait()
        if closed.wait(LOOK_S):
            return
        for _ in range(len(sends)):
            work, announce = sends.popleft()
            try:
                if not work.has_ended() and not announce():
                    sends.append((work, announce))
            except (RuntimeError, ValueError):  # The store is gone, as at the end of the job.
                pass
        if not sends:
            news.clear()
            if sends or closed.is_set():  # That news may have come before it was cleared.
                news.set()


def _place_of(tensor: torch.Tensor) -> Optional[CallStream]:
    """The stream of a call made now."""
    return stream_of([tensor], []) if torch.cuda.is_initialized() else None


def _as_moved(row: torch.Tensor) -> torch.Tensor:
    """The same memory: as bytes, if Covey has no such dtype (float8), since nothing is added up."""
    return row if row.dtype in CODES else row.view(torch.uint8)


@untraced
class RecvWork(CoveyWork):
    def __init__(self, *of_work: Any, source: int) -> None:
        super().__init__(*of_work)
        self._source = source

    def _source_rank(self) -> int:
        """In the group."""
        return self._source


@untraced
class AnyWork(dist._Work):
    """A receive that is begun once its message is known (rules 3 and 4)."""

    def __init__(
        self, posted: Posted, begin: Callable[[], Optional[RecvWork]], limit: Limit
    ) -> None:
        """``begin``: begins the receive; None: its message is not known so far."""
        super().__init__()
        self._posted = posted
        self._begin = begin
        self._limit = limit
        self._work: Optional[RecvWork] = None
        posted.add(self)

    def begun(self) -> bool:
        """Begins it, if it can; the caller knows that its turn has come."""
        self._work = self._work or self._begin()
        return self._work is not None

    def found(self) -> Optional[RecvWork]:
        if self._work is None:
            self._posted.serve()
        return self._work

    def has_ended(self) -> bool:
        """It is looked for no more."""
        return self._work is not None or self not in self._posted

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        seconds = timeout.total_seconds()
        until = time.monotonic() + (seconds or self._limit.left())
        pause = _LEAST_PAUSE_S
        with waiting():
            self._posted.add(self)
            work = self.found()
            while work is None:
                if time.monotonic() >= until:
                    if self._limit.left() == 0:
                        self._posted.withdraw(self)  # The next receive gets what comes now.
                    if self._work is None:
                        raise self._limit.unmet(seconds or None)
                time.sleep(pause)
                pause = min(2 * pause, _MOST_PAUSE_S)
                work = self.found()
        return work.wait(timeout)

    def is_completed(self) -> bool:
        work = self.found()
        return self._limit.left() == 0 if work is None else work.is_completed()

    def is_success(self) -> bool:
        return self._work is not None and self._work.is_success()

    def exception(self) -> Any:
        return None if self._work is None else self._work.exception()

    def _source_rank(self) -> int:
        """In the group; -1 before a wait."""
        return -1 if self._work is None else self._work._source_rank()

    def result(self) -> List[torch.Tensor]:
        self.wait()
        return self._work.result() if self._work is not None else []


class Posted:
    """The receives of one tag that wait for messages, in the order in which they were begun."""

    def __init__(self, lock: Any) -> None:
        """``lock``: of all receives of a rank of the group."""
        self._works: List[AnyWork] = []
        self._lock = lock

    def __contains__(self, work: object) -> bool:
        return work in self._works

    def __len__(self) -> int:
        return len(self._works)

    def add(self, work: AnyWork) -> None:
        """At the end, unless it is one of them or has found its message."""
        with self._lock:
            if work not in self._works and work._work is None:
                self._works.append(work)

    def withdraw(self, work: AnyWork) -> None:
        with self._lock:
            if work in self._works:
                self._works.remove(work)

    def serve(self) -> None:
        """Begins those whose messages are known. Raises Aborted."""
        with self._lock:
            while self._works and self._works[0].begun():
                del self._works[0]


class Points:
    """The messages of one rank of a process group. One thread at a time sends to a rank, and one
    receives from it."""

    def __init__(
        self, rank: int, ranks: List[int], group: str, store: Any, calls: InFlight
    ) -> None:
        """
        Args:
            rank: in the group.
            ranks: of the job, by rank in the group.
            group: its name.
            store: of the group's ranks, and of nothing else.
            calls: of the group.
        """
        self._rank = rank
        self._ranks = ranks
        self._name = group
        self._store = store
        self._calls = calls
        self._announcer = Announcer()
        self._streams: Dict[Tuple[int, int], Stream] = {}
        self._receiving = threading.RLock()
        self._posted: Dict[int, Posted] = {}  # By tag.
        self._asks = False
        self._heard = 0
        self._announced: List[Message] = []
        self._runtime = state.init_epoch

    def close(self) -> None:
        self._announcer.close()

    def send(self, tensor: torch.Tensor, target: int, tag: int, timeout: timedelta) -> CoveyWork:
        stream = self._stream(self._rank, target, "sends")
        number = stream.begun[tag]
        check_real(tensor, "send")
        row = _as_moved(tensor.detach().reshape(-1))
        announce = functools.partial(self._announce, target, Message(self._rank, tag, number))
        work = CoveyWork(*self._begun("send", stream, row, tag, timeout, [tensor]))
        self._announcer.add(work, announce)
        return work

    def recv(self, tensor: torch.Tensor, source: int, tag: int, timeout: timedelta) -> Any:
        """A RecvWork; an AnyWork if receives from any rank come before it."""
        check_real(tensor, "recv")
        self._stream(source, self._rank, "receives")  # Raises InvalidArgument.
        with self._receiving:
            if not self._posted.get(tag):
                return self._recv(tensor, source, tag, timeout)
            begin = functools.partial(self._recv, tensor, source, tag, timeout, _place_of(tensor))
            what = f"recv from rank {source} in process group '{self._name}', after one from any"
            return self._post(begin, tag, Limit(what, self._ranks, timeout))

    def _post(self, begin: Callable[[], Optional[RecvWork]], tag: int, limit: Limit) -> AnyWork:
        posted = self._posted.setdefault(tag, Posted(self._receiving))
        work = AnyWork(posted, begin, limit)
        self._announcer.add(work, lambda: work.found() is not None)
        return work

    def _recv(
        self,
        tensor: torch.Tensor,
        source: int,
        tag: int,
        timeout: timedelta,
        place: Optional[CallStream] = None,
    ) -> RecvWork:
        stream = self._stream(source, self._rank, "receives")
        target = tensor.detach()
        row = target.reshape(-1)
        is_copy = row.data_ptr() != target.data_ptr()
        with place.entered() if place else contextlib.nullcontext():
            begun = self._begun("recv", stream, _as_moved(row), tag, timeout, [tensor])
        if is_copy:
            begun[2] = lambda come: target.copy_(come.view(target.dtype).view(target.shape))
        return RecvWork(*begun, source=source)

    def recv_any(self, tensor: torch.Tensor, tag: int, timeout: timedelta) -> AnyWork:
        check_real(tensor, "recv")
        if not self._asks:
            self._asks = True
            self._store.set(f"asks.{self._rank}", "1")
        what = f"recv from any rank in process group '{self._name}'"
        limit = Limit(what, self._ranks, timeout)
        place = _place_of(tensor)

        def find() -> Optional[RecvWork]:
            if self._runtime != state.init_epoch:
                raise Aborted(f"{what}: this rank has shut down")
            lost = basics.lost_ranks()  # Before the look: what it has announced comes first.
            source = self._next_source(tag)
            if source is not None:
                return self._recv(tensor, source, tag, timeout, place)
            others = [rank for rank in self._ranks if rank != self._ranks[self._rank]]
            if all(rank in lost for rank in others):
                raise Aborted(f"{what}: no rank is left that could send; lost ranks: {others}")
            return None

        return self._post(find, tag, limit)

    def _begun(
        self,
        what: str,
        stream: Stream,
        row: torch.Tensor,
        tag: int,
        timeout: timedelta,
        outputs: List[torch.Tensor],
    ) -> List[Any]:
        """The arguments of a CoveyWork."""
        call = stream.program.next_call()
        name = f"{tag}.{stream.begun[tag]}" if tag else None
        stream.begun[tag] += 1
        limit = Limit(f"{what} in process group '{self._name}'", stream.ranks, timeout)
        handle = hvd.broadcast_async_(row, stream.root, name=name, process_set=stream.group)
        stream.program.made()
        place = _place_of(row)
        return [handle, outputs, lambda _: None, call, place, limit, stream, self._calls]

    def _stream(self, source: int, target: int, verb: str) -> Stream:
        peer = target if source == self._rank else source
        if not 0 <= peer < len(self._ranks) or source == target:
            raise InvalidArgument(
                f"rank {self._rank} of process group '{self._name}' {verb} nothing "
                f"{'to' if verb == 'sends' else 'from'} rank {peer}: the others of its "
                f"{len(self._ranks)} ranks are possible"
            )
        if (source, target) not in self._streams:
            self._streams[source, target] = Stream(self._ranks, source, target, self._name)
        return self._streams[source, target]

    def _announce(self, target: int, message: Message) -> bool:
        """False: the receiver has not asked so far."""
        if not self._store.check([f"asks.{target}"]):
            return False
        place = self._store.add(f"to.{target}", 1)
        self._store.set(f"to.{target}.{place}", " ".join(map(str, message)))
        return True

    def _next_source(self, tag: int) -> Optional[int]:
        """The sender of the first announced message of that tag that has not been received
        (rule 3)."""
        while self._store.check([f"to.{self._rank}.{self._heard + 1}"]):
            self._heard += 1
            key = f"to.{self._rank}.{self._heard}"
            self._announced.append(Message(*map(int, self._store.get(key).split())))
            self._store.delete_key(key)
        self._announced = [
            one
            for one in self._announced
            if one.number >= self._stream(one.source, self._rank, "receives").begun[one.tag]
        ]
        mine = (one for one in self._announced if one.tag == tag)
        return next((one.source for one in mine), None)
