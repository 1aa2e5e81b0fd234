"""covey.numpy.Trainer by diloco: its paper's formulas, late deltas, checkpoints."""

from __future__ import annotations

import unittest
from typing import Any, Dict, List, Tuple

import numpy
from numpy_training import STEPS, numbers, update
from ranks import SEED, SharedPool

import covey
import covey.numpy
import covey.torch as hvd

pool = SharedPool(__file__)


def setUpModule() -> None:
    print(f"seed {SEED}")


def tearDownModule() -> None:
    pool.close()


# ---- On the ranks ------------------------------------------------------------------------------


def by_formula(rank_steps: List[List[Any]], local_steps: int, rate: float, keep: float) -> Any:
    """DiLoCo as its paper has it: the parameters after the steps, and what is left over."""
    model = numbers(0, -1, "float64")
    momenta = [numpy.zeros_like(array) for array in model]
    for begin in range(0, STEPS, local_steps):
        ends = []
        for steps in rank_steps:
            own = [array.copy() for array in model]
            for gradients in steps[begin : begin + local_steps]:
                update(own, gradients)
            ends.append(own)
        for number, array in enumerate(model):
            delta = sum(array - own[number] for own in ends) / len(ends)
            momenta[number] = keep * momenta[number] + delta
            model[number] = numpy.asarray(array - rate * (delta + keep * momenta[number]))
    return model


def by_diloco(method: str) -> List[Any]:
    with covey.numpy.Trainer(numbers(0, -1, "float64"), update, method=method) as trainer:
        for step in range(STEPS):
            trainer.step(numbers(hvd.rank(), step, "float64"))
        trainer.finish()
        return [array.copy() for array in trainer.parameters]


def late_deltas(late: int, rounds: int) -> Tuple[int, List[bytes], float]:
    """DiLoCo with rate 1 and no momentum; one rank begins when the others have done all exchanges,
    and are further than the log reaches."""
    parameters = [numpy.zeros(5), numpy.zeros((2, 2))]

    def move(parameters: List[Any], gradients: List[Any]) -> None:
        for parameter, gradient in zip(parameters, gradients):
            parameter -= gradient

    method = "diloco:H=2,outer_lr=1,outer_momentum=0,admit=solo,grace=0s,log=1,max_staleness=1000"
    with covey.numpy.Trainer(parameters, move, method=method + ",max_wait=60s") as trainer:
        if hvd.rank() == late:
            covey.barrier()
        for _ in range(3 if hvd.rank() == late else 2 * rounds):
            trainer.step([numpy.ones(5), numpy.ones((2, 2))])
        if hvd.rank() != late:
            covey.barrier()
        trainer.finish()
        return trainer.version, [it.tobytes() for it in parameters], float(parameters[0][0])


def diloco_goes_on() -> Tuple[bytes, bytes]:
    """A training, and the same one saved after finish() and loaded by another trainer."""
    method = "diloco:H=2,admit=all,max_wait=60s"
    ends = []
    saved: Dict[str, Any] = {}
    for is_whole in (True, False):
        with covey.numpy.Trainer(numbers(0, -1, "float32"), update, method=method) as trainer:
            if not is_whole:
                trainer.load_state_dict(saved)
            for step in range(0 if is_whole else 5, STEPS):
                if step == 5 and is_whole:
                    trainer.finish()
                    saved = trainer.state_dict()
                trainer.step(numbers(hvd.rank(), step, "float32"))
            trainer.finish()
            ends.append(b"".join(array.tobytes() for array in trainer.parameters))
    return ends[0], ends[1]


def diloco_goes_back() -> Tuple[int, int]:
    """The versions after twelve steps, and after six more from the third on."""
    # By another admit= a rank that is behind counts the steps of those ahead, too (train-T25).
    method = "diloco:H=3,admit=all,max_wait=60s"
    with covey.numpy.Trainer(numbers(0, -1, "float32"), update, method=method) as trainer:
        for step in range(3):
            trainer.step(numbers(hvd.rank(), step, "float32"))
        trainer.finish()
        saved = trainer.state_dict()
        for step in range(9):
            trainer.step(numbers(hvd.rank(), step, "float32"))
        trainer.finish()
        last = trainer.version
        trainer.load_state_dict(saved)
        for step in range(6):
            trainer.step(numbers(hvd.rank(), step, "float32"))
        trainer.finish()
        return last, trainer.version


# ---- The tests ---------------------------------------------------------------------------------


class NumpyDilocoTest(unittest.TestCase):
    def test_diloco_is_that_of_its_paper(self) -> None:
        for size, rate, keep in ((2, 0.7, 0.9), (3, 0.5, 0.5), (4, 1, 0)):
            with self.subTest(size=size, outer_lr=rate, outer_momentum=keep):
                settings = f"outer_lr={rate},outer_momentum={keep},admit=all,max_wait=60s"
                steps = [
                    [numbers(rank, step, "float64") for step in range(STEPS)]
                    for rank in range(size)
                ]
                expected = by_formula(steps, 4, rate, keep)
                ends = pool(size).call(by_diloco, f"diloco:H=4,{settings}")
                for arrays in ends:
                    for array, first, wanted in zip(arrays, ends[0], expected):
                        self.assertEqual(array.tobytes(), first.tobytes())
                        numpy.testing.assert_allclose(array, wanted, atol=1e-12, rtol=0)

    def test_diloco_with_rate_one_and_no_momentum_is_local(self) -> None:
        for size in (2, 4):
            settings = "outer_lr=1,outer_momentum=0,admit=all,max_wait=60s"
            ours = pool(size).call(by_diloco, f"diloco:H=3,{settings}")
            theirs = pool(size).call(by_diloco, "local:H=3")
            for one, other in zip(ours, theirs):
                for array, wanted in zip(one, other):
                    numpy.testing.assert_allclose(array, wanted, atol=1e-12, rtol=0)

    def test_late_deltas_count_once(self) -> None:
        ends = pool(3).call(late_deltas, 1, 4)
        for version, everything, first in ends:
            self.assertEqual(version, 8, "no rank has done more, the late one fewer")
            self.assertEqual(everything, ends[0][1])
            self.assertLess(first, 0)

    def test_a_training_that_is_taken_up_counts_from_there(self) -> None:
        self.assertEqual(pool(2).call(diloco_goes_back), [(12, 9)] * 2)

    def test_a_loaded_diloco_has_its_outer_momentum(self) -> None:
        for whole, loaded in pool(2).call(diloco_goes_on):
            self.assertEqual(whole, loaded)


if __name__ == "__main__":
    unittest.main()
