"""Goal: `covey codecs` and `covey bench codecs` show all codecs.
Method: their words; the smallest effort, no figure is judged."""

from __future__ import annotations

import unittest

import bench_runs
import harness  # noqa: F401  # Finds covey.
from commands import covey


class CodecsTest(bench_runs.BenchCase):
    def test_each_has_a_text(self) -> None:
        code, text, _ = covey("codecs")
        self.assertEqual(code, 0)
        for word in (
            "int8    1 + 4/block bytes",
            "block=256: 16 to 65536, a multiple of 4",
            "bf16",
            "random=0: 0 to 1\n",
            "need error feedback",
            "qsgd",
            "lattice for models that two ranks average",
        ):
            self.assertIn(word, text)
        self.assertLessEqual(max(map(len, text.splitlines())), 100)

    def test_each_is_timed(self) -> None:
        out, found = self.bench("codecs")
        self.assertIn("lattice@8, decode", bench_runs.names(found))
        self.assertIn("of the copy's bytes/s; goal from 64 MiB on: 33%", out)


if __name__ == "__main__":
    unittest.main()
