"""One live process for each rank is agreed on, whatever earlier processes have left in the store.

Method: processes are threads; their store is a dictionary that can kill one of them at any of its
calls. Random histories of processes that were killed, with a printed seed, then one without.
"""

from __future__ import annotations

import random
import threading
import unittest
from datetime import timedelta
from typing import Any, Dict, List, Optional
from unittest import mock

from ranks import SEED

from covey import store_generation
from covey.errors import Timeout
from covey.launch import rendezvous_handler
from covey.store_generation import Generation, agree

HISTORIES = 150
LIMIT_S = 60.0


class Killed(BaseException):
    """The process has ended here."""


class Memory:
    """The contents of the store."""

    def __init__(self) -> None:
        self.words: Dict[str, bytes] = {}
        self.changed = threading.Condition()


class Store:
    """A store of torch.distributed as one process sees it.

    Args:
        calls: so many the process lives; None: it is not killed.
    """

    def __init__(self, memory: Memory, calls: Optional[int] = None) -> None:
        self._memory = memory
        self._calls = calls
        self.is_killed = False

    def _live(self) -> None:
        if self._calls is not None:
            self._calls -= 1
        if self.is_killed or (self._calls is not None and self._calls < 0):
            raise Killed

    def add(self, key: str, amount: int) -> int:
        with self._memory.changed:
            self._live()
            total = int(self._memory.words.get(key, b"0")) + amount
            self._memory.words[key] = str(total).encode()
            return total

    def set(self, key: str, text: str) -> None:
        with self._memory.changed:
            self._live()
            self._memory.words[key] = text.encode()
            self._memory.changed.notify_all()

    def check(self, keys: List[str]) -> bool:
        with self._memory.changed:
            self._live()
            return all(key in self._memory.words for key in keys)

    def get(self, key: str) -> bytes:
        with self._memory.changed:
            self._live()
            return self._memory.words[key]

    def wait(self, keys: List[str], limit: timedelta) -> None:
        with self._memory.changed:
            self._live()
            if not self._memory.changed.wait_for(
                lambda: self.is_killed or all(key in self._memory.words for key in keys),
                limit.total_seconds(),
            ):
                raise RuntimeError("time is over")
            self._live()

    def kill(self) -> None:
        with self._memory.changed:
            self.is_killed = True
            self._memory.changed.notify_all()


class Process(threading.Thread):
    """A process of a rank that looks for its generation."""

    def __init__(self, memory: Memory, rank: int, size: int, calls: Optional[int] = None) -> None:
        super().__init__(daemon=True)
        self.store = Store(memory, calls)
        self.outcome: Any = None
        self._place = (rank, size)
        self.start()

    def run(self) -> None:
        rank, size = self._place
        try:
            self.outcome = agree(self.store, rank, size, "init", f"note{rank % 2}")
        except (Killed, Timeout) as error:
            self.outcome = error

    def result(self) -> Any:
        self.join(LIMIT_S)
        assert not self.is_alive(), "it does not end"
        return self.outcome

    def kill(self) -> None:
        self.store.kill()
        self.result()


class StoreGenerationTest(unittest.TestCase):
    def setUp(self) -> None:
        self.memory = Memory()
        self.limit(LIMIT_S)
        self.patch(store_generation, "_GAP_S", 0.01)

    def patch(self, module: Any, name: str, value: Any) -> None:
        patched = mock.patch.object(module, name, value)
        patched.start()
        self.addCleanup(patched.stop)

    def limit(self, limit_s: float) -> None:
        self.patch(rendezvous_handler, "start_timeout_s", lambda: limit_s)

    def start(self, rank: int, size: int, calls: Optional[int] = None) -> Process:
        return Process(self.memory, rank, size, calls)

    def check(self, processes: List[Process], size: int = 0) -> str:
        """The name of the one generation in which all are. ``size``: with processes that ended."""
        (generation,) = {(each.name, *each.notes) for each in (p.result() for p in processes)}
        name, *notes = generation
        self.assertEqual(notes, ["note0", "note1"][: size or len(processes)])
        return name

    def test_generations_follow_each_other(self) -> None:
        names = set()
        for size in (1, 2, 3, 3, 2, 1, 5):
            names.add(self.check([self.start(rank, size) for rank in reversed(range(size))][::-1]))
        self.assertEqual(len(names), 7)

    def test_whatever_was_killed_before(self) -> None:
        print(f"seed {SEED}")
        for history in range(HISTORIES):
            draw = random.Random(SEED + history)
            self.memory = Memory()
            size = draw.choice((2, 3, 4))
            names = set()
            with self.subTest(seed=SEED + history):
                for _ in range(draw.randrange(4)):
                    ranks = draw.sample(range(size), draw.randint(1, size))
                    some = [self.start(rank, size, draw.randrange(30)) for rank in ranks]
                    for process in draw.sample(some, len(some)):
                        process.kill()
                    names |= {p.outcome.name for p in some if isinstance(p.outcome, Generation)}
                last = [self.start(rank, size) for rank in range(size)]
                self.assertNotIn(self.check(last), names)

    def test_a_process_is_replaced_while_others_wait(self) -> None:
        for calls in range(20):
            with self.subTest(calls=calls):
                self.memory = Memory()
                others = [self.start(0, 3), self.start(1, 3)]
                lost = self.start(2, 3, calls)
                lost.result()
                if any(text.startswith(b"here 2") for text in self.memory.words.values()):
                    self.check(others, 3)  # It had agreed: they are in a generation with it.
                else:
                    self.check([*others, self.start(2, 3)])

    def test_rank_0_is_replaced_while_others_wait(self) -> None:
        for calls in range(40):
            with self.subTest(calls=calls):
                self.memory = Memory()
                others = [self.start(1, 3), self.start(2, 3)]
                self.start(0, 3, calls).result()
                if any(text.startswith(b"begin") for text in self.memory.words.values()):
                    for other in others:
                        other.kill()  # One of them may be in a generation already.
                else:
                    self.check([self.start(0, 3), *others])

    def test_ranks_that_are_late_are_named(self) -> None:
        others = [self.start(rank, 5) for rank in (2, 4)]
        inbox = [f"covey/generation/5/inbox/{number}" for number in (1, 2)]
        Store(self.memory).wait(inbox, timedelta(seconds=LIMIT_S))
        self.limit(0.2)  # Of rank 0, which finds their messages there.
        for process, rank in zip([self.start(0, 5), *others], (0, 2, 4)):
            said = str(process.result())
            self.assertIn(f"rank {rank} of 5: ranks 1, 3 did not call init within", said)
        self.assertIn("rank 1 of 2: ranks 0 did not call", str(self.start(1, 2).result()))

    def test_words_of_strangers_are_left(self) -> None:
        store = Store(self.memory)
        last = 0
        for text in ("", "came", "came 1", "came x y z", "came 9 a b", "here 1", "here -1 a", "x"):
            last = store.add("covey/generation/2/count", 1)
            store.set(f"covey/generation/2/inbox/{last}", text)
        other = self.start(1, 2)
        store.wait([f"covey/generation/2/inbox/{last + 1}"], timedelta(seconds=LIMIT_S))
        store.set(f"covey/generation/2/inbox/{store.add('covey/generation/2/count', 1)}", "x")
        self.check([self.start(0, 2), other])


if __name__ == "__main__":
    unittest.main()
