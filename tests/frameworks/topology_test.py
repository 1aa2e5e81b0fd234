"""Goal: a topology over several hosts says which rounds are between hosts, and how fast it mixes;
what makes no sense is refused. Method: rows of all ranks; rates against those of the parts."""

from __future__ import annotations

import unittest
from typing import Any

import covey

EVEN = [0, 0, 0, 0, 1, 1, 1, 1]
UNEVEN = [0, 1, 0, 0]


class HostsTest(unittest.TestCase):
    def test_every_kth_round_is_between_hosts(self) -> None:
        for name in ("ring", "exponential", "one_peer", "bipartite", "full", "matching"):
            for hosts in (EVEN, UNEVEN):
                chosen = covey.topology(name, size=len(hosts), hosts=hosts, cross_every=3)
                with self.subTest(name=name, hosts=hosts):
                    for turn in range(12):
                        rows = [chosen.weights(i, turn) for i in range(len(hosts))]
                        for row in (*rows, *zip(*rows)):
                            self.assertAlmostEqual(sum(row), 1)
                        for i, row in enumerate(rows):
                            for j, weight in enumerate(row):
                                if weight and j != i:
                                    self.assertEqual(hosts[i] != hosts[j], turn % 3 == 2)
                                taken = bool(weight) and j != i
                                self.assertEqual(i in chosen.receivers(j, turn), taken)
                    self.assertTrue(chosen.is_connected)
                    self.assertLess(chosen.column_error, 1e-12)
                    self.assertLess(chosen.contraction, 1)

    def test_one_peer_has_the_exact_mean_after_a_period(self) -> None:
        chosen = covey.topology("one_peer", size=8, hosts=EVEN, cross_every=3)
        self.assertEqual((chosen.period, chosen.cross_every, chosen.hosts), (3, 3, tuple(EVEN)))
        self.assertLess(chosen.contraction, 1e-4)
        self.assertEqual(chosen.weights(5, 2), [0, 0.5, 0, 0, 0, 0.5, 0, 0])

    def test_the_rate_is_that_of_the_parts(self) -> None:
        chosen = covey.topology("ring", size=8, hosts=[i // 4 for i in range(8)], cross_every=5)
        within = covey.topology("ring", size=4).contraction
        self.assertAlmostEqual(chosen.contraction, within ** (4 / 5), places=5)

    def test_what_makes_no_sense_is_refused(self) -> None:
        def refused(text: str, *args: Any, **given: Any) -> None:
            with self.assertRaisesRegex(covey.InvalidArgument, text):
                covey.topology(*args, **given)

        refused("hosts, the host of each rank, is not given", "ring", size=4, cross_every=2)
        refused("a number from 1, not 0", "ring", size=2, hosts=[0, 0], cross_every=0)
        refused("from 1 to 1000, not 1001", "ring", size=2, hosts=[0, 0], cross_every=1001)
        refused("numbers from 0 to 1, not 2", "ring", size=2, hosts=[0, 2], cross_every=2)
        refused("host of a topology is a whole number", "ring", size=2, hosts=[0, -1])
        matrix = [[0.5, 0.5], [0.5, 0.5]]
        refused("matrix of a topology says all", matrix, hosts=[0, 1], cross_every=2)
        with self.assertRaisesRegex(ValueError, "has the host of each of them"):
            covey.topology("ring", size=3, hosts=[0, 0], cross_every=2)


if __name__ == "__main__":
    unittest.main()
