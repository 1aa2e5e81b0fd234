"""Goal: at its end a job tells what each rank did and waited for, when somebody wants to know or
when that is the point; what is injected is told at the start.
Method: the table from reports that are given; whole jobs."""

from __future__ import annotations

import os
import sys
import tempfile
import unittest
from typing import Any, Dict, List

from harness import also, preload, run_launcher

from covey.launch.summary import Summary, held_up, table

preload("torch")

SCRIPT = """
import os, signal, sys, torch, covey, covey.torch as hvd
hvd.init()
parameter = torch.nn.Parameter(torch.zeros(3))
optimizer = hvd.DistributedOptimizer(torch.optim.SGD([parameter], lr=1.0))
for step in range(5):
    if step == 1 and "meet" in sys.argv:
        hvd.barrier()  # All have begun, so each finds a partner.
    optimizer.zero_grad()
    (parameter * hvd.rank()).sum().backward()
    optimizer.step()
optimizer.finish()
flat = covey.stats(flat=True)
assert all(type(value) in (int, float) for value in flat.values()), flat
if hvd.rank() == 0:
    print(*sorted(name for name in flat if name.startswith("training.")))
    print(flat["training.waited_s"], flat["training.seconds"])
if "die" in sys.argv and hvd.rank() == 1:
    os.kill(os.getpid(), signal.SIGKILL)
"""

# An adapter whose steps the core counts.
NUMPY_SCRIPT = """
import numpy, covey, covey.numpy as hvd
covey.init()
def update(parameters, gradients):
    parameters[0] -= gradients[0]
trainer = hvd.Trainer([numpy.zeros(3)], update)
for step in range(5):
    trainer.step([numpy.full(3, float(covey.rank()))])
trainer.finish()
flat = covey.stats(flat=True)
if covey.rank() == 0:
    print(*sorted(name for name in flat if name.startswith("training.")))
    print(flat["training.waited_s"], flat["training.seconds"])
"""


def report(rank: int, arrivals: List[Any], **more: Any) -> Dict[str, Any]:
    return {"rank": rank, "method": "m", "group": [0, 1, 2], "steps": 11, "seconds": 4.0,
            "steps_per_second": 2.5, "waited_s": 1.0, "injected_s": 0.0, "busy_fraction": 0.5,
            "arrivals": arrivals, **more}


class TableTest(unittest.TestCase):
    def test_who_held_up_is_who_was_missing_alone(self) -> None:
        reports = [
            report(0, [(0, 10.0, 3), (1, 20.0, 3), (2, 30.0, 2), (3, 40.0, 1)]),
            report(1, [(0, 11.0, 3), (1, 20.0, 3), (2, 31.0, 2), (3, 47.0, 1)]),
            report(2, [(0, 14.0, 3), (1, 26.0, 3), (2, 38.0, 2), (3, 49.0, 1)]),
        ]
        self.assertEqual(held_up(reports), {0: 0.0, 1: 1.0, 2: 3.0 + 6.0})
        self.assertEqual(held_up(reports[:2]), {0: 0.0, 1: 1.0}, "steps that are not all known")

    def test_columns_are_shown_where_they_say_something(self) -> None:
        lines = table([report(rank, []) for rank in range(2)])
        self.assertRegex(lines[0], r"^method m: 2 ranks on \d+ cores$")
        self.assertEqual(lines[1].split("  ")[0], "rank")
        self.assertEqual(lines[2].split(), ["0", "11", "2.5", "3.0", "1.0", "0.0", "50%"])
        self.assertEqual(lines[-1], "nothing was told by: 2")
        more = {
            "versions": 10,
            "fresh_fraction_of_rank": {"0": 1.0, "1": 0.25, "2": 0.5},
            "overdue_of_rank": {"0": 0, "1": 2, "2": 0},
            "staleness": {"0": 3, "1": 0, "2": 1},
            "consensus_distance": 0.001,
        }
        lines = table([report(0, [], **more), report(1, [], injected_s=1.5), report(2, [])])
        self.assertEqual(lines[1].split()[-4:], ["s", "fresh", "overdue", "apart"])
        self.assertEqual(lines[2].split()[-4:], ["0.0", "100%", "0", "1.0e-03"])
        self.assertEqual(lines[3].split()[-4:], ["1.5", "25%", "2", "-"])
        words = "contributions by how many steps late they counted: 0: 75.0%, 2: 25.0%"
        self.assertIn(words, lines)
        # Rank 2 has skipped the versions in which rank 1 was overdue, and has made more.
        more.update(versions=12, overdue_of_rank={"0": 0, "1": 0, "2": 0})
        seen = report(0, [], overdue_of_rank={"1": 2})
        lines = table([seen, report(1, []), report(2, [], **more)])
        self.assertEqual([line.split()[-2] for line in lines[1:5]], ["overdue", "0", "2", "0"])
        self.assertEqual(table([]), [])
        lines = table([report(0, [], averages_begun=7, steps_met=5), report(1, [])])
        self.assertEqual(lines[1].split()[-2:], ["begun", "met"])
        self.assertEqual([line.split()[-2:] for line in lines[2:4]], [["7", "5"], ["0", "0"]])

    def test_half_a_line_of_a_killed_rank_is_left_out(self) -> None:
        summary = Summary()
        self.addCleanup(summary.close)
        os.write(summary.fd, b'{"rank": 0, "met')
        self.assertEqual(summary.lines(), [])

    def test_who_goes_on_without_a_rank_has_said_so_before(self) -> None:
        summary = Summary()
        self.addCleanup(summary.close)
        self.assertEqual(summary.outlives(), "")
        os.write(summary.fd, b'{"outlives": "eager"}\n{"rank": 0, "met')
        self.assertEqual((summary.outlives(), summary.lines()), ("eager", []))


class JobTest(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.script = os.path.join(folder.name, "script.py")
        self.write(SCRIPT)

    def write(self, script: str) -> None:
        with open(self.script, "w", encoding="utf-8") as file:
            file.write(script)

    def run_script(self, flags: List[str], *asked: str) -> Any:
        """(exit code, what rank 0 printed, lines of the launcher)."""
        command = ["-np", "3", *flags, sys.executable, self.script, *asked]
        code, out, err = run_launcher(command)
        return code, out, [line for line in err if line.startswith("coveyrun: ")]

    def rows(self, lines: List[str]) -> Dict[int, Dict[str, str]]:
        begin = next(i for i, line in enumerate(lines) if line.split()[1] == "rank")
        names = lines[begin].replace("own work s", "own").replace(" s ", " ").replace(
            "cpu busy", "busy").replace("held up", "held").split()[1:]
        found = [dict(zip(names, line.split()[1:])) for line in lines[begin + 1 :]
                 if line.split()[1].isdigit()]
        return {int(row["rank"]): row for row in found}

    def test_when_asked_for(self) -> None:
        code, out, lines = self.run_script(["--summary"])
        self.assertEqual(code, 0, lines)
        self.assertRegex(lines[0], r"^coveyrun: method allreduce: 3 ranks on \d+ cores$")
        self.assertEqual({rank: row["steps"] for rank, row in self.rows(lines).items()},
                         {0: "5", 1: "5", 2: "5"})
        self.assertIn("training.steps_per_second", out[0])
        self.assertNotIn("training.fresh_fraction", out[0])

    def test_not_otherwise(self) -> None:
        self.assertEqual(self.run_script([])[2], [])
        self.assertEqual(self.run_script(["--method", "local:H=2"])[2], [])

    def test_with_a_method_in_pairs(self) -> None:
        code, out, lines = self.run_script(["--summary", "--method", "adpsgd"], "meet")
        self.assertEqual(code, 0, lines)
        begun = [int(row["begun"]) for row in self.rows(lines).values()]
        self.assertGreater(sum(begun), 0)
        self.assertIn("training.averages_begun", out[0])
        self.assertTrue(any("averages with one other rank" in line for line in lines), lines)

    def test_waiting_is_counted_once_and_in_steps_alone(self) -> None:
        late = ["--inject", "delay:100ms@rank1"]
        for method in ("allreduce", "eager:admit=all", "wagma:admit=all", "diloco:H=1,admit=all"):
            code, out, lines = self.run_script([*late, "--method", method])
            self.assertEqual(code, 0, lines)
            waited_s, seconds = map(float, out[1].split()[-2:])
            self.assertGreater(waited_s, 0, method)
            self.assertLessEqual(waited_s, seconds, method)
            held = {rank: float(row["held"]) for rank, row in self.rows(lines).items()}
            self.assertEqual(max(held, key=held.__getitem__), 1, (method, held))

    def test_steps_that_the_core_counts(self) -> None:
        self.write(NUMPY_SCRIPT)
        late = ["--inject", "delay:100ms@rank1"]
        for method in ("eager:admit=all", "local:H=1", *also("allreduce", "wagma:admit=all")):
            code, out, lines = self.run_script([*late, "--method", method])
            self.assertEqual(code, 0, lines)
            rows = self.rows(lines)
            self.assertEqual({row["steps"] for row in rows.values()}, {"5"}, method)
            injected = {rank: float(row["injected"]) for rank, row in rows.items()}
            self.assertEqual(injected, {0: 0.0, 1: 0.5, 2: 0.0}, method)
            held = {rank: float(row["held"]) for rank, row in rows.items()}
            self.assertEqual(max(held, key=held.__getitem__), 1, (method, held))
            waited_s, seconds = map(float, out[1].split()[-2:])
            self.assertGreater(waited_s, 0, method)
            self.assertLessEqual(waited_s, seconds, method)
        code, _, lines = self.run_script(["--summary", "--method", "adpsgd"])
        self.assertEqual(code, 0, lines)
        self.assertTrue(all("met" in row for row in self.rows(lines).values()), lines)

    def test_with_a_method_in_rounds(self) -> None:
        code, out, lines = self.run_script(["--method", "eager:admit=all"])
        self.assertEqual(code, 0, lines)
        self.assertEqual({row["fresh"] for row in self.rows(lines).values()}, {"100%"})
        words = "coveyrun: contributions by how many steps late they counted: 0: 100.0%"
        self.assertIn(words, lines)
        self.assertIn("training.staleness.0", out[0])

    def test_models_apart(self) -> None:
        for method in ("wagma:S=1,tau=1000", *also("adpsgd", "local:H=1000,max_wait=60s")):
            code, out, lines = self.run_script(["--summary", "--method", method])
            self.assertEqual(code, 0, lines)
            self.assertTrue(all("apart" in row for row in self.rows(lines).values()), lines)
        code, out, lines = self.run_script(["--summary", "--method", "local:H=5"])
        self.assertEqual(code, 0, lines)
        apart = [row["apart"] for row in self.rows(lines).values()]
        self.assertEqual(apart, ["1.0e+00", "0.0e+00", "1.0e+00"], "-5 rank around their mean -5")
        self.assertIn("training.consensus_distance", out[0])

    def test_injection_is_told_before_and_after(self) -> None:
        code, _, lines = self.run_script(["--inject", "delay:10ms@rank1"])
        self.assertEqual(code, 0, lines)
        self.assertEqual(lines[0], "coveyrun: injects 10ms to rank 1, each step (seed 1)")
        injected = {rank: row["injected"] for rank, row in self.rows(lines).items()}
        self.assertEqual(injected[0], "0.0")
        code, _, lines = self.run_script(["--inject", "dealy:3ms"])
        self.assertEqual((code, len(lines)), (2, 1), lines)
        self.assertIn("--inject: there is nothing 'dealy' to inject (did you mean del", lines[0])

    def test_a_killed_rank_is_named(self) -> None:
        code, _, lines = self.run_script(["--summary"], "die")
        self.assertEqual(code, 128 + 9, lines)
        self.assertNotIn(1, self.rows(lines))
        self.assertIn("coveyrun: rank 1: killed by SIGKILL", lines)


if __name__ == "__main__":
    unittest.main()
