"""Goal: `covey bench --device cuda` says in one line what is missing without a card; its arithmetic
is right; and what it would run on a card does run.
Method: modules made up here in torch's place. The benches themselves run on one rank with tensors
of the CPU, Gloo in NCCL's place, and as little work as there is. No figure is judged."""

from __future__ import annotations

import contextlib
import io
import json
import subprocess
import sys
import tempfile
import types
import unittest
from typing import Any, List, Optional
from unittest import mock

import torch
import torch.distributed as dist
from harness import environment

import covey
from covey.bench import cards, cuda, cuda_job, job, show
from covey.bench.contest import Contest, Effort, Row, exposed_share
from covey.bench.flag import Flag
from covey.cli import main

ENTRY = "import sys; from covey.cli import main; sys.exit(main())"
LITTLE = Effort(rounds=2, samples=1, sample_s=0.0)


def torch_like(cuda_version: Optional[str], available: bool) -> Any:
    """What `missing` asks of torch."""
    return types.SimpleNamespace(
        __version__="9.9",
        version=types.SimpleNamespace(cuda=cuda_version),
        cuda=types.SimpleNamespace(is_available=lambda: available),
    )


def bench(*words: str) -> Any:
    command = [sys.executable, "-c", ENTRY, "bench", *words]
    return subprocess.run(
        command, env=environment(), timeout=240, capture_output=True, text=True, check=False
    )


class RefusedTest(unittest.TestCase):
    def assert_refused(self, result: Any, why: str) -> None:
        self.assertEqual((result.returncode, result.stderr.count("\n")), (2, 1), result)
        self.assertIn(why, result.stderr)
        self.assertEqual(result.stdout, "")

    def test_what_is_missing(self) -> None:
        self.assertEqual(cards.missing(None), "torch is not installed")
        self.assertRegex(cards.missing(torch_like(None, False)), "^torch 9.9 has no CUDA: ")
        self.assertRegex(cards.missing(torch_like("13.0", False)), "^no GPU: .*built with CUDA 13")
        self.assertIsNone(cards.missing(torch_like("13.0", True)))

    def test_without_a_card_the_command_says_so(self) -> None:
        why = cards.missing(torch)
        if why is None:
            self.skipTest("skipped: there is a GPU")
        for kind in cards.KINDS:
            self.assert_refused(bench(kind, "--device", "cuda"), f"covey bench: {why}\n")

    def test_mistakes(self) -> None:
        self.assert_refused(bench("step", "--device", "gpu"), "gpu is none of cpu, cuda")
        there_are = "fusion has no --device cuda: allreduce, step, kernels have"
        self.assert_refused(bench("fusion", "--device", "cuda"), there_are)
        self.assert_refused(bench("kernels"), "kernels are those of cards: --device cuda")
        self.assert_refused(
            bench("step", "--device", "cuda", "--vs", "gloo"), "gloo does not take part on cuda"
        )


class ArithmeticTest(unittest.TestCase):
    def test_exposed_share_is_of_the_time_alone(self) -> None:
        row = Row("a", 1)
        # Within each round the step takes a fifth more, though the machine slows down.
        row.seconds = {"step": [[6.0] * 3, [12.0] * 3], "alone": [[5.0] * 3, [10.0] * 3]}
        self.assertAlmostEqual(exposed_share(row, "step", "alone"), 1.5 / 7.5)
        row.seconds["step"] = [[4.0] * 3, [9.0] * 3]
        self.assertEqual(exposed_share(row, "step", "alone"), 0.0)

    def test_gigabytes_per_second(self) -> None:
        row = Row("a", 1, moved_bytes={"one": 2 * 10**9}, notes=["a note"], barrier_s=[1e-6])
        row.flag_s = [0.0]
        row.seconds = {"one": [[0.5, 0.25, 0.5]], "two": [[1.0]]}
        self.assertEqual(row.gigabytes_per_s("one"), 4.0)
        self.assertIsNone(row.gigabytes_per_s("two"))
        about = {"bench": "step", "ranks": 1, "cores": 2, "load": 0}
        lines = show.table(about, {}, [row])
        self.assertRegex(lines[3], r"one +250.00 ms +/ +500.00 ms  4 GB/s$")
        self.assertEqual(lines[-1], "a note")
        found = json.loads(show.as_json(about, [row]))["rows"][0]
        self.assertEqual(found["contestants"]["one"]["gb_per_s"], 4.0)
        self.assertNotIn("gb_per_s", found["contestants"]["two"])
        self.assertEqual(found["notes"], ["a note"])

    def test_shares_are_even_and_whole(self) -> None:
        for total in (0, 1, 24, 25, 26, 1000):
            found = cuda.shares(total, 25)
            self.assertEqual((len(found), sum(found)), (25, total))
            self.assertLessEqual(max(found) - min(found), 1)

    def test_paths_are_those_of_the_knob(self) -> None:
        knobs = [{"name": "algorithm", "unit": "nccl"}, {"name": "cuda_path", "unit": ""}]
        self.assertEqual(cards.paths_of(knobs), ())
        knobs[1]["unit"] = "auto|ipc|staged"
        self.assertEqual(cards.paths_of(knobs), ("ipc", "staged"))
        knobs[1]["unit"] = "auto|staged|ipc|nccl"
        self.assertEqual(cards.paths_of(knobs), ("nccl", "ipc", "staged"))

    def test_every_path_has_a_goal(self) -> None:
        self.assertEqual(tuple(cuda.GOALS), cards.PATHS)

    def test_nccl_needs_a_card_for_each_rank(self) -> None:
        self.assertIsNone(cards.nccl_is_absent(2, 2))
        self.assertRegex(cards.nccl_is_absent(2, 1), "there are 1 for 2 ranks")

    def test_a_detour_is_told(self) -> None:
        before, after = {"exchanges_ipc": 3}, {"exchanges_ipc": 4}
        self.assertIsNone(cards.detour("ipc", before, after))
        self.assertIn("nothing went by ipc", cards.detour("ipc", after, after))
        self.assertIn("nothing went by nccl", cards.detour("nccl", before, after))
        self.assertIn("exchanges_ipc rose", cards.detour("staged", before, after))
        self.assertIsNone(cards.detour("staged", {}, {}))

    def test_driver(self) -> None:
        said = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build"
        self.assertEqual(cards.driver_version(said), "580.95.05")
        self.assertEqual(cards.driver_version("none"), "unknown")


class CommandTest(unittest.TestCase):
    def test_a_job_for_each_path_that_this_covey_has(self) -> None:
        paths, backend, absent = cuda_job.plan(2, 1, wants_peer=True)
        self.assertEqual((paths, backend), (("ipc", "staged"), "gloo"))
        self.assertIn("there are 1 for 2 ranks", absent["torch nccl"])
        self.assertIn("there are 1 for 2 ranks", absent["covey nccl"])
        _, backend, absent = cuda_job.plan(2, 1, wants_peer=False)
        self.assertEqual((backend, absent.keys()), (None, {"covey nccl"}))
        self.assertEqual(cuda_job.plan(2, 2, wants_peer=True), (cards.PATHS, "nccl", {}))
        self.assertEqual(cuda_job.plan(2, 2, wants_peer=False), (cards.PATHS, None, {}))

    def test_says_what_it_ran_on(self) -> None:
        calls: List[Any] = []

        def measure(work: Any, size: int, path: str, backend: Any) -> Any:
            calls.append((work.kind, size, path, backend))
            row = Row("4 KiB", 4096, {f"covey {path}": [[1e-3]]}, [1e-6], [0.0])
            row.moved_bytes = {f"covey {path}": 4096}
            return [row], {"covey": "1"}

        card = {"card": "2 x a card", "driver": "580.95", "cuda": "13.0"}
        out = io.StringIO()
        with contextlib.ExitStack() as stack:
            for module, name, instead in (
                (cards, "missing", lambda torch: None),
                (cards, "describe", lambda torch: card),
                (cuda_job, "plan", lambda *_, **__: (("ipc", "staged"), "gloo", {})),
                (cuda_job, "measure", measure),
            ):
                stack.enter_context(mock.patch.object(module, name, instead))
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            stack.enter_context(contextlib.redirect_stdout(out))
            self.assertEqual(main(["bench", "allreduce", "--device", "cuda", "--out", folder]), 0)
            with open(f"{folder}/allreduce.json", encoding="utf-8") as file:
                found = json.load(file)
        self.assertEqual(calls, [("allreduce", 2, path, "gloo") for path in ("ipc", "staged")])
        self.assertEqual({name: found[name] for name in card}, card)
        self.assertEqual((found["device"], len(found["rows"])), ("cuda", 2))
        said = f"card: 2 x a card, driver: 580.95, cuda: 13.0, when: {found['when']}"
        self.assertIn(said, out.getvalue())
        self.assertIn("GB/s", out.getvalue())


class RunsTest(unittest.TestCase):
    def setUp(self) -> None:
        init = dist.init_process_group

        def over_gloo(backend: str, **kwargs: Any) -> None:
            self.assertEqual(backend, "nccl")
            init("gloo", **kwargs)

        self.waits: List[None] = []
        self.devices: List[int] = []
        for patch in (
            mock.patch.object(cuda, "DEVICE", "cpu"),
            mock.patch.object(cuda, "GRADIENTS", (5, 100)),
            mock.patch.object(cuda, "_MATRIX", 4),
            mock.patch.object(cuda, "_seconds_on_device", lambda compute, times: 7e-4),
            mock.patch.object(torch.cuda, "set_device", self.devices.append),
            mock.patch.object(torch.cuda, "device_count", lambda: 1),
            mock.patch.object(torch.cuda, "synchronize", lambda: self.waits.append(None)),
            mock.patch.object(dist, "init_process_group", over_gloo),
        ):
            patch.start()
            self.addCleanup(patch.stop)

    def measured(self, path: str, backend: Any, what: Any) -> List[Row]:
        covey.init()
        self.addCleanup(covey.shutdown)
        with tempfile.TemporaryDirectory() as folder:
            flag = Flag(folder, 0, 1)
            with flag, cuda.Peer(backend, folder) as peer:
                return what(path, peer, Contest(LITTLE, flag))

    def test_allreduce(self) -> None:
        def what(*given: Any) -> List[Row]:
            return cuda.allreduce((4096, 8192), *given)

        for row, size in zip(self.measured("staged", "nccl", what), (4096, 8192)):
            self.assertEqual(list(row.seconds), ["covey staged", "torch nccl"])
            self.assertEqual(row.bases, {"covey staged": "torch nccl"})
            self.assertEqual(set(row.moved_bytes.values()), {size})
            self.assertEqual(row.notes, [])
        (row, _) = self.measured("ipc", None, what)
        self.assertEqual((list(row.seconds), row.bases), (["covey ipc"], {}))
        self.assertIn("nothing went by ipc", row.notes[0])
        self.assertGreaterEqual(len(self.waits), 2 * (3 + 2 + 2))

    def test_what_a_rank_does(self) -> None:
        for kind, rows in (("allreduce", 2), ("step", 1)):
            with tempfile.TemporaryDirectory() as folder:
                work = job.Work(kind, LITTLE, small=True)
                found, versions = cuda_job.rank_main(work, "staged", "nccl", folder)
            self.assertEqual(len(found), rows)
            self.assertEqual(versions["covey"], covey.__version__)
        self.assertEqual(self.devices, [0, 0])

    def test_step(self) -> None:
        def what(*given: Any) -> List[Row]:
            return cuda.step(*given, small=True)

        (row,) = self.measured("staged", "nccl", what)
        names = ["covey staged", "covey staged, idle", "ddp nccl", "ddp nccl, idle"]
        self.assertEqual(list(row.seconds), names)
        self.assertEqual(row.size_bytes, 4 * 500)
        self.assertIn("may wait for the device: 0; goal: 0", row.notes[0])
        self.assertRegex(row.notes[1], "^covey staged: .* ms; goal: at most 20%$")
        self.assertRegex(row.notes[2], "^ddp nccl: communication adds .* ms$")

    def test_a_busy_backward_computes_before_each_gradient(self) -> None:
        done: List[int] = []
        at: List[int] = []
        model = cuda.Busy((3, 2), lambda: done.append(0), 7)
        for weight in model.weights:
            weight.register_hook(lambda gradient: at.append(len(done)))
        model().backward()
        self.assertEqual(at, [3, 5, 7])
        for weight in model.weights:
            self.assertEqual(weight.grad.tolist(), [1.0, 1.0])


if __name__ == "__main__":
    unittest.main()
