"""Goal: ranks of several frameworks train by a method with a codec with the numbers of a job of one
framework, bit for bit.
Method: that of mixed_test.py."""

from __future__ import annotations

import unittest

from mixed_training import MIXES, check_the_numbers, trained
from ranks import SharedPool
from tensorflows import set_up

pool = SharedPool(__file__)


def setUpModule() -> None:
    set_up(pool)


class MixedCodecTest(unittest.TestCase):
    def test_the_numbers_are_those_of_one_framework(self) -> None:
        for mix in MIXES:
            with self.subTest(mix=mix):
                check_the_numbers(self, pool, trained, mix, "allreduce:then=local@5:H=2,codec=int8")


if __name__ == "__main__":
    unittest.main()
