"""Goal: the loops of covey._native that `covey bench` times do what they say.
Method: a flag between two processes, sums between three whose results are exact, wrong calls."""

from __future__ import annotations

import ctypes
import tempfile
import threading
import unittest
from typing import Any, List

import numpy
from ranks import SEED, SharedPool

import covey
from covey import _native
from covey.bench.flag import Flag

pool = SharedPool(__file__)


def setUpModule() -> None:
    print(f"seed {SEED}")


def tearDownModule() -> None:
    pool.close()


# ---- Run on ranks -------------------------------------------------------------------------------


def flag(folder: str) -> List[float]:
    with Flag(folder, covey.rank(), covey.size()) as word:
        return [word.one_way_s() for _ in range(3)]


def sums() -> None:
    size = covey.size()
    array = numpy.full(5, 2.0, numpy.float32)
    address = array.__array_interface__["data"][0]
    _native.bench_allreduce("loop", address, 5, 4)
    assert array.tolist() == [2.0 * size**4] * 5, array
    try:
        _native.bench_allreduce("loop", address, 4 if covey.rank() == 1 else 5, 3)
        raise AssertionError("lengths that differ were not refused")
    except covey.Mismatch:
        pass
    _native.bench_allreduce("loop", address, 5, 1)


# ---- The tests ----------------------------------------------------------------------------------


class BenchNativeTest(unittest.TestCase):
    def test_a_flag_goes_back_and_forth(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            first, second, third = pool(3).call(flag, folder)
        self.assertTrue(all(0 < seconds < 1 for seconds in first + second), (first, second))
        self.assertEqual(third, [0.0] * 3)

    def test_both_sides_are_needed(self) -> None:
        memory = ctypes.create_string_buffer(256)
        address, found = ctypes.addressof(memory), []

        def other() -> Any:
            found.append(_native.bench_flag(address, 1, 10))

        thread = threading.Thread(target=other)
        thread.start()
        self.assertGreater(_native.bench_flag(address, 0, 10), 0)
        thread.join()
        self.assertEqual(len(found), 1)

    def test_wrong_calls(self) -> None:
        memory = ctypes.create_string_buffer(256)
        for arguments in ((0, 0, 1), (ctypes.addressof(memory), 2, 1), (1, 0, 0)):
            with self.assertRaises(ValueError):
                _native.bench_flag(*arguments)

    def test_sums_in_a_loop(self) -> None:
        for size in (1, 3):
            pool(size).call(sums if size > 1 else alone)

    def test_before_init(self) -> None:
        with self.assertRaises(covey.NotInitialized):
            _native.bench_allreduce("x", 0, 0, 1)

    def test_an_mpi_that_fails_is_told(self) -> None:
        # Called with six arguments, abs() looks at the first alone; of 0 it returns 0.
        function = ctypes.cast(ctypes.CDLL(None).abs, ctypes.c_void_p).value
        _native.bench_mpi(function, 0, 0, 0, 0, 0, 0, 3)
        with self.assertRaisesRegex(RuntimeError, "returned 5"):
            _native.bench_mpi(function, 5, 0, 0, 0, 0, 0, 3)


def alone() -> None:
    array = numpy.ones(3, numpy.float32)
    _native.bench_allreduce("loop", array.__array_interface__["data"][0], 3, 10)
    assert array.tolist() == [1.0] * 3


if __name__ == "__main__":
    unittest.main()
