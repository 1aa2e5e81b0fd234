"""The place of this process in the job. Internal.

``place`` is kept here and not asked from the core each time, so that ``rank()`` also answers in a
child of ``fork()`` such as a data loader's worker.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections import Counter
from typing import Any, Dict, List, NamedTuple, Optional, Protocol

from covey.errors import NotInitialized


class Place(NamedTuple):
    """Where a process stands in its job."""

    rank: int
    size: int
    local_rank: int
    local_size: int


class Flush(Protocol):
    """Messages that may still be due to the other ranks."""

    def flush(self) -> None:
        """Says it, for a bounded time. Raises nothing."""


class Helper(Protocol):
    """A part that serves other ranks while this rank waits for anything at all."""

    def help(self) -> None:
        """Gives it to them, at once. Raises nothing."""


class Training(Protocol):
    """A part that goes on in the next world of an elastic job."""

    def leave(self) -> None:
        """The world is over. Asks no other rank."""

    def enter(self) -> None:
        """The next one has begun; all its ranks have the same state."""


class Placed(Protocol):
    """A part whose tensors may lie in memory of the core."""

    def move_out(self) -> None:
        """They leave memory that ends with the runtime."""


class State:
    """The place of this process, and the runtime that it belongs to.

    Attributes:
        place: None before ``init()`` and after ``shutdown()``.
        init_epoch: changes with every runtime that ``init()`` makes or ``shutdown()`` ends. Facts
            of one runtime (group numbers) do not hold for the next.
        process: id of the process that called ``init()``; another one is a child of ``fork()``.
        settings: the argument of ``init(settings=...)``.
        rendezvous_settings: where this process finds its job, when the environment does not say
            so (rendezvous.py).
        store: where it was found, kept while other ranks may still look there.
        of_group: where a default process group of torch.distributed began the runtime, and
            ``init()`` was not called since: "due" before the group is made, then "made". The next
            default group begins another.
        groups: by their number of ranks, the default groups that this process has begun.
        generation: the name of that in which ``init()`` found the job by torchrun's store, which
            may have served others (store_generation.py).
        elastic: this process's way to coveyrun, where that has told it a place in an elastic job
            (elastic_job.py).
        group_keys: in the stores of the default group and of its parts, the prefix of what their
            ranks tell each other. A store may have served other groups of those names.
    """

    def __init__(self) -> None:
        self.place: Optional[Place] = None
        self.init_epoch = 0
        self.process = 0
        self.settings: Dict[str, object] = {}
        # To be called before the runtime ends, in the order in which they were made, which is the
        # other ranks' too: each waits for them, then says what it has done, or nothing.
        self.flushes: "weakref.WeakValueDictionary[int, Flush]" = weakref.WeakValueDictionary()
        self._helpers: "weakref.WeakKeyDictionary[Helper, int]" = weakref.WeakKeyDictionary()
        self.placed: "weakref.WeakSet[Placed]" = weakref.WeakSet()
        self._made = 0
        self._trainings: "weakref.WeakValueDictionary[int, Training]" = (
            weakref.WeakValueDictionary()
        )
        self._optimizers: "weakref.WeakValueDictionary[int, Any]" = weakref.WeakValueDictionary()
        self.rendezvous_settings: Optional[Dict[str, object]] = None
        self.store: Any = None
        self.of_group = ""
        self.groups: Counter[int] = Counter()
        self.group_keys = "covey"
        self.generation = ""
        self.elastic: Any = None

    def add_flush(self, flush: Flush) -> None:
        """Keeps it as long as it lives."""
        self._made += 1
        self.flushes[self._made] = flush

    def add_helper(self, helper: Helper) -> None:
        """Keeps it as long as it lives, for this thread."""
        self._helpers[helper] = threading.get_ident()

    def help(self) -> None:
        """Any thread that waits in the core calls it every 50 ms: a rank may wait for one that can
        go on only with what this one has. What another thread is at may be half done. Raises
        Aborted in an elastic job: ends the wait, see `ElasticJob.check`."""
        here = threading.get_ident()
        for helper, thread in list(self._helpers.items()):
            if thread == here:
                helper.help()
        if self.elastic is not None:
            self.elastic.check()

    def add_optimizer(self, optimizer: Any) -> None:
        """Keeps a distributed optimizer as long as it lives."""
        self._made += 1
        self._optimizers[self._made] = optimizer

    def optimizers(self) -> List[Any]:
        """Those that live, the newest first."""
        return [optimizer for _, optimizer in sorted(self._optimizers.items(), reverse=True)]

    def add_training(self, training: Training) -> None:
        """Keeps it as long as it lives."""
        self._made += 1
        self._trainings[self._made] = training

    def trainings(self) -> List[Training]:
        """Those that live, the oldest first."""
        return [training for _, training in sorted(self._trainings.items())]

    def forget_job(self) -> None:
        """The next runtime is of another job. There is none now."""
        met, self.rendezvous_settings = self.rendezvous_settings or {}, None
        for name in ("shm_fd", "book_fd", "listen_fd", "witness_fd"):
            descriptor = met.get(name, -1)
            if isinstance(descriptor, int) and descriptor >= 0:
                os.close(descriptor)

    def require(self) -> Place:
        """The place; raises NotInitialized when there is none."""
        if self.place is None:
            raise NotInitialized("covey is not initialized: call covey.init() first")
        return self.place


state = State()
