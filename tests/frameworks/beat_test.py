"""Goal: a rank waits for a version only where it is due within a small part of a pass.
Method: a clock that the test turns."""

from __future__ import annotations

import unittest

from covey.torch.beat import Beat


class BeatTest(unittest.TestCase):
    def setUp(self) -> None:
        self.now = 0.0
        self.beat = Beat(lambda: self.now)

    def do_steps(self, count: int, seconds: float, period: float) -> int:
        """Passes of so many seconds in versions of such a period; the last version."""
        for version in range(1, count + 1):
            self.beat.begin()
            self.now += seconds
            self.beat.end()
            self.now += period - seconds
            self.beat.see(version)
        return count

    def test_it_waits_shortly_before_a_version_is_due_and_shortly_after(self) -> None:
        version = self.do_steps(5, 1.0, 1.02)
        seen = self.now
        for late, patience in ((3.06, 0.1), (3.0, 0.16), (2.9, 0.26), (2.73, 0.43), (3.1, 0.06),
                               (2.72, 0.0), (3.17, 0.0), (2.5, 0.0), (9.0, 0.0)):
            self.now = seen + late
            self.assertAlmostEqual(self.beat.patience(version + 3), patience, msg=str(late))

    def test_it_does_not_wait_before_it_has_seen_any(self) -> None:
        self.assertEqual(self.beat.patience(1), 0.0)
        self.do_steps(1, 1.0, 1.0)
        self.assertEqual(self.beat.patience(2), 0.0)

    def test_one_that_is_slow_for_good_waits_for_a_part_of_a_version(self) -> None:
        for version in range(10, 60, 10):
            self.beat.begin()
            self.now += 10.0
            self.beat.end()
            self.beat.see(version)
        self.now += 0.8
        self.assertAlmostEqual(self.beat.patience(51), 0.3)
        self.now -= 0.2
        self.assertEqual(self.beat.patience(51), 0.0)

    def test_one_long_pass_or_period_does_not_count(self) -> None:
        self.do_steps(5, 1.0, 1.0)
        self.beat.begin()
        self.now += 50
        self.beat.end()
        self.beat.see(6)
        self.now += 0.95
        self.assertAlmostEqual(self.beat.patience(7), 0.15)

    def test_what_was_missed_is_not_one_long_period(self) -> None:
        self.do_steps(3, 1.0, 1.0)
        self.now += 40
        for version in range(43, 49):
            self.beat.see(version)
            self.now += 1.0
        self.assertAlmostEqual(self.beat.patience(49), 0.1)

    def test_who_is_late_is_told_when_versions_ended(self) -> None:
        self.do_steps(1, 1.0, 1.0)
        for late in range(1, 6):  # Versions 3, 5, 7, ... ended half a second before it looks.
            self.beat.begin()
            self.now += 2.2
            self.beat.end()
            self.beat.see(1 + 2 * late, at=self.now - 0.5)
        self.assertAlmostEqual(self.beat.patience(12), 0.0)
        self.now += 0.4
        self.assertAlmostEqual(self.beat.patience(12), 0.2 + 0.11)

    def test_a_step_without_a_pass_is_no_pass(self) -> None:
        self.do_steps(3, 1.0, 1.0)
        self.now += 0.01
        for _ in range(9):
            self.beat.end()
        self.now += 0.94
        self.assertAlmostEqual(self.beat.patience(4), 0.15)


if __name__ == "__main__":
    unittest.main()
