"""Goal: a job that loads a checkpoint goes on as the one that has saved it, bit for bit where its
method does the same twice.
Method: new processes load what others have saved, and train on as they do.
"""

from __future__ import annotations

import pathlib
import tempfile
import time
import unittest
from typing import Any, Dict, List, Tuple

from ranks import SEED, Pool, also
from save_nets import Training

import covey.torch as hvd

# Without luck: nobody is left out, and sums are in rank order.
EXACT = (
    "allreduce",
    "allreduce:max_wait=60s",
    "local:H=4",
    "local:H=4,max_wait=60s",
    "local:H=4,warmup_steps=3",
    "allreduce:then=local@3,then=allreduce@9",
    "allreduce:codec=topk@bits=4",
    "allreduce:codec=int8",
    "local:H=4,codec=topk@bits=4",
    "local:H=4,codec=int8",
    "eager:admit=all,max_wait=60s",
    "wagma:S=2,tau=3,admit=all,max_wait=60s",
    "eager:admit=all,max_wait=60s,warmup_steps=9",
    "wagma:S=2,tau=3,admit=all,max_wait=60s,warmup_steps=9",
    "wagma:S=2,tau=3,admit=all,max_wait=60s,warmup_steps=3",
)
OF_SOME = tuple(method for method in EXACT if method.startswith("wagma"))
OWN = ("adpsgd", "swarm:H=4", "swarm:H=4,exchange=nonblocking")
LUCK = ("eager", "eager:admit=majority", "wagma:S=2,tau=3")
FIRST, THEN = 6, 7  # The save is in the middle of local steps.


def setUpModule() -> None:
    print(f"seed {SEED}")


# ---- On the ranks ------------------------------------------------------------------------------


def goes_on(method: str, path: str) -> Tuple[Dict[str, Any], Dict[str, Any]]:
    """As it was when it was saved, and after some more steps. It is saved twice, over the first."""
    training = Training(method)
    training.train(0, FIRST - 2)
    training.save(path, step=0)
    training.train(FIRST - 2, 2)
    training.save(path, step=FIRST, note=("of rank", hvd.rank()))
    saved = training.parts()
    hvd.barrier()  # Another rank's next step may be a version.
    training.train(FIRST, THEN)
    return saved, training.parts()


def begins(method: str, path: str) -> Dict[str, Any]:
    """As it is once it has loaded, by luck; and that it trains on, and all ends well."""
    training = Training(method, SEED + 5 + hvd.rank())
    training.train(0, 2)
    assert training.load(path).exact
    begun = training.parts()
    hvd.barrier()  # As above.
    training.train(FIRST, THEN)
    training.optimizer.finish()
    hvd.check_replicas(dict(training.net.named_parameters()))
    return begun


def loads(method: str, path: str) -> Tuple[Dict[str, Any], Dict[str, Any]]:
    """The same in other processes, from another beginning."""
    training = Training(method, SEED + 5 + hvd.rank())
    hvd.broadcast_parameters(training.net.state_dict(), root_rank=0)
    training.train(0, 2)  # The more is wrong.
    loaded = training.load(path)
    assert loaded.exact and not loaded.reset, loaded.reset
    assert loaded["step"] == FIRST and loaded["note"] == ("of rank", hvd.rank()), loaded["note"]
    assert loaded.steps == FIRST
    begun = training.parts()
    training.train(FIRST, THEN)
    return begun, training.parts()


def skips_and_saves(method: str, folder: str) -> Tuple[int, int, Dict[str, Any], Dict[str, Any]]:
    """Rank 1 comes when rank 0 has done all its steps alone but the last: it calls step() less
    often, is saved, and trains on with the others, once as it is and once as it was loaded."""
    training, steps = Training(method), 0
    others_have_come = pathlib.Path(folder, "come")
    while training.optimizer.version < FIRST:
        if hvd.rank() == 1:
            while not others_have_come.exists():
                time.sleep(0.001)
        training.train(steps, 1)
        steps += 1
        if hvd.rank() == 0 and training.optimizer.version == FIRST - 1:
            others_have_come.touch()
    training.optimizer.finish()
    training.save(f"{folder}/it", step=steps)
    found = []
    for _ in range(2):
        loaded = training.load(f"{folder}/it")
        assert loaded["step"] == steps
        training.train(FIRST, THEN)
        training.optimizer.finish()
        hvd.check_replicas(dict(training.net.named_parameters()))
        found.append(training.parts())
    return steps, loaded.steps, *found


def takes_turns_and_saves(folder: str) -> List[int]:
    """The ranks step one after the other: there are more versions than steps of any rank. The
    version before a save, after it, after help for others, a step, a load and a step again."""
    training = Training("eager:admit=solo,max_wait=60s,grace=0s")
    for turn in range(2):
        if turn == hvd.rank():
            training.train(turn, 3)
        hvd.barrier()
    training.optimizer.finish()
    versions = [training.optimizer.version]
    training.save(f"{folder}/it")
    versions.append(training.optimizer.version)
    training.optimizer._covey_trainer.help()
    versions.append(training.optimizer.version)
    training.train(3, 1)
    versions.append(training.optimizer.version)
    training.load(f"{folder}/it")
    versions.append(training.optimizer.version)
    training.train(3, 1)
    versions.append(training.optimizer.version)
    return versions


def keeps_functions() -> int:
    """What is called before updates still is, after save() and load()."""
    called = []
    training = Training("eager:admit=all,max_wait=60s")
    training.optimizer.before_update(lambda: called.append(1))
    with tempfile.TemporaryDirectory() as own:
        path = hvd.broadcast_object(own, root_rank=0)
        training.train(0, 1)
        training.save(f"{path}/it")
        training.train(1, 1)
        training.load(f"{path}/it")
        training.train(1, 1)
        hvd.barrier()
    return len(called)


# ---- The tests ---------------------------------------------------------------------------------


class SaveTest(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def path(self, method: str, size: int = 0) -> str:
        return str(self.folder / f"{method} {size}".replace(":", " "))

    def test_who_loads_goes_on_as_who_has_saved(self) -> None:
        for size in (1, *also(2), 3, 4):
            # With four ranks only methods with groups of some ranks differ from three.
            methods = {1: EXACT[:3], 4: (*OF_SOME, *also(*EXACT))}.get(size, EXACT)
            with Pool(size, __file__) as job:
                wanted = {
                    method: job.call(goes_on, method, self.path(method, size))
                    for method in methods
                }
            with Pool(size, __file__) as job:
                for method in methods:
                    with self.subTest(size=size, method=method):
                        found = job.call(loads, method, self.path(method, size))
                        for rank in range(size):
                            self.assertEqual(found[rank], wanted[method][rank], f"rank {rank}")

    def test_each_goes_on_with_its_own_model_where_nobody_waits(self) -> None:
        for size in (2, 3):
            methods = OWN + LUCK
            with Pool(size, __file__) as job:
                wanted = {
                    method: job.call(goes_on, method, self.path(method, size))
                    for method in methods
                }
            with Pool(size, __file__) as job:
                for method in methods:
                    with self.subTest(size=size, method=method):
                        found = job.call(begins, method, self.path(method, size))
                        for rank in range(size):
                            self.assertEqual(found[rank], wanted[method][rank][0], f"rank {rank}")

    def test_ranks_that_have_skipped_steps_save(self) -> None:
        for method in ("eager:admit=solo,max_wait=60s,grace=0s", "eager:admit=0.5,grace=0s"):
            with self.subTest(method=method), Pool(2, __file__) as job:
                with tempfile.TemporaryDirectory() as folder:
                    ahead, late = job.call(skips_and_saves, method, folder)
                self.assertLess(late[0], ahead[0])
                self.assertEqual((ahead[1], late[1]), (ahead[0], ahead[0]))

    def test_versions_go_on_where_ranks_have_taken_turns(self) -> None:
        with Pool(2, __file__) as job, tempfile.TemporaryDirectory() as folder:
            for before, saved, helped, stepped, loaded, again in job.call(
                takes_turns_and_saves, folder
            ):
                self.assertGreater(before, 3)
                self.assertEqual((saved, helped, loaded), (before, before, before))
                self.assertGreater(stepped, before)
                self.assertGreater(again, before)

    def test_functions_before_updates_stay(self) -> None:
        with Pool(2, __file__) as job:
            self.assertEqual(job.call(keeps_functions), [3, 3])


if __name__ == "__main__":
    unittest.main()
