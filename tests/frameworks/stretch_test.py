"""When a rank that does several steps by itself exchanges its model: after all of them; while it is
overdue as soon as it is missed, and one step early, so that it comes into step with the others.

Method: a clock of numbers; a rank that comes back anywhere between two exchanges of the others, in
a small model of them that waits for nobody.
"""

from __future__ import annotations

import unittest
from typing import List

from covey.torch.stretch import Course, Stretch

PATIENCE_S = 100.0


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def comes_back(length: int, begin: float, step_s: float, max_wait_s: float) -> List[bool]:
    """A rank whose steps take ``step_s`` begins anew at ``begin``. The others' version v is made at
    v * length, without waiting. Whether it was in time for each of its next versions."""
    clock = Clock()
    clock.now = begin
    stretch = Stretch(length, 0, max_wait_s, clock)
    version = 1  # That it works for.
    in_time: List[bool] = []
    while len(in_time) < 12:
        clock.now += step_s
        stretch.step()
        made = clock.now // length
        if stretch.is_over(True, lambda made=made, version=version: made >= version):
            in_time.append(made < version)
            clock.now = max(clock.now, version * length)
            version = int(max(version, made)) + 1
            stretch.restart()
    return in_time


class CourseTest(unittest.TestCase):
    def test_versions_come_length_apart_and_at_the_end(self) -> None:
        """As counted one by one."""
        for begin in (0, 2):
            for until in (7, 8, 9, 1 << 62):
                for length in (1, 2, 3, 9):
                    course = Course(begin, until, length)
                    ends = {until + k * length for k in range(30)}
                    ends |= {begin + k * length for k in range(1, 30) if begin + k * length < until}
                    for at in range(begin, 20):
                        after = sorted(end for end in ends if end > at)
                        self.assertEqual(course.after(at, 0), at)
                        for versions in range(1, 8):
                            self.assertEqual(course.after(at, versions), after[versions - 1],
                                             (begin, until, length, at, versions))


class StretchTest(unittest.TestCase):
    def test_who_is_waited_for_does_all_its_steps(self) -> None:
        stretch = Stretch(3, 1, PATIENCE_S, Clock())
        self.assertFalse(stretch.is_over(False, lambda: True))
        stretch.step()
        self.assertFalse(stretch.is_over(False, lambda: True))
        stretch.step()
        self.assertTrue(stretch.is_over(False, lambda: self.fail("it is not asked")))
        stretch.restart()
        self.assertEqual(stretch.done, 0)

    def test_who_is_overdue_gives_up_what_it_is_missed_at(self) -> None:
        stretch = Stretch(5, 0, PATIENCE_S, Clock())
        stretch.step()
        self.assertFalse(stretch.is_over(True, lambda: False))
        self.assertTrue(stretch.is_over(True, lambda: True))

    def test_who_is_overdue_comes_one_step_early(self) -> None:
        clock = Clock()
        for step_s, early in ((1.0, True), (60.0, False)):
            stretch = Stretch(2, 0, PATIENCE_S, clock)
            clock.now += step_s
            stretch.step()
            self.assertEqual(stretch.is_over(True, lambda: False), early)
            stretch.step()
            self.assertTrue(stretch.is_over(True, lambda: False))

    def test_one_step_is_one_step(self) -> None:
        stretch = Stretch(1, 0, PATIENCE_S, Clock())
        stretch.step()
        self.assertTrue(stretch.is_over(True, lambda: False))

    def test_it_comes_into_step_wherever_it_comes_back(self) -> None:
        for length in (2, 3, 4, 8, 31):
            for tenth in range(10 * length):
                in_time = comes_back(length, tenth / 10, 1.0, PATIENCE_S)
                # Two are missed at most; three running make it one that is waited for.
                self.assertTrue(all(in_time[2:]), (length, tenth, in_time))

    def test_else_it_would_be_late_for_ever(self) -> None:
        """Without the early step, which a short patience forbids: this shows that it is needed."""
        self.assertFalse(any(comes_back(4, 0.5, 1.0, 1.5)))

    def test_one_that_is_slow_for_good_stays_behind(self) -> None:
        self.assertFalse(all(comes_back(8, 0.0, 10.0, PATIENCE_S)[2:5]))


if __name__ == "__main__":
    unittest.main()
