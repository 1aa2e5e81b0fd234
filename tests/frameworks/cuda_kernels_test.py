"""Goal: `covey bench kernels --device cuda` launches the kernels that it names, on what it says.
Method: a driver without a card (tests/plugins/driver) runs their loops. What is timed and said is
tried with kernels made up here and tensors of the CPU."""

from __future__ import annotations

import ctypes
import os
import pathlib
import tempfile
import types
import unittest
from typing import Any, List
from unittest import mock

import torch

import covey
from covey.bench import cards, cuda, cuda_kernels
from covey.bench.contest import Contest, Effort, Row
from covey.bench.flag import Flag

_PLUGINS = pathlib.Path(__file__).absolute().parents[1] / "plugins"
_ON_DEVICE = 0x4B << 56
"""Of an address of the fake driver's, beside the host's."""


class LaunchTest(unittest.TestCase):
    def setUp(self) -> None:
        self.driver = ctypes.CDLL(str(_PLUGINS / "driver" / "libcuda.so.1"))
        context = ctypes.c_void_p()
        self.driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 100)
        self.driver.cuCtxPushCurrent_v2(context)
        self.addCleanup(self.driver.cuCtxPopCurrent_v2, ctypes.byref(context))
        patch = mock.patch.dict(os.environ, {"COVEY_PLUGIN_PATH": str(_PLUGINS / "cuda")})
        patch.start()
        self.addCleanup(patch.stop)

    def test_each_workload_does_what_it_says(self) -> None:
        kernels = cuda_kernels.Kernels()
        for count in (1, 3000):
            tensors = [torch.arange(count, dtype=torch.float32) * (k + 1) for k in range(4)]
            inputs = [tensor.data_ptr() ^ _ON_DEVICE for tensor in tensors]
            for work in cuda_kernels.WORKLOADS:
                cast = "bfloat16" in work.kernel
                out = torch.full((count,), 7.0, dtype=torch.bfloat16 if cast else torch.float32)
                want = sum(tensors[: work.inputs]) + (7.0 if "add" in work.kernel else 0.0)
                where = out.data_ptr() ^ _ON_DEVICE
                launch = kernels.launcher(work.kernel, inputs[: work.inputs], where, count)
                launch(0)
                self.driver.cuStreamSynchronize(None)
                self.assertTrue(torch.equal(out, want.to(out.dtype)), work)
        kernels.close()

    def test_what_cannot_be_launched(self) -> None:
        kernels = cuda_kernels.Kernels()
        for kernel, inputs in (
            ("covey_nothing", [8]),
            ("covey_scale_float32", [8, 8]),
            ("covey_reduce_float32", []),
            ("covey_reduce_float32", [8] * 65),
        ):
            why = f"{kernel} of {len(inputs)} inputs: error -1"
            with self.assertRaisesRegex(RuntimeError, why):
                kernels.launcher(kernel, inputs, 8, 1)(0)
        kernels.close()

    def test_without_a_plug_in(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            with mock.patch.object(cards, "plugin_folders", lambda: [folder]):
                with self.assertRaisesRegex(RuntimeError, "there is no libcovey_cuda.so in"):
                    cuda_kernels.Kernels()


    def test_a_plug_in_without_kernels_is_named_before_anything_starts(self) -> None:
        self.assertIsNone(cards.without_kernels())
        empty = types.SimpleNamespace(covey_cuda_bench_has_kernels=lambda: 0)
        with mock.patch.object(ctypes, "CDLL", lambda _: empty):
            why = "plugins/cuda/libcovey_cuda.so was built without nvcc and has no kernels"
            self.assertIn(why, cards.without_kernels() or "")


class SaidTest(unittest.TestCase):
    def test_a_row_for_each_size(self) -> None:
        launched: List[Any] = []

        class Kernels:
            def launcher(self, kernel: str, inputs: Any, output: int, elems: int) -> Any:
                return lambda stream: launched.append((kernel, len(inputs), elems, stream))

        stream = types.SimpleNamespace(cuda_stream=5)
        covey.init()
        self.addCleanup(covey.shutdown)
        with tempfile.TemporaryDirectory() as folder, mock.patch.object(cuda, "DEVICE", "cpu"):
            with mock.patch.object(torch.cuda, "synchronize", lambda: None):
                with mock.patch.object(torch.cuda, "current_stream", lambda: stream):
                    with Flag(folder, 0, 1) as flag:
                        contest = Contest(Effort(1, 1, 0.0), flag)
                        rows = cuda_kernels.bench(Kernels(), (64, 4000), contest)
        self.assertEqual([row.size_bytes for row in rows], [64, 4000])
        self.assertEqual(len(rows[1].notes), len(cuda_kernels.WORKLOADS))
        self.assertEqual(rows[1].moved_bytes["reduce 4"], 20_000)
        self.assertEqual(rows[1].moved_bytes["cast to bfloat16"], 6_000)
        self.assertEqual(rows[1].moved_bytes["device copy"], 8_000)
        self.assertIn(("covey_reduce_float32", 4, 1000, 5), launched)

    def test_the_share_is_of_bytes_and_not_of_time(self) -> None:
        row = Row("a", 1, moved_bytes={"add": 300, cuda_kernels.COPY: 200})
        row.seconds = {"add": [[2.0]], cuda_kernels.COPY: [[1.0]]}
        note = cuda_kernels.note_of(row, "add")
        self.assertEqual(note, "add: 75% of the copy's GB/s; goal: at least 80%")


if __name__ == "__main__":
    unittest.main()
