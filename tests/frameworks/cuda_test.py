"""Goal: torch tensors on CUDA are sent from where they lie, and what comes back is on the stream
that was in use; without CUDA the package works as ever and says what is missing.
Method: this torch has no CUDA, so a tensor's class says that it has, and a driver without a card
(tests/plugins/driver) holds its memory. card_test.py is what runs on a card."""

from __future__ import annotations

import contextlib
import ctypes
import os
import pathlib
import signal
import types
import unittest
from typing import Any, Iterator, List
from unittest import mock

import torch
from ranks import Pool, on_one_host, refusal_of

import covey
import covey.torch as hvd

_PLUGINS = pathlib.Path(__file__).absolute().parents[1] / "plugins"
_DRIVER = _PLUGINS / "driver" / "libcuda.so.1"
# The plug-in with kernels that this driver runs, wherever it was built.
_WITH_KERNELS = {"COVEY_PLUGIN_PATH": str(_PLUGINS / "cuda"), "COVEY_IPC_BYTES": "0"}
_P, _N, _I = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int


class _Fake(ctypes.Structure):
    """FakeCuda of fake_cuda.h."""

    _fields_ = [
        ("alloc", ctypes.CFUNCTYPE(_P, _N)),
        ("free", ctypes.CFUNCTYPE(None, _P)),
        ("stream", ctypes.CFUNCTYPE(_P)),
        ("event", ctypes.CFUNCTYPE(_P)),
        ("record", ctypes.CFUNCTYPE(None, _P, _P)),
        ("compute", ctypes.CFUNCTYPE(None, _P, _P, _N, _P)),
        ("read", ctypes.CFUNCTYPE(None, _P, _P, _N, _P)),
        ("depth", ctypes.CFUNCTYPE(_I)),
        ("waits", ctypes.CFUNCTYPE(_I)),
        ("unpinned", ctypes.CFUNCTYPE(_I)),
        ("left", ctypes.CFUNCTYPE(_I)),
        ("fail", ctypes.CFUNCTYPE(None, _I)),
        ("launches", ctypes.CFUNCTYPE(_I)),
        ("refuse", ctypes.CFUNCTYPE(None, _I, _I)),
        ("opened", ctypes.CFUNCTYPE(_I)),
    ]


def _fake() -> Any:
    library = ctypes.CDLL(str(_DRIVER))
    library.fake_cuda.restype = ctypes.POINTER(_Fake)
    return library.fake_cuda().contents


class _OnCuda(torch.Tensor):
    """What the adapter asks of a tensor on CUDA."""

    is_cpu = False
    is_cuda = True
    device = torch.device("cuda:0")
    memory = 0

    def data_ptr(self) -> int:
        return self.memory


@contextlib.contextmanager
def _stream(stream: int) -> Iterator[None]:
    """As torch.cuda.stream."""
    current = types.SimpleNamespace(device_index=0, cuda_stream=stream)
    with mock.patch.object(torch.cuda, "current_stream", lambda device: current), _capturing(False):
        yield


def _capturing(is_captured: bool) -> Any:
    """Whether a CUDA graph is being recorded."""
    return mock.patch.object(torch.cuda, "is_current_stream_capturing", lambda: is_captured)


def _on_cuda(fake: Any, stream: int, values: torch.Tensor) -> Any:
    """A tensor on CUDA that the stream computes by and by."""
    length = values.numel() * values.element_size()
    made = torch.empty_like(values).as_subclass(_OnCuda)
    made.memory = fake.alloc(length)
    fake.compute(made.memory, values.data_ptr(), length, stream)
    return made


def _read(fake: Any, stream: int, tensor: Any) -> List[float]:
    values = torch.empty(tensor.shape, dtype=tensor.dtype)
    fake.read(tensor.memory, values.data_ptr(), values.numel() * values.element_size(), stream)
    return values.tolist()


def sum_in_place(steps: int) -> Any:
    fake = _fake()
    stream = fake.stream()
    sums = []
    with _stream(stream):
        for step in range(steps):
            one = torch.arange(1000, dtype=torch.float32) * (hvd.rank() + 1) + step
            tensor = _on_cuda(fake, stream, one)
            assert hvd.allreduce_(tensor, op=hvd.Sum, name="x") is tensor
            sums.append(_read(fake, stream, tensor))
    return sums, fake.waits(), fake.unpinned(), fake.depth()


def among_devices(steps: int) -> Any:
    """What the steps came to, and how many of them the devices of the host did themselves."""
    sums, waits, _, depth = sum_in_place(steps)
    return sums, covey.stats()["exchanges_ipc"], _fake().opened(), waits + depth


def until_one_dies(steps: int) -> Any:
    """The last rank is killed with a step under way; the others tell what they are told."""
    fake = _fake()
    stream = fake.stream()
    with _stream(stream):
        try:
            for step in range(2 * steps):
                values = torch.full((5000,), float(step))
                tensor = _on_cuda(fake, stream, values)
                handle = hvd.allreduce_async_(tensor, op=hvd.Sum, name="x")
                if step == steps and hvd.rank() == hvd.size() - 1:
                    os.kill(os.getpid(), signal.SIGKILL)
                hvd.synchronize(handle)
                assert _read(fake, stream, tensor) == [float(step) * hvd.size()] * 5000
        except covey.Aborted as error:
            told = str(error)
    opened = fake.opened()
    done = covey.stats()["exchanges_ipc"]
    hvd.shutdown()
    return told, step, done, opened, fake.opened()


def broadcast_and_group() -> Any:
    fake = _fake()
    stream = fake.stream()
    with _stream(stream):
        shared = _on_cuda(fake, stream, torch.full((7, 3), float(hvd.rank() + 5)))
        hvd.broadcast_(shared, root_rank=1, name="b")
        pair = [_on_cuda(fake, stream, torch.full((n,), float(hvd.rank()))) for n in (3, 50)]
        hvd.grouped_allreduce_(pair, op=hvd.Average, name="g")
        return [_read(fake, stream, one) for one in (shared, *pair)]


def captured() -> str:
    """The refusal of a call that a CUDA graph would record, and the sum of a later call."""
    fake = _fake()
    stream = fake.stream()
    with _stream(stream):
        tensor = _on_cuda(fake, stream, torch.ones(3))
        with _capturing(True):
            refused = refusal_of(lambda: hvd.allreduce_(tensor, op=hvd.Sum, name="x"))
        hvd.allreduce_(tensor, op=hvd.Sum, name="x")
        return f"{_read(fake, stream, tensor)}; {refused}"


class CudaTest(unittest.TestCase):
    def test_a_call_that_is_captured_is_refused(self) -> None:
        with Pool(2, __file__) as pool:
            for said in pool.call(captured):
                self.assertRegex(said, r"^\[2.0, 2.0, 2.0\]; Unsupported: a CUDA graph is being")

    def test_sums_are_right_and_no_thread_of_the_user_waits_for_the_device(self) -> None:
        with Pool(3, __file__) as pool:
            for sums, waits, unpinned, depth in pool.call(sum_in_place, 3):
                for step, values in enumerate(sums):
                    self.assertEqual(values, [6.0 * i + 3 * step for i in range(1000)])
                self.assertEqual((waits, unpinned, depth), (0, 0, 0))

    def test_broadcast_and_grouped(self) -> None:
        with Pool(2, __file__) as pool:
            for shared, short, long in pool.call(broadcast_and_group):
                self.assertEqual(shared, [[6.0] * 3] * 7)
                self.assertEqual((short, long), ([0.5] * 3, [0.5] * 50))

    @on_one_host("CUDA IPC reaches ranks of the same host")
    def test_processes_reduce_each_others_memory(self) -> None:
        with Pool(3, __file__, env=_WITH_KERNELS) as pool:
            for sums, by_devices, opened, waits in pool.call(among_devices, 6):
                for step, values in enumerate(sums):
                    self.assertEqual(values, [6.0 * i + 3 * step for i in range(1000)])
                self.assertEqual((by_devices, opened, waits), (4, 2, 0))

    @on_one_host("CUDA IPC reaches ranks of the same host")
    def test_a_rank_that_is_killed_hangs_no_device(self) -> None:
        with Pool(3, __file__, env=_WITH_KERNELS) as pool:
            pool.send(until_one_dies, 5)
            for rank, came_to in enumerate(pool.collect(may_end=True)):
                if rank == 2:
                    self.assertIsNone(came_to)
                    continue
                told, step, done, opened, opened_at_end = came_to
                self.assertIn("rank 2", told)
                self.assertIn(step, (5, 6))
                self.assertIn(done, (3, 4))
                self.assertLessEqual(opened, 2)
                self.assertEqual(opened_at_end, 0)

    def test_an_optimizer_says_where_it_works(self) -> None:
        net = torch.nn.Linear(3, 2, device="meta")
        hvd.init()
        try:
            with self.assertRaisesRegex(covey.Unsupported, "param.0.0 is on meta: .* or on CUDA"):
                hvd.DistributedOptimizer(torch.optim.SGD(net.parameters(), lr=0.1), model=net)
        finally:
            hvd.shutdown()


if __name__ == "__main__":
    unittest.main()
