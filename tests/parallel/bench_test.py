"""Goal: every `covey bench` runs, prints a table and writes JSON that says what was measured.
Method: the smallest effort. No figure is judged: a machine under test is no place for that."""

from __future__ import annotations

import operator
import os
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

import bench_runs
from harness import environment, preload

from covey.bench import job, mpis
from covey.launch.spec import LaunchError

preload("torch")

# Does what an mpiexec does: starts its command -n times, tells each its rank.
_MPIEXEC = """#!/bin/sh
count=$2; shift 2; rank=0; pids=
while [ $rank -lt $count ]; do
  PMI_RANK=$rank "$@" & pids="$pids $!"
  rank=$((rank + 1))
done
code=0
for pid in $pids; do wait $pid || code=1; done
exit $code
"""
OWN = ["covey", "covey arena", "covey, C", "covey arena, C"]


class BenchTest(bench_runs.BenchCase):
    def test_an_mpi_is_compared_or_named_as_absent(self) -> None:
        where = {name: mpis.find(name) for name in mpis.NAMES}
        absent = {name: why for name, why in where.items() if isinstance(why, str)}
        if absent:
            out, found = self.bench("latency", "--vs", ",".join(absent), "--sizes", "8,2KiB")
            self.assertEqual((found["absent"], bench_runs.names(found)), (absent, OWN))
            self.assertEqual([row["size_bytes"] for row in found["rows"]], [8, 2048])
            for name, why in absent.items():
                self.assertIn(f"{name} is absent: {why}", out)
        for name in set(where) - set(absent):  # each in a job of its own
            out, found = self.bench("latency", "--vs", name, "--sizes", "8,2KiB")
            self.assertEqual(found["absent"], {})
            self.assertEqual(bench_runs.names(found), [*OWN, name, name + ", C"])
            self.assertIn(name, found)
            self.assertEqual([row["size_bytes"] for row in found["rows"]], [8, 2048])

    def test_a_job_for_each_mpi_and_one_for_the_rest(self) -> None:
        there = mpis.Mpi("openmpi", ("mpirun", "-np"), {})
        other = mpis.Mpi("mpich", ("mpiexec", "-n"), {})
        found = {"openmpi": there, "mpich": other, "intelmpi": "it is not here"}
        with unittest.mock.patch.object(mpis, "find", found.get):
            self.assertEqual(job.plan(["gloo", "ddp"]), ([(None, ["gloo", "ddp"])], {}))
            jobs, absent = job.plan(["gloo", "openmpi", "mpich", "intelmpi"])
        self.assertEqual(jobs, [(there, ["gloo", "openmpi"]), (other, ["mpich"])])
        self.assertEqual(absent, {"intelmpi": "it is not here"})

    def test_ranks_started_by_another_launcher(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            launcher = os.path.join(folder, "mpiexec")
            with open(launcher, "w", encoding="ascii") as script:
                script.write(_MPIEXEC)
            os.chmod(launcher, 0o700)
            calls = os.path.join(folder, "calls")
            os.mkdir(calls)
            mpi = mpis.Mpi("mpich", (launcher, "-n"), {})
            self.assertEqual(mpis.run(mpi, 2, calls, operator.add, (3, 4)), 7)
            with self.assertRaisesRegex(LaunchError, "ended with code 1"):
                mpis.run(mpi, 2, calls, operator.truediv, (1, 0))

    def test_latency(self) -> None:
        out, found = self.bench("latency", "--vs", "gloo")
        self.assertEqual(bench_runs.names(found), [*OWN, "gloo"])
        for row in found["rows"]:
            self.assertGreater(row["flag_us"][0], 0)
            ratios = {name: one.get("ratio") for name, one in row["contestants"].items()}
            self.assertIsNone(ratios["covey"] or ratios["covey, C"])
            self.assertEqual(ratios["gloo"]["to"], "covey")
            self.assertEqual(ratios["covey arena, C"]["to"], "covey, C")
        self.assertEqual([row["label"] for row in found["rows"]], ["8 B", "4 KiB"])
        self.assertIn("4 KiB", out)

    def test_allreduce_alone(self) -> None:
        _, found = self.bench("allreduce", "--vs", "none", "--np", "3")
        self.assertEqual(bench_runs.names(found), OWN)
        self.assertEqual(found["ranks"], 3)

    def test_one_rank_has_no_flag(self) -> None:
        out, found = self.bench("allreduce", "--vs", "none", "--np", "1", "--sizes", "8")
        self.assertEqual(found["rows"][0]["flag_us"], [0.0])
        self.assertNotIn("a flag", out)

    def test_step(self) -> None:
        out, found = self.bench("step", "--vs", "gloo,ddp")
        names = bench_runs.names(found)
        for name in ("covey grouped", "gloo one by one", "covey optimizer, net", "ddp, net"):
            self.assertIn(name, names)
            self.assertIn(name, out)

    def test_fusion(self) -> None:
        out, found = self.bench("fusion", "--vs", "ddp")
        self.assertEqual(found["rows"][0]["label"], "20 gradients, 1,280 float32, averaged")
        for name in ("covey one by one", "covey grouped, arena", "ddp, net"):
            self.assertIn(name, bench_runs.names(found))
            self.assertIn(name, out)

    def test_model(self) -> None:
        out, found = self.bench("model")
        wanted = ["alone", "alone, barrier", "allreduce", "eager", "ddp", "in the arena"]
        self.assertEqual(bench_runs.names(found), wanted)
        self.assertRegex(out, r"eager: [+-]\S+ ms a step beyond alone .* an allreduce in the arena")

    def test_methods(self) -> None:
        _, found = self.bench("methods")
        bare, real = found["rows"]
        for name in ("ordinary tensors", "allreduce, net", "eager:admit=all, net"):
            self.assertIn(name, bare["contestants"])
        self.assertIn("eager:admit=all", real["contestants"])

    def test_waiting(self) -> None:
        out, found = self.bench("waiting")
        stopped, slow, random = found["panels"]
        names = [[line["name"] for line in panel["lines"]] for panel in (stopped, slow, random)]
        self.assertEqual(names[:2], [["eager", "wagma"]] * 2)
        self.assertEqual(names[2], ["allreduce", "solo", "eager", "wagma", "eager, skip",
                                    "solo, skip"])
        for line in [*stopped["lines"], *slow["lines"]]:
            steps = [len(rank["lengths"]) for rank in line["raw"]["ranks"]]
            self.assertEqual(len(steps), 4)
            self.assertGreater(min(steps), 0)
        for line in slow["lines"]:
            self.assertGreaterEqual(min(line["raw"]["ranks"][3]["lengths"]), 10 * 0.004)
        for line in random["lines"]:
            steps = [len(rank["lengths"]) for rank in line["raw"]["ranks"]]
            exact = line["name"].endswith("skip")
            self.assertTrue(max(steps) <= 12 if exact else steps == [12] * 4, (line["name"], steps))
            self.assertGreater(line["bound"], 0)
        self.assertIn("possible", out)

    def test_mistakes_are_one_line(self) -> None:
        for words in (
            ["stpe"],
            ["step", "--np", "0"],
            ["step", "--vs", "nccl"],
            ["latency", "--sizes", "8,many"],
            ["step", "--network", "eth0"],
            ["codecs", "-H", "a,b"],
            ["step", "-H", "a,b", "--vs", "mpich"],
            ["step", "-H", "a:b"],
        ):
            command = [sys.executable, "-c", bench_runs.ENTRY, "bench", *words]
            result = subprocess.run(
                command, env=environment(), capture_output=True, text=True, check=False
            )
            self.assertEqual((result.returncode, result.stderr.count("\n")), (2, 1), result)


if __name__ == "__main__":
    unittest.main()
