"""Goal: the worlds of an elastic job (launch/worlds.py) follow their rules in every history.
Method: cases by hand; then random histories of workers that ask, become ready, fail and end, each
judged by the rules, whose numbers are those in the module. The seed is printed."""

from __future__ import annotations

import os
import random
import unittest
from collections import Counter
from typing import Dict, List, Optional, Sequence, Set

import harness  # noqa: F401  # makes `covey` importable in a source tree

from covey.launch.worlds import Terms, World, Worlds

SEED = int(os.environ.get("TEST_SEED") or random.SystemRandom().randrange(1 << 30))
HISTORIES = 20_000 if os.environ.get("TEST_SLOW") == "1" else 1_000


def terms(
    least: int = 1, restarts: int = 3, resets: Optional[int] = None, most: int = 3
) -> Terms:
    return Terms(least, most, restarts, resets, timeout_s=10.0)


def first_world(size: int, its: Terms, hosts: Sequence[int] = ()) -> Worlds:
    """In which all are ready; on one host, unless `hosts` says where all places are."""
    worlds = Worlds(its._replace(most=max(its.most, size)), hosts or [0] * size, size)
    for number in range(size):
        worlds.asks(number)
    assert worlds.advance(0.0) == World(0, list(range(size)))
    for number in range(size):
        worlds.is_ready(number)
    return worlds


class WorldsTest(unittest.TestCase):
    def test_the_first_world_waits_for_all_that_are_starting(self) -> None:
        worlds = Worlds(terms(most=2), [0, 0], 2)
        worlds.asks(1)
        self.assertIsNone(worlds.advance(0.0))
        worlds.asks(0)
        self.assertEqual(worlds.advance(0.0), World(0, [0, 1]))

    def test_the_others_go_on_at_once_and_a_newcomer_calls_them(self) -> None:
        worlds = first_world(3, terms())
        worlds.ends(0, False)
        self.assertEqual(worlds.wanted(), [0])
        worlds.starts(0)
        worlds.asks(2)
        self.assertEqual(worlds.called(0.0), [1])
        self.assertEqual(worlds.called(0.0), [], "each once")
        worlds.asks(1)
        self.assertEqual(worlds.advance(1.0), World(1, [1, 2]))
        worlds.asks(0)
        self.assertEqual(worlds.called(1.0), [1, 2])
        worlds.asks(1)
        self.assertIsNone(worlds.advance(2.0))
        worlds.asks(2)
        self.assertEqual(worlds.advance(3.0), World(2, [1, 2, 0]), "a newcomer is the last")

    def test_a_world_waits_for_the_least_number(self) -> None:
        worlds = first_world(2, terms(least=2))
        worlds.ends(1, False)
        worlds.asks(0)
        self.assertIsNone(worlds.advance(1.0))
        self.assertEqual(worlds.deadlines(), [11.0, 11.0], "and to say so")
        worlds.starts(1)
        worlds.asks(1)
        self.assertEqual(worlds.advance(2.0), World(1, [0, 1]))
        self.assertEqual(worlds.deadlines(), [])

    def test_ranks_that_keep_others_waiting_are_named_and_then_ended(self) -> None:
        worlds = first_world(3, Terms(1, 3, 3, None, timeout_s=25.0))
        worlds.ends(0, False)
        worlds.asks(2)
        worlds.starts(0)
        self.assertIsNone(worlds.advance(1.0))
        self.assertEqual(worlds.deadlines(), [26.0, 11.0])
        self.assertEqual(worlds.notice(10.0), "")
        self.assertIn("for 10 s [2] waited for [1]", worlds.notice(11.0))
        self.assertEqual(worlds.notice(11.0), "")
        self.assertIn("for 20 s [2] waited for [1]", worlds.notice(21.0))
        self.assertEqual((worlds.late(25.0), worlds.late(26.0), worlds.late(27.0)), ([], [1], []))
        worlds.ends(1, False)
        self.assertEqual(worlds.advance(27.0), World(1, [2]))
        self.assertEqual((worlds.notice(60.0), worlds.deadlines()), ("", []))

    def test_a_newcomer_waits_for_a_commit_without_a_limit(self) -> None:
        worlds = first_world(2, terms())
        worlds.ends(1, False)
        worlds.starts(1)
        worlds.asks(1)
        self.assertIsNone(worlds.advance(0.0))
        self.assertEqual((worlds.deadlines(), worlds.late(1e6), worlds.notice(1e6)), ([], [], ""))

    def test_a_program_that_asks_for_no_place_runs_as_long_as_it_likes(self) -> None:
        worlds = Worlds(terms(most=2), [0, 0], 2)
        self.assertIsNone(worlds.advance(0.0))
        self.assertIsNone(worlds.advance(1e6))
        self.assertEqual((worlds.failure, worlds.deadlines()), ("", []))

    def test_failures_say_why(self) -> None:
        early = Worlds(terms(most=2), [0, 0], 2)
        early.ends(1, False)
        self.assertIn("rank 1 failed before a rank had a state", early.failure)
        left = first_world(2, terms(least=2, restarts=0))
        left.ends(1, False)
        left.asks(0)
        self.assertIsNone(left.advance(0.0))
        self.assertIn("1 of 2 ranks are left (--min-np)", left.failure)
        late = first_world(2, terms(least=2))
        late.ends(1, False)
        late.asks(0)
        late.advance(5.0)
        late.advance(15.0)
        self.assertIn("1 of 2 ranks (--min-np) came within 10 s", late.failure)
        resets = first_world(2, terms(resets=0))
        resets.ends(1, False)
        resets.asks(0)
        resets.advance(0.0)
        self.assertIn("--reset-limit", resets.failure)
        self.assertEqual(resets.dismissed(), [0])
        gone = first_world(1, terms())
        gone.ends(0, False)
        self.assertIn("no rank is left that has the state", gone.failure)
        self.assertEqual(gone.wanted(), [])

    def test_after_a_good_end_nobody_comes(self) -> None:
        worlds = first_world(3, terms())
        worlds.ends(2, False)
        worlds.starts(2)
        worlds.ends(0, True)
        worlds.asks(1)
        self.assertIsNone(worlds.advance(0.0))
        self.assertEqual((worlds.superfluous(), worlds.dismissed()), ([2], [1]))
        self.assertEqual((worlds.superfluous(), worlds.dismissed()), ([], []))
        self.assertEqual((worlds.called(0.0), worlds.wanted(), worlds.failure), ([], [], ""))


class NewcomersTest(unittest.TestCase):
    def test_those_that_start_together_come_together(self) -> None:
        worlds = first_world(3, terms())
        for number in (1, 2):
            worlds.ends(number, False)
            worlds.starts(number)
        worlds.asks(1)
        self.assertEqual((worlds.called(7.0), worlds.deadlines()), ([], [12.0]))
        worlds.asks(2)
        self.assertEqual((worlds.called(8.0), worlds.deadlines()), ([0], []))

    def test_one_that_does_not_ask_is_waited_for_so_long(self) -> None:
        worlds = first_world(3, terms())
        for number in (1, 2):
            worlds.ends(number, False)
            worlds.starts(number)
        worlds.asks(1)
        self.assertEqual((worlds.called(7.0), worlds.called(11.9)), ([], []))
        self.assertEqual((worlds.called(12.0), worlds.deadlines()), ([0], []))

    def test_a_rank_that_has_left_its_world_waits_for_none_of_them(self) -> None:
        worlds = first_world(3, terms())
        worlds.ends(1, False)
        worlds.starts(1)
        worlds.asks(2)
        self.assertEqual(worlds.called(7.0), [0])


class HostsTest(unittest.TestCase):
    def test_ranks_of_a_host_follow_each_other(self) -> None:
        worlds = first_world(4, terms(), [0, 0, 1, 1])
        worlds.ends(0, False)
        worlds.starts(0)
        for number in (0, 1, 2, 3):
            worlds.asks(number)
        self.assertEqual(worlds.advance(0.0), World(1, [1, 0, 2, 3]))

    def test_a_lost_host_leaves_its_ranks_to_spare_places_and_costs_no_restart(self) -> None:
        worlds = first_world(2, terms(restarts=1), [0, 1, 2, 2])
        self.assertEqual(worlds.wanted(), [2], "most=3")
        worlds.starts(2)
        worlds.withdraws([1])
        worlds.ends(1, False)
        self.assertEqual(worlds.wanted(), [3])
        worlds.starts(3)
        worlds.ends(3, False)
        worlds.ends(2, False)
        self.assertEqual(worlds.wanted(), [2], "one restart")
        worlds.starts(2)
        self.assertEqual(worlds.wanted(), [])

    def test_a_place_where_fewer_processes_have_failed_comes_first(self) -> None:
        worlds = first_world(2, terms(most=2), [0, 0, 1])
        self.assertEqual(worlds.wanted(), [])
        worlds.ends(1, False)
        self.assertEqual(worlds.wanted(), [2])
        worlds.starts(2)
        worlds.ends(2, False)
        self.assertEqual(worlds.wanted(), [1])

    def test_without_room_the_reason_is_no_number_of_restarts(self) -> None:
        worlds = first_world(2, terms(least=2), [0, 1])
        worlds.withdraws([1])
        worlds.withdraws([1])
        worlds.ends(1, False)
        worlds.asks(0)
        self.assertIsNone(worlds.advance(0.0))
        self.assertIn("1 of 2 ranks are left (--min-np), and no more are", worlds.failure)
        self.assertTrue(worlds.failure.endswith("no host has room"), worlds.failure)

    def test_hosts_that_may_come_are_waited_for(self) -> None:
        worlds = first_world(2, terms(least=2)._replace(may_grow=True), [0, 1])
        worlds.withdraws([1])
        worlds.ends(1, False)
        worlds.asks(0)
        self.assertIsNone(worlds.advance(1.0))
        self.assertEqual((worlds.failure, worlds.deadlines()), ("", [11.0, 11.0]))
        worlds.offers({2: 2, 3: 2})
        self.assertEqual(worlds.wanted(), [2, 3])
        worlds.starts(2)
        worlds.asks(2)
        self.assertEqual(worlds.advance(2.0), World(1, [0, 2]))
        worlds.withdraws([2, 3])
        worlds.ends(2, False)
        worlds.asks(0)
        worlds.advance(2.0)
        self.assertIsNone(worlds.advance(12.0))
        self.assertIn("1 of 2 ranks (--min-np) came within 10 s", worlds.failure)


class History:
    """A random one, with what the rules say of it."""

    def __init__(self, drawn: random.Random) -> None:
        self.drawn = drawn
        self.size, spare = drawn.randint(1, 5), drawn.choice([0, 0, 1, 2])
        self.host_of = {number: number // 2 for number in range(self.size + spare)}
        resets = drawn.choice([None, drawn.randint(0, 4)])
        most = self.size + drawn.randint(0, spare)
        least = drawn.randint(1, self.size)
        self.terms = terms(least, drawn.randint(0, 4), resets, most)
        self.worlds = Worlds(self.terms, list(self.host_of.values()), self.size)
        self.failed: Counter[int] = Counter()
        self.lost: Set[int] = set()
        self.excused = 0
        self.knocked: Optional[float] = None  # New ones wait for those in a world since then.
        self.state: Dict[int, str] = dict.fromkeys(range(self.size), "starting")
        self.ready: Set[int] = set()
        self.called: Set[int] = set()
        self.last: List[int] = []
        self.made = self.started = 0
        self.is_done = False

    def event(self) -> None:
        """One that can happen."""
        worlds, drawn = self.worlds, self.drawn
        living = [number for number, state in self.state.items() if state != "done"]
        number = drawn.choice(living)
        often = ["asks", "asks", "asks", "ready", "ready"]
        what = drawn.choice([*often, "fails", "ends well", "host"])
        if what == "asks" and self.state[number] != "waiting":
            self.state[number] = "waiting"
            self.called.discard(number)
            worlds.asks(number)
        elif what == "ready" and self.state[number] == "inside":
            self.ready.add(number)
            worlds.is_ready(number)
        elif what == "fails" and drawn.random() < 0.3:
            self.fail(number)
        elif what == "host" and drawn.random() < 0.1:
            self.lose(self.host_of[number])
        elif what == "host" and drawn.random() < 0.1:  # It leaves.
            of_it = [it for it, its in self.host_of.items() if its == self.host_of[number]]
            self.lost.update(of_it)
            worlds.withdraws(of_it)
        elif what == "host" and drawn.random() < 0.2:
            new = {len(self.host_of): len(self.host_of), len(self.host_of) + 1: len(self.host_of)}
            self.host_of.update(new)
            worlds.offers(new)
        elif what == "ends well" and number in self.ready and drawn.random() < 0.1:
            self.state[number] = "done"
            self.is_done = True
            worlds.ends(number, True)

    def fail(self, number: int) -> None:
        del self.state[number]
        self.ready.discard(number)
        self.called.discard(number)
        self.failed[number] += 1
        self.excused += number in self.lost
        self.worlds.ends(number, False)

    def lose(self, host: int) -> None:
        """Before its workers have ended or after, as it comes."""
        of_it = [number for number, its in self.host_of.items() if its == host]
        workers = [number for number in of_it if self.state.get(number, "done") != "done"]
        self.lost.update(of_it)
        self.worlds.withdraws(of_it)
        for number in workers:
            self.fail(number)

    def follow(self, test: unittest.TestCase, now: float) -> None:
        """The rules hold after the events."""
        worlds = self.worlds
        wanted = worlds.wanted()
        left = set(self.host_of) - set(self.state) - self.lost - set(wanted)
        for number in wanted:
            test.assertNotIn(number, self.state)
            test.assertNotIn(number, self.lost)
            test.assertTrue(all(self.failed[number] <= self.failed[it] for it in left), "rule 3")
            self.started += 1
            self.state[number] = "starting"
            worlds.starts(number)
        test.assertEqual(worlds.wanted(), [])
        test.assertLessEqual(len(self.state), self.terms.most, "rule 3")
        growth = self.terms.most - self.size + self.excused
        test.assertLessEqual(self.started, self.terms.restarts + growth, "rule 3")
        world = worlds.advance(now)
        if world is not None:
            self.check(test, world)
        waiting = [
            it for it, state in self.state.items() if state == "waiting" and it not in self.lost
        ]
        inside = [number for number, state in self.state.items() if state == "inside"]
        if not worlds.failure and not self.is_done and not inside:
            starting = "starting" in self.state.values()
            is_first = self.made == 0 and starting
            test.assertTrue(is_first or len(waiting) < self.terms.least, "rule 1: none is made")
        if waiting and inside and not self.is_done:
            for number in worlds.called(now):
                test.assertNotIn(number, self.called, "each once")
                self.called.add(number)
            self.knocked = now if self.knocked is None else self.knocked
            is_new = not self.ready & set(waiting) and not self.lost & set(self.state)
            if not (is_new and "starting" in self.state.values() and now < self.knocked + 5):
                test.assertEqual(self.called & set(inside), set(inside), "rule 6")
        else:
            self.knocked = None
            self.called.update(worlds.called(now))
        for number in worlds.superfluous():
            test.assertIn(self.state[number], ("waiting", "starting"))
            test.assertTrue(self.is_done or number in self.lost)
            self.fail(number)

    def check(self, test: unittest.TestCase, world: World) -> None:
        states = {self.state[number] for number in world.workers}
        test.assertEqual(states, {"waiting"})
        test.assertFalse(self.lost & set(world.workers))
        test.assertNotIn("inside", self.state.values(), "rule 1")
        test.assertGreaterEqual(len(world.workers), self.terms.least, "rule 1")
        test.assertFalse(self.is_done)
        before = [it for it in self.last if it in self.ready and it in world.workers]
        wanted: List[int] = []
        for number in (*before, *sorted(world.workers)):
            of_host = (*before, *sorted(set(world.workers) - set(before)))
            same = [it for it in of_host if self.host_of[it] == self.host_of[number]]
            wanted += [] if number in wanted else same
        test.assertEqual(world.workers, wanted, "rule 2")
        test.assertEqual(world.number, self.made)
        self.last, self.made = world.workers, self.made + 1
        if self.terms.resets is not None:
            test.assertLessEqual(world.number, self.terms.resets, "rule 5")
        for number in world.workers:
            self.state[number] = "inside"


class HistoriesTest(unittest.TestCase):
    def test_random_histories(self) -> None:
        print(f"seed {SEED}", flush=True)
        worlds = failed = 0
        for number in range(HISTORIES):
            history = History(random.Random(SEED + number))
            now = 0.0
            with self.subTest(seed=SEED + number):
                while now < 60 and not history.worlds.failure:
                    if all(state == "done" for state in history.state.values()):
                        break
                    history.event()
                    history.follow(self, now)
                    now += history.drawn.choice([0.0, 0.1, 1.0])
            worlds += history.made
            failed += bool(history.worlds.failure)
        self.assertGreater(worlds, HISTORIES)
        self.assertGreater(failed, HISTORIES // 20)


if __name__ == "__main__":
    unittest.main()
