"""Goal: the traces of a job's ranks become one on one clock, and the words say who waited for whom.
Method: made traces of two hosts whose clocks are known to differ and drift; then real jobs."""

from __future__ import annotations

import contextlib
import io
import json
import math
import os
import random
import sys
import tempfile
import unittest
from typing import Any, Dict, List, Tuple

from harness import preload, run_launcher

from covey.cli import main
from covey.errors import InvalidArgument
from covey.trace import merging, reading, words

preload("torch")

# Rank 1 sleeps before each allreduce, and begins it when the other has begun to wait.
_JOB = """
import time, torch
import covey.torch as hvd
hvd.init()
model = torch.nn.Linear(8, 8)
optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model=model)
def train():
    for step in range(4):
        model(torch.ones(2, 8)).square().mean().backward()
        if hvd.rank() == 1:
            time.sleep(0.05)
        with torch.profiler.record_function("around the step"):
            optimizer.step()
"""
# Where torch.profiler runs too, and its trace lies beside Covey's.
_PROFILED = f"""{_JOB}
import sys
with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
    train()
profiler.export_chrome_trace(f"{{sys.argv[1]}}/rank.{{hvd.rank()}}.torch.json.gz")
"""
_JOB += "train()\n"
_SAME_CLOCK_US = 5000.0  # Each of the two reads the wall clock once, by a way of its own.


def made(rank: int, unix_us: float, waits: List[Tuple[str, float, float]]) -> List[Dict[str, Any]]:
    """The events of a rank: (name, beginning, end) of its waits, by its own clock."""

    def told(kind: str, tid: int, **args: Any) -> Dict[str, Any]:
        return {"name": kind, "ph": "M", "pid": rank, "tid": tid, "args": args}

    events = [told("process_name", 0, name=f"rank {rank}")]
    events += [told("clock", 0, unix_us_of_zero=unix_us)]
    events += [told("thread_name", 49, name="wait for peers")]
    return events + [
        {"name": name, "ph": "X", "pid": rank, "tid": 49, "ts": at, "dur": end - at}
        for name, at, end in waits
    ]


class TraceTest(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def write(self, rank: int, events: List[Dict[str, Any]], cut: int = 0) -> str:
        path = os.path.join(self.folder, f"rank.{rank}.json")
        text = "[\n" + ",\n".join(map(json.dumps, events)) + "\n]\n"
        with open(path, "w", encoding="utf-8") as file:
            file.write(text[: len(text) - cut])
        return path

    def two_hosts(self, seed: int, difference_us: float, drift: float) -> List[str]:
        """60 s of exchanges of ranks 0 and 1: each begins at a time of its own, and both waits end
        some microseconds after the later one. Rank 1's clock differs, more with time."""
        draw = random.Random(seed)
        waits: Tuple[List[Any], List[Any]] = ([], [])
        for turn in range(600):
            begins = [turn * 1e5 + draw.uniform(0, 2e4) for _ in range(2)]
            for rank, begin in enumerate(begins):
                end = max(begins) + draw.uniform(20, 200)
                clock = (lambda t: t + difference_us + drift * t) if rank else (lambda t: t)
                waits[rank].append(("grad.0", clock(begin), clock(end)))
        return [self.write(rank, made(rank, rank * 5e9, waits[rank])) for rank in range(2)]

    def test_clocks_of_hosts_are_set_by_exchanges_and_follow_their_drift(self) -> None:
        for seed, difference, drift in ((1, 3.5e9, 0.0), (2, -2e6, 4e-5), (3, 7e7, -1e-4)):
            found = merging.merged(self.two_hosts(seed, difference, drift))
            clock = found.clocks[1]
            self.assertLess(clock.error_us, 1500, f"seed {seed}")
            for at in (6e6, 2e7, 5.4e7):
                shared = clock.shared(at + difference + drift * at)
                within = clock.error_us + abs(drift) * 1e6  # The drift within a window.
                self.assertLess(abs(shared - at), within, f"seed {seed}")

    def test_without_a_common_exchange_wall_clocks_are_taken(self) -> None:
        paths = [
            self.write(0, made(0, 1e15, [("a", 100.0, 200.0)])),
            self.write(1, made(1, 1e15 + 5000.0, [("b", 100.0, 200.0)])),
        ]
        found = merging.merged(paths)
        self.assertTrue(math.isinf(found.clocks[1].error_us))
        begins = [trace.spans["wait for peers"][0].begin for trace in found.traces]
        self.assertEqual(begins, [0.0, 5000.0])
        self.assertIn("wall clocks", words.lines(found)[-1])

    def test_a_rank_waits_for_the_one_that_begins_last(self) -> None:
        waits = (
            [("x", 100.0, 900.0), ("x", 1000.0, 1100.0)],
            [("x", 850.0, 910.0), ("x", 1000.0, 1100.0)],
            [("x", 300.0, 905.0), ("x", 1080.0, 1110.0)],
        )
        paths = [self.write(rank, made(rank, 1e15, listed)) for rank, listed in enumerate(waits)]
        found = merging.merged(paths)
        sums = {pair: dict(names) for pair, names in words.waits(found.traces).items()}
        self.assertEqual(
            sums,
            {(0, 1): {"x": 750.0}, (2, 1): {"x": 550.0}, (0, 2): {"x": 80.0}, (1, 2): {"x": 80.0}},
        )
        said = words.lines(found)
        self.assertIn("rank 1 is the slowest: the others waited 1.3 ms for it", said[1])
        self.assertIn("rank 0 waited 830 us: 750 us for rank 1, 80 us for rank 2", said)

    def test_overlap_is_what_lies_outside_of_steps(self) -> None:
        spans = {
            "python": [reading.Span("step", 50.0, 100.0), reading.Span("step", 180.0, 200.0)],
            "exchange": [reading.Span("a", 0.0, 60.0), reading.Span("b", 40.0, 90.0)],
        }
        self.assertAlmostEqual(words.overlap(reading.Trace(0, 0.0, [], spans)), 5 / 9)
        self.assertTrue(math.isnan(words.overlap(reading.Trace(0, 0.0, [], {}))))

    def test_a_trace_that_lost_its_end_is_read_and_another_file_is_refused(self) -> None:
        path = self.write(0, made(0, 1.0, [("a", 1.0, 2.0), ("b", 3.0, 4.0)]), cut=20)
        self.assertEqual(len(reading.read(path).spans["wait for peers"]), 1)
        other = os.path.join(self.folder, "rank.1.json")
        for text in ("", "[]", "{}", "[1]", '[{"ph": "M", "name": "x"}]', "\0"):
            with open(other, "w", encoding="utf-8") as file:
                file.write(text)
            with self.assertRaisesRegex(InvalidArgument, "is no trace of Covey: it"):
                reading.read(other)
        with self.assertRaisesRegex(InvalidArgument, "No such file"):
            reading.read(os.path.join(self.folder, "rank.2.json"))
        with self.assertRaisesRegex(InvalidArgument, "two traces are of rank 0"):
            merging.merged([path, path])

    def test_a_job_ends_with_one_trace_and_its_words(self) -> None:
        stale = self.write(2, made(2, 1.0, []))
        options = ["-np", "2", "--timeline", self.folder]
        code, _, err = run_launcher([*options, sys.executable, "-c", _JOB])
        self.assertEqual(code, 0, err)
        said = "\n".join(err)
        self.assertIn("rank 1 is the slowest: the others waited", said)
        self.assertIn("% of the time of exchanges was outside of step()", said)
        with open(os.path.join(self.folder, "trace.json"), encoding="utf-8") as file:
            events = json.load(file)
        self.assertEqual({one["pid"] for one in events}, {0, 1})
        self.assertEqual(min(one["ts"] for one in events if "ts" in one), 0.0)
        steps = [one for one in events if one["name"] == "step" and one["ph"] == "X"]
        self.assertEqual(len(steps), 8)
        os.unlink(stale)
        self.check_command(events)

    def test_a_profile_of_torch_is_on_the_clock_of_its_rank(self) -> None:
        options = ["-np", "2", "--timeline", self.folder]
        code, _, err = run_launcher([*options, sys.executable, "-c", _PROFILED, self.folder])
        self.assertEqual(code, 0, err)
        with open(os.path.join(self.folder, "trace.json"), encoding="utf-8") as file:
            events = json.load(file)
        for rank in range(2):
            mine = [one for one in events if one["pid"] == rank and one["ph"] == "X"]
            steps = [one for one in mine if one["name"] == "step"]
            around = [one for one in mine if one["name"] == "around the step"]
            self.assertEqual([len(steps), len(around)], [4, 4])
            for inner, outer in zip(steps, around):
                self.assertGreater(inner["ts"], outer["ts"] - _SAME_CLOCK_US)
                end = outer["ts"] + outer["dur"] + _SAME_CLOCK_US
                self.assertLess(inner["ts"] + inner["dur"], end)
            self.assertTrue(any(one["name"].startswith("aten::") for one in mine))
        self.assertEqual(min(one["ts"] for one in events if "ts" in one), 0.0)

    def profile(self, name: str, **told: Any) -> str:
        """A trace of torch.profiler, from 1 s to 1.2 s by the wall clock: an operation, a kernel of
        a device, and an arrow from one to the other."""

        def label(pid: int, of: str) -> Dict[str, Any]:
            args = {"labels": of}
            return {"name": "process_labels", "ph": "M", "pid": pid, "ts": 0.0, "args": args}

        def event(ph: str, pid: int, ts: float, **more: Any) -> Dict[str, Any]:
            return {"name": "add", "ph": ph, "pid": pid, "tid": 7, "ts": ts, **more}

        events = [label(4321, "CPU"), label(0, "GPU 0")]
        events += [event("X", 4321, 9e5, dur=1e5), event("X", 0, 1e6, dur=1e5)]
        events += [event("s", 4321, 9e5, id=3), event("f", 0, 1e6, id=3)]
        content = {"baseTimeNanoseconds": 100_000_000, "traceEvents": events, **told}
        path = os.path.join(self.folder, name)
        with open(path, "w", encoding="utf-8") as file:
            json.dump(content, file)
        return path

    def test_a_profile_has_processes_and_arrows_of_its_own_beside_its_ranks(self) -> None:
        spans = [("a", 100.0, 200.0)]
        paths = [self.write(rank, made(rank, 999_000.0, spans)) for rank in range(2)]
        paths += [
            self.profile("rank.1.torch.json"),
            self.profile("any", distributedInfo={"rank": 0}),
        ]
        traces = merging.merged(paths).traces
        places, arrows = [], []
        for trace in traces:
            mine = [one for one in trace.events if one["name"] == "add"]
            operation, kernel, start, end = mine
            self.assertEqual([operation["ts"], kernel["ts"]], [900.0, 100_900.0])
            self.assertEqual(operation["pid"], trace.rank)
            self.assertNotEqual(operation["tid"], 49)
            self.assertEqual([start["pid"], end["pid"]], [operation["pid"], kernel["pid"]])
            self.assertEqual(start["id"], end["id"])
            places.append(kernel["pid"])
            arrows.append(start["id"])
            self.assertEqual(list(trace.spans), ["wait for peers"])
        self.assertEqual(len({0, 1, *places}), 4)
        self.assertEqual(len(set(arrows)), 2)
        self.assertEqual(reading.files([self.folder]), sorted(paths[:3]))

    def test_a_profile_without_a_rank_or_a_trace_of_it_or_of_another_job_is_refused(self) -> None:
        trace = self.write(0, made(0, 999_000.0, [("a", 100.0, 200.0)]))
        for name, unix_us, why in (
            ("profile.json", 999_000.0, "does not say its rank: name it rank.N.torch.json"),
            ("rank.1.torch.json", 999_000.0, "is of rank 1, and no trace of Covey is"),
            ("rank.0.torch.json", 1_300_000.0, "is of another job: it ended before"),
        ):
            self.write(0, made(0, unix_us, [("a", 100.0, 200.0)]))
            with self.assertRaisesRegex(InvalidArgument, why):
                merging.merged([trace, self.profile(name)])
        broken = self.profile("rank.0.torch.json", traceEvents=7)
        with self.assertRaisesRegex(InvalidArgument, "is no trace of torch.profiler"):
            merging.merged([trace, broken])

    def check_command(self, events: List[Any]) -> None:
        """`covey trace` makes the same of the files."""
        out = os.path.join(self.folder, "again.json")
        with contextlib.redirect_stdout(io.StringIO()) as shown:
            self.assertEqual(main(["trace", "merge", self.folder, "-o", out]), 0)
            self.assertEqual(main(["trace", "summary", self.folder]), 0)
        self.assertEqual(shown.getvalue().count("rank 1 is the slowest"), 2)
        with open(out, encoding="utf-8") as file:
            self.assertEqual(json.load(file), events)
        with contextlib.redirect_stderr(io.StringIO()) as refused:
            self.assertEqual(main(["trace", "merge", os.path.join(self.folder, "none")]), 2)
        self.assertIn("No such file", refused.getvalue())


if __name__ == "__main__":
    unittest.main()
