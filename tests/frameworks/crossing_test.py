"""What ranks do together between two methods, and at the end of finish(), when one is stopped, or
dies, within that: nobody waits for it for longer than max_wait at a time, all are told who it is,
and replicas are equal in the end.

Method: a rank stops itself before an exchange, and files say what the others were told; what comes
of it is what comes of a job in which nobody stops. Hashes.
"""

from __future__ import annotations

import unittest
from typing import List

from crossings import AT_THE_END, ROUNDS, STATE, Crossed, train
from ranks import SEED, ranks_may_die, with_majority
from watched import Watched

# Of rounds of all, so that they do the same twice.
LOCAL = "local:H=2,max_wait=2s"
WAGMA = "wagma:S=1,tau=2,admit=all,max_wait=2s"
EAGER = "eager:admit=all,max_wait=2s"
STEPS = 9


def setUpModule() -> None:
    print(f"seed {SEED}")


class CrossingTest(unittest.TestCase):
    def test_who_stops_within_the_switch_holds_up_nobody_for_ever(self) -> None:
        """All others are told who it is, after max_wait; nothing is lost, and it goes on."""
        for number, (size, stopped, method, word) in enumerate((
            (2, 1, f"{LOCAL},then=allreduce@6", STATE),
            (4, 0, f"{LOCAL},then=allreduce@6:max_wait=2s", ROUNDS),
            (2, 0, f"{WAGMA},then={EAGER.replace(':', '@6:')}", ROUNDS),
            (2, 1, f"{EAGER},then={WAGMA.replace(':', '@4:')},then=local@6:H=2", STATE),
            (4, 3, f"{LOCAL},then={WAGMA.replace(':', '@6:')}", STATE),
        )):
            finishes = number % 2 == 1  # They wait on in finish(), else in step().
            undisturbed = (method, STEPS, -1, word, False, finishes)
            with self.subTest(method), Watched(size, __file__, train, *undisturbed) as job:
                expected = job.pool.collect()[0].model
                args = (job.folder.name, method, STEPS, stopped, word, False, finishes)
                job.pool.send(train, *args)
                results = self.go_on_when_said(job, stopped, f"{finishes}")
                self.assertEqual(len({end.model for end in results}), 1, results)
                self.assertEqual(results[0].model, expected)
                for rank, end in enumerate(results):
                    self.assertEqual(bool(end.said), rank != stopped, results)
                    for message in end.said:
                        self.assertRegex(message, rf"has waited 2000 ms .* for rank {stopped}\b")

    def go_on_when_said(self, job: Watched, stopped: int, mark: str) -> List[Crossed]:
        """A rank has stopped itself: it goes on once all others were told so."""
        job.wait_until_stopped(stopped)
        for other in set(range(job.pool.size)) - {stopped}:
            job.wait_for(f"said {other} {mark}")
        job.go_on(stopped)
        results: List[Crossed] = job.pool.collect()
        return results

    def test_who_stops_as_finish_ends_holds_up_nobody_for_ever(self) -> None:
        for size, stopped, method in with_majority((2, 0, LOCAL), (4, 3, WAGMA)):
            with self.subTest(method), Watched(
                size, __file__, train, method, STEPS, stopped, AT_THE_END, False, False
            ) as job:
                results = self.go_on_when_said(job, stopped, "False")
                self.assertEqual(len({end.model for end in results}), 1, results)
                self.assertEqual([bool(end.said) for end in results],
                                 [rank != stopped for rank in range(size)])

    @ranks_may_die
    def test_who_dies_within_the_switch_is_named(self) -> None:
        for size, killed, method, word in (
            (2, 1, f"{LOCAL},then=allreduce@6", STATE),
            (4, 0, f"{WAGMA},then=adpsgd@6", ROUNDS),
        ):
            with self.subTest(method), Watched(
                size, __file__, train, method, STEPS, killed, word, True, False
            ) as job:
                for rank, end in enumerate(job.pool.collect(may_end=True)):
                    if rank != killed:
                        self.assertIn(f"rank {killed}", end.said[-1])


if __name__ == "__main__":
    unittest.main()
