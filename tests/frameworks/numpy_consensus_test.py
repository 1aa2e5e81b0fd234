"""Goal: ``covey.consensus`` of a covey.numpy.Trainer has the mean of the models that ranks have, by
each kind of method, says how far they are apart, and leaves nothing behind.
Method: the mean is computed anew from the models that ``allgather_object`` brings."""

from __future__ import annotations

import os
import tempfile
import unittest
from types import SimpleNamespace
from typing import Any, Dict, List

import numpy
from numpy_training import numbers, update
from ranks import SEED, SharedPool

import covey
import covey.numpy
from covey import trainer_handle
from covey.seen_models import Seen, SeenModels
from covey.trainer_handle import Seen as Look

pool = SharedPool(__file__)


def setUpModule() -> None:
    print(f"seed {SEED}")


def tearDownModule() -> None:
    pool.close()


def _flat(arrays: List[Any]) -> Any:
    return numpy.concatenate([array.astype("float64").ravel() for array in arrays])


def looks(method: str, steps: int, exact: bool, dtype: str) -> Dict[str, Any]:
    """The consensus as a rank sees it after some steps, and its model after ``finish()``."""
    with covey.numpy.Trainer(numbers(0, -1, dtype), update, method=method) as trainer:
        for step in range(steps):
            trainer.step(numbers(covey.rank(), step, dtype))
            covey.barrier()
        kept = [array.copy() for array in trainer.parameters]
        models = covey.allgather_object(_flat(kept))
        with covey.consensus(trainer, exact=exact, timeout=60) as found:
            shown = [array.copy() for array in trainer.parameters]
            covey.barrier()
        after = [array.copy() for array in trainer.parameters]
        trainer.finish()
        return {
            "kept": _flat(kept), "models": models, "shown": _flat(shown), "after": _flat(after),
            "distance": found.distance, "norm": found.norm, "ages": found.ages,
            "missing": found.missing, "finished": _flat(trainer.parameters),
        }  # fmt: skip


def looks_while_others_train(method: str, ended: str) -> List[Any]:
    """Rank 0 looks, the others do steps until there is the file ``ended``: ages, missing."""
    seen: List[Any] = []
    with covey.numpy.Trainer(numbers(0, -1, "float32"), update, method=method) as trainer:
        trainer.step(numbers(covey.rank(), 0, "float32"))
        covey.barrier()
        if covey.rank() == 0:
            with covey.consensus(trainer, timeout=60) as found:
                seen = [found.ages, found.missing]
            with open(ended, "w", encoding="utf-8"):
                pass
        while not os.path.exists(ended):
            trainer.step(numbers(covey.rank(), 0, "float32"))
        trainer.finish()
    return seen


class NumpyConsensusTest(unittest.TestCase):
    def check_mean(self, seen: Dict[str, Any], wanted: Any) -> None:
        numpy.testing.assert_allclose(seen["shown"], wanted, rtol=0, atol=1e-12)
        apart = [numpy.linalg.norm(model - wanted) for model in seen["models"]]
        norm = float(numpy.linalg.norm(wanted))
        distance = float(numpy.sqrt(numpy.mean(numpy.square(apart)))) / norm
        self.assertAlmostEqual(seen["distance"], distance, places=10)
        self.assertAlmostEqual(seen["norm"], norm, places=9)
        self.assertEqual(seen["missing"], {})
        numpy.testing.assert_array_equal(seen["after"], seen["kept"])

    def test_models_that_each_rank_trains_on(self) -> None:
        for size, method in ((2, "local:H=9"), (3, "local:H=9"), (3, "dpsgd:topology=ring")):
            with self.subTest(size=size, method=method):
                ranks = pool(size)
                for exact in (True, False):
                    for seen in ranks.call(looks, method, 4, exact, "float64"):
                        self.check_mean(seen, numpy.mean(seen["models"], axis=0))
                        self.assertGreater(seen["distance"], 0.0)
                        self.assertEqual(seen["ages"], dict.fromkeys(range(size), 0))

    def test_replicas_are_shown_as_they_are(self) -> None:
        eager = "eager:admit=all,max_wait=60s"
        for method, exact in (("allreduce", False), (eager, False), (eager, True)):
            with self.subTest(method=method, exact=exact):
                for seen in pool(2).call(looks, method, 4, exact, "float32"):
                    numpy.testing.assert_array_equal(seen["shown"], seen["kept"])
                    self.check_mean(seen, seen["kept"])
                    self.assertEqual(seen["distance"], 0.0)

    def test_by_deltas_it_is_the_model_that_ranks_depart_from(self) -> None:
        method = "diloco:H=3,outer_lr=1,outer_momentum=0,admit=all,max_wait=60s"
        for exact in (False, True):
            for seen in pool(2).call(looks, method, 5, exact, "float64"):
                begun = pool(2).call(looks, method, 3, False, "float64")[0]
                numpy.testing.assert_array_equal(seen["shown"], begun["kept"])
                self.assertGreater(float(numpy.abs(seen["shown"] - seen["kept"]).max()), 0.0)
                numpy.testing.assert_array_equal(seen["after"], seen["kept"])

    def test_in_pairs_it_is_what_finish_would_leave(self) -> None:
        for seen in pool(3).call(looks, "adpsgd", 5, True, "float64"):
            numpy.testing.assert_allclose(seen["shown"], seen["finished"], rtol=0, atol=1e-12)
        for seen in pool(3).call(looks, "adpsgd", 5, False, "float64"):
            self.assertEqual((sorted(seen["ages"]), seen["missing"]), ([0, 1, 2], {}))
            numpy.testing.assert_array_equal(seen["after"], seen["kept"])

    def test_models_that_were_published(self) -> None:
        method = "wagma:S=2,tau=3,admit=all,max_wait=60s"
        for seen in pool(2).call(looks, method, 6, False, "float64"):
            self.check_mean(seen, seen["kept"])  # A version of all is the last one.
            self.assertEqual(seen["distance"], 0.0)

    def test_a_rank_that_trains_gives_a_copy_at_the_end_of_a_step(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            ended = os.path.join(folder, "ended")
            found = pool(3).call(looks_while_others_train, "local:H=1000000", ended)
        ages, missing = found[0]
        self.assertEqual(missing, {})
        self.assertEqual(sorted(ages), [0, 1, 2])

    def test_a_model_is_looked_for_again_where_another_method_begins(self) -> None:
        there = Look(trainer_handle.WHOLE, 0, False, 4)
        looks = [Look(trainer_handle.NOTHING, 0, False, 4)] * 2 + [there]

        class Trainer:
            def look(self, *_: object) -> Look:
                return looks.pop(0)

        plan = SimpleNamespace(in_pairs=False, in_rounds=False)
        seen = SeenModels(Trainer(), 0, plan, False, lambda: None)  # type: ignore[arg-type]
        self.assertEqual(seen.read(1, [], 60.0), Seen(4))
        looks[:] = [there._replace(state=trainer_handle.NOTHING)]
        self.assertIn("where others cannot read it", seen.read(1, [], -1.0).why)

    def test_a_rank_alone(self) -> None:
        for seen in pool(1).call(looks, "local:H=9", 4, False, "float64"):
            self.check_mean(seen, seen["kept"])


if __name__ == "__main__":
    unittest.main()
