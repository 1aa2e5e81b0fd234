"""Goal: the protocol of the paired experiment goes from tuning to its tables, and so does the grid,
whose methods have codecs.
Method: what a job would measure is made up here; experiments_test.py runs jobs."""

from __future__ import annotations

import contextlib
import io
import sys
import tempfile
import unittest
import unittest.mock
from typing import Any

from harness import REPOSITORY

sys.path.insert(0, str(REPOSITORY / "examples" / "experiments"))
import grid  # noqa: E402
import paired  # noqa: E402
from runs import save  # noqa: E402


class ProtocolTest(unittest.TestCase):
    def main(self, module: Any, folder: str, *options: str) -> str:
        out = io.StringIO()
        with unittest.mock.patch.object(sys, "argv", ["", "--out", folder, *options]):
            with contextlib.redirect_stdout(out):
                module.main()
        return out.getvalue()

    def test_the_protocol_from_tuning_to_the_table(self) -> None:
        done = []

        def measure(one: Any) -> None:
            done.append(one.key)
            one.file["results"][one.key] = [
                {"run": run._asdict(),
                 "ranks": [{"seconds": [float(i + 1) for i in range(6)], "processor_s": 1.0,
                            "scores": [80.0 + i + run.lr for i in range(6)],
                            "distances": [0.5] * 6}] * 8}
                for run in one.runs
            ]
            one.file["cores"] = 2
            save(one.file, one.path)

        size = paired.small("fashion")._replace(
            rates=(0.1, 0.4, 0.2), local_steps={"local": (4, 8), "swarm": (2,)}, seeds=(1, 2)
        )
        fake = {"small": lambda _: size}
        patches = [unittest.mock.patch.multiple(paired, measure=measure, **fake),
                   unittest.mock.patch.multiple(grid, **fake)]
        with tempfile.TemporaryDirectory() as folder, patches[0], patches[1]:
            with self.assertRaisesRegex(SystemExit, "swarm has no learning rate yet"):
                self.main(grid, folder, "--small")
            self.assertEqual(self.main(paired, folder, "fashion", "--small", "--jobs", "1"),
                             "paired_fashion_tuning.json: allreduce, 3 runs\n")
            self.assertEqual(done, ["allreduce"])
            out = self.main(paired, folder, "fashion", "--small")
            self.assertEqual(done, ["allreduce", "ddp", "dpsgd", "local:local_steps=4",
                                    "local:local_steps=8", "eager", "wagma", "adpsgd",
                                    "swarm:local_steps=2",
                                    *["equal samples", "equal wall time"] * 2])
            self.assertIn("eager: eager, rate 0.4", out)
            self.assertIn("local: local:local_steps=4, rate 0.4", out)
            self.assertEqual(out.count("+0.00 [+0.00, +0.00]"), 14)
            with self.assertRaisesRegex(SystemExit, "is of other settings"):
                self.main(paired, folder, "fashion")
            out = self.main(grid, folder, "--small")
            self.assertEqual(done[-2:], ["grid", "grid"])
            self.assertEqual(out.count("+0.00 [+0.00, +0.00]"), 12)


if __name__ == "__main__":
    unittest.main()
