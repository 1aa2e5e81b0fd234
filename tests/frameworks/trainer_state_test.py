"""Optimizer state, by name, through the C extension: the union of all ranks' arrays.

Method: an adapter that lists arrays by name, of which each rank has others.
"""

from __future__ import annotations

import contextlib
import unittest
from typing import Any, Dict, List, Optional, Tuple

import numpy
from ranks import SharedPool

import covey
from covey import _native
from covey.method import choose
from covey.names import next_prefix
from covey.numpy import FRAMEWORK
from covey.trainer_loop import TrainerLoop

_LIST, _LOAD = 8, 9
_FLOAT32, _INT64 = 0, 7
_AVERAGE, _MAX = 1, 3

Array = Tuple[str, List[float]]

pool = SharedPool(__file__)


def tearDownModule() -> None:
    pool.close()


# ---- On the ranks ------------------------------------------------------------------------------


class Named(TrainerLoop):
    """A trainer whose update keeps ``named``."""

    named: Dict[str, Any]
    ops: Optional[Tuple[int, ...]] = None
    loaded: List[Array]

    def _do(self, verb: int, *action: Any) -> None:
        if verb == _LIST:
            kept = self.named.values()
            _native.trainer_list(
                self._trainer,
                tuple(self.named),
                tuple(array.ctypes.data for array in kept),
                tuple(_FLOAT32 if array.dtype == numpy.float32 else _INT64 for array in kept),
                tuple(array.size for array in kept),
                self.ops,
            )
        elif verb == _LOAD:
            types = {_FLOAT32: numpy.float32, _INT64: numpy.int64}
            for name, address, dtype, count in _native.trainer_listed(self._trainer):
                values = numpy.empty(count, types[dtype])
                _native.copy_past_caches((values.ctypes.data,), (address,), (values.nbytes,))
                self.loaded.append((name, values.tolist()))
        else:
            super()._do(verb, *action)


def _trainer() -> "contextlib.closing[Named]":
    trainer = Named(FRAMEWORK, [numpy.ones(2)], [numpy.zeros(1)], lambda gradients, hypers: None)
    method = choose("local:H=9,then=allreduce@1", {})
    name = next_prefix("named", covey.world.ranks)
    how = {"method": method, "op": covey.Average, "num_hypers": 0, "begin": 0}
    trainer.open(name, covey.world, **how)
    trainer.loaded = []
    return contextlib.closing(trainer)


def union() -> Tuple[List[Array], List[Array]]:
    rank = covey.rank()
    with _trainer() as trainer:
        trainer.named = {f"ä {rank}": numpy.full(2, 6, numpy.float32)}
        if rank == 1:
            trainer.named["steps"] = numpy.array([3])
        trainer.step([numpy.ones(2)])
        first = trainer.loaded
        outside = _native.trainer_listed(trainer._trainer)
    return first, outside


def maximum() -> List[Array]:
    with _trainer() as trainer:
        trainer.named = {"a": numpy.full(1, covey.rank() + 4, numpy.float32)}
        trainer.ops = (_MAX,)
        trainer.step([numpy.ones(2)])
        return trainer.loaded


def mistakes() -> List[str]:
    said = []
    for names, ops in (
        (("a", "b"), None),
        (("a",), (_AVERAGE, _MAX)),
        (("a\0b",), None),
        ((7,), None),
        ("a", None),
        (("a",), ("x",)),
        (("a",), (_AVERAGE,)),
    ):
        try:
            _native.trainer_list(1, names, (0,), (_FLOAT32,), (0,), ops)  # type: ignore[arg-type]
        except (TypeError, ValueError) as error:
            said.append(f"{type(error).__name__}: {error}")
    return said


# ---- The tests ---------------------------------------------------------------------------------


class TrainerStateTest(unittest.TestCase):
    def test_ranks_keep_different_arrays(self) -> None:
        for first, outside in pool(2).call(union):
            self.assertEqual(first, [("steps", [3]), ("ä 0", [3, 3]), ("ä 1", [3, 3])])
            self.assertEqual(outside, [])

    def test_an_op_is_that_of_the_caller(self) -> None:
        self.assertEqual(pool(2).call(maximum), [[("a", [5])]] * 2)

    def test_wrong_arguments(self) -> None:
        said = pool(2).call(mistakes)[0]
        self.assertEqual(len(said), 7, said)
        for index in (0, 1, 4):
            self.assertIn("as many names", said[index])
        self.assertIn("null", said[2])
        self.assertIn("TypeError", said[3])
        self.assertIn("TypeError", said[5])
        self.assertIn("no such trainer", said[6])


if __name__ == "__main__":
    unittest.main()
