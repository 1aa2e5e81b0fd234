"""Goal: every `covey bench` runs, prints a table and writes JSON that says what was measured.
Method: the smallest effort. No figure is judged: a machine under test is no place for that."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import unittest

from harness import environment

LIMIT_S = 240.0
ENTRY = "import sys; from covey.cli import main; sys.exit(main())"
LITTLE = ["--small", "--rounds", "1", "--samples", "1"]


class BenchTest(unittest.TestCase):
    def bench(self, kind: str, *options: str) -> tuple:
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, "-c", ENTRY, "bench", kind, *LITTLE, "--out", folder]
            result = subprocess.run(
                [*command, *options],
                env=environment(),
                timeout=LIMIT_S,
                capture_output=True,
                text=True,
                check=False,
            )
            self.assertEqual(result.returncode, 0, result.stderr)
            with open(os.path.join(folder, kind + ".json"), encoding="utf-8") as file:
                return result.stdout, json.load(file)

    def names(self, found: dict) -> list:
        return list(found["rows"][0]["contestants"])

    def test_latency(self) -> None:
        out, found = self.bench("latency")
        self.assertEqual(self.names(found), ["covey", "covey arena", "gloo"])
        self.assertEqual([row["label"] for row in found["rows"]], ["8 B", "4 KiB"])
        self.assertIn("4 KiB", out)

    def test_allreduce_alone(self) -> None:
        _, found = self.bench("allreduce", "--vs", "none", "--np", "3")
        self.assertEqual(self.names(found), ["covey", "covey arena"])
        self.assertEqual(found["ranks"], 3)

    def test_step(self) -> None:
        out, found = self.bench("step")
        names = self.names(found)
        for name in ("covey grouped", "gloo one by one", "covey optimizer, net", "ddp, net"):
            self.assertIn(name, names)
            self.assertIn(name, out)

    def test_model(self) -> None:
        _, found = self.bench("model")
        self.assertEqual(self.names(found), ["alone", "covey", "ddp"])

    def test_mistakes_are_one_line(self) -> None:
        for words in (["stpe"], ["step", "--np", "0"], ["step", "--vs", "nccl"]):
            command = [sys.executable, "-c", ENTRY, "bench", *words]
            result = subprocess.run(
                command, env=environment(), capture_output=True, text=True, check=False
            )
            self.assertEqual((result.returncode, result.stderr.count("\n")), (2, 1), result)


if __name__ == "__main__":
    unittest.main()
