"""Goal: what is wrong with a checkpoint is found before anything is changed, on any rank, and said
on all; a save that fails on one rank fails on all, is bounded where the method is, and leaves the
old checkpoint whole, also when a rank is killed in it.
Method: files are cut, changed and taken away; ranks are killed at the writes themselves.
"""

from __future__ import annotations

import json
import os
import pathlib
import resource
import shutil
import signal
import tempfile
import unittest
from typing import Any, Dict, List, Tuple
from unittest import mock

import torch
from ranks import SEED, Pool, SharedPool, ranks_may_die
from save_nets import Net, Training, flip

import covey
import covey.torch as hvd
from covey import checkpoint_folder

METHOD = "local:H=4"
FIRST = 3

pool = SharedPool(__file__)


def setUpModule() -> None:
    print(f"seed {SEED}")


def tearDownModule() -> None:
    pool.close()


Failure = Tuple[str, str, int]  # The error's class, text and rank.


def failure_of(function: Any, *args: Any, **kwargs: Any) -> Failure:
    try:
        function(*args, **kwargs)
    except covey.CoveyError as error:
        return type(error).__name__, str(error), error.peer_rank
    return "", "", -1


# ---- On the ranks ------------------------------------------------------------------------------


def saves(path: str, method: str = METHOD) -> Dict[str, Any]:
    training = Training(method)
    training.train(0, FIRST)
    training.save(path, epoch=1)
    return training.parts()


def loads(path: str, method: str = METHOD) -> Dict[str, Any]:
    training = Training(method, SEED + 1)
    assert training.load(path).exact
    return training.parts()


def is_refused(path: str, width: int = 16) -> Failure:
    """Nothing is changed by it, and training goes on."""
    training = Training(METHOD, SEED + 1, width)
    training.train(0, 2)
    before = training.parts()
    failure = failure_of(training.load, path)
    assert training.parts() == before
    training.train(2, 2)
    hvd.check_replicas(dict(training.net.named_parameters()))
    return failure


def wrong_calls(path: str) -> List[Failure]:
    training = Training("allreduce")
    training.train(0, 1)
    net, optimizer = training.net, training.optimizer
    found = [failure_of(training.save, path, thing=object() if hvd.rank() == 1 else 3)]
    found.append(failure_of(training.save, path, deep={"a": [1, {"b": print}]}))
    found.append(failure_of(hvd.save, path, torch.nn.Linear(2, 2), optimizer))
    found.append(failure_of(hvd.save, path, net, torch.optim.SGD(net.parameters(), lr=1.0)))
    training.save(path, epoch=1)
    found.append(failure_of(hvd.load, path, net, optimizer, scheduler=training.schedule))
    found.append(failure_of(hvd.load, path, net, optimizer, epoch=training.schedule))
    other = Net()
    sgd = torch.optim.SGD([p for p in other.parameters() if p.requires_grad], lr=1.0)
    found.append(failure_of(hvd.load, path, other, hvd.DistributedOptimizer(sgd)))
    found.append(failure_of(hvd.load, path + "o", net, optimizer))
    with covey.consensus(net):
        found.append(failure_of(training.save, path))
    net(torch.ones(8, 6)).sum().backward()
    found.append(failure_of(training.save, path))
    optimizer.step()
    training.load(path)
    training.train(1, 1)
    return found


def other_models(path: str) -> Failure:
    training = Training("allreduce")
    training.train(0, 1)
    if hvd.rank() == 1:
        training.net.register_buffer("more", torch.zeros(3))
    return failure_of(training.save, path)


def unequal_steps(path: str) -> Failure:
    training = Training("local:H=100")
    training.train(0, 1 + hvd.rank())
    return failure_of(training.save, path)


def has_no_room(path: str) -> Failure:
    """Rank 1 may write no more than 4 KiB to a file."""
    training = Training("allreduce")
    training.train(0, FIRST + 1)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    if hvd.rank() == 1:
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
    failure = failure_of(training.save, path, noise=torch.randn(5000))
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    training.train(FIRST + 1, 1)
    hvd.check_replicas(dict(training.net.named_parameters()))
    return failure


def is_killed(path: str, rank: int, function: str) -> Failure:
    """That rank dies where it would call that function of the folder; in the middle of a write."""
    training = Training(METHOD)
    training.train(0, FIRST + 2)

    def die(*args: Any) -> None:
        if function == "write":
            (args[0] / args[1]).write_bytes(b"PK\3\4")
        os.kill(os.getpid(), signal.SIGKILL)

    if hvd.rank() == rank:
        with mock.patch.object(checkpoint_folder, function, die):
            training.save(path)
    return failure_of(training.save, path)


def comes_late(path: str, method: str) -> Failure:
    """Rank 1 does not come to the first save()."""
    training = Training(method)
    training.train(0, FIRST)
    failure = failure_of(training.save, path) if hvd.rank() == 0 else ("", "", -1)
    hvd.barrier()
    for _ in range(50):  # Somebody may just be giving up.
        if not failure_of(training.save, path)[0]:
            break
        hvd.barrier()
    return failure


def cannot_exchange(path: str) -> None:
    """A file system without it: the old folder is out of the way for a moment."""
    training = Training("allreduce")
    with mock.patch.object(checkpoint_folder, "_exchange", lambda *_: False):
        for done in range(2):
            training.train(done, 1)
            training.save(path, done=done)
    assert hvd.load(path, training.net, training.optimizer)["done"] == 1
    hvd.barrier()
    place = pathlib.Path(path)
    if hvd.rank() == 0:  # As it is when that moment does not end.
        place.rename(place.parent / f".{place.name}.old")
    hvd.barrier()
    assert hvd.load(path, training.net, training.optimizer)["done"] == 1
    hvd.barrier()
    training.save(path, done=2)
    assert hvd.load(path, training.net, training.optimizer)["done"] == 2


# ---- The tests ---------------------------------------------------------------------------------


class SaveFaultsTest(unittest.TestCase):
    def setUp(self) -> None:
        made = tempfile.TemporaryDirectory()
        self.addCleanup(made.cleanup)
        self.folder = pathlib.Path(made.name)
        self.path = self.folder / "last"

    def assert_all(self, failures: List[Failure], kind: str, rank: int, *words: str) -> None:
        for failure in failures:
            self.assertEqual((failure[0], failure[2]), (kind, rank), failure)
            for word in words:
                self.assertIn(word, failure[1])

    def refused(self, *words: str, rank: int = 0) -> None:
        self.assert_all(pool(3).call(is_refused, str(self.path)), "BadCheckpoint", rank, *words)

    def test_what_is_wrong_with_a_file_is_found_before_anything_is_changed(self) -> None:
        saved = pool(3).call(saves, str(self.path))
        whole = self.folder / "whole"
        shutil.copytree(self.path, whole)
        # The last is read by nobody: each rank has an optimizer of its own.
        names = (("rank1.pt", 1), ("rank0.pt", 0), ("model.pt", 0), ("optimizer.pt", 0))
        for name, rank in names:
            file = self.path / name
            with self.subTest(name=name):
                os.truncate(file, file.stat().st_size - 1)
                self.refused(f"{name} is cut short", rank=rank)
                shutil.copy(whole / name, file)
                flip(file, 0.5)
                self.refused(f"{name} has been changed", rank=rank)
                file.unlink()
                self.refused(f"{name} is missing", rank=rank)
                shutil.copy(whole / name, file)
        self.assertEqual(pool(3).call(loads, str(self.path)), saved)

    def test_what_is_wrong_with_the_manifest(self) -> None:
        pool(3).call(saves, str(self.path))
        file = self.path / "manifest.json"
        text = file.read_text()
        manifest = json.loads(text)
        file.write_text(text.replace('"steps": 3', '"steps": 4'))
        self.refused("manifest.json has been changed")
        file.write_text(json.dumps({**manifest, "format": 2}))
        self.refused("format 2", "reads format 1", "a newer Covey")
        file.write_text(text[: len(text) // 2])
        self.refused("manifest.json cannot be read")
        file.unlink()
        self.refused("is no checkpoint", "no manifest.json")
        self.path = self.path / "model.pt"
        self.refused("model.pt is a file, and a checkpoint is a folder")

    def test_another_model_is_refused_by_its_first_tensor_that_differs(self) -> None:
        pool(3).call(saves, str(self.path))
        failures = pool(3).call(is_refused, str(self.path), 20)
        self.assert_all(
            failures,
            "InvalidArgument",
            0,
            "another model: tensor 0 is first.weight, float32 [16, 6] in the checkpoint, and "
            "first.weight, float32 [20, 6] in this model",
        )

    def test_wrong_calls_are_refused_on_all(self) -> None:
        for found in pool(2).call(wrong_calls, str(self.path)):
            wanted = (
                "rank 1: thing is a builtins.object",
                "deep['a'][1]['b'] is a builtins.builtin_function_or_method",
                "parameter 0 of group 0 of the optimizer, of shape [16, 6], is not in the model",
                "the optimizer is a SGD, not a DistributedOptimizer",
                "nothing by the name scheduler: it has schedule, epoch; did you mean schedule?",
                "epoch was saved as a value",
                "of another optimizer: Adam, and this one is SGD",
                f"there is no checkpoint at {self.path}o",
                "inside covey.consensus()",
                "before optimizer.step()",
            )
            self.assertEqual(len(found), len(wanted))
            for failure, words in zip(found, wanted):
                self.assertEqual(failure[0], "InvalidArgument", failure)
                self.assertIn(words, failure[1])
        failures = pool(2).call(other_models, str(self.path))
        self.assert_all(failures, "InvalidArgument", -1, "have different tensors")
        failures = pool(2).call(unequal_steps, str(self.path))
        self.assert_all(failures, "InvalidArgument", -1, "rank 0 has done 1 steps, and rank 1 2")

    def test_who_cannot_write_is_named_and_the_old_one_stays(self) -> None:
        saved = pool(2).call(saves, str(self.path), "allreduce")
        failures = pool(2).call(has_no_room, str(self.path))
        self.assert_all(failures, "NotSaved", 1, "rank 1: ", "File too large")
        self.assertEqual([it.name for it in self.folder.iterdir()], ["last"])
        self.assertEqual(pool(2).call(loads, str(self.path), "allreduce"), saved)

    def test_a_place_where_nothing_can_be_is_refused(self) -> None:
        other = self.folder / "file"
        other.write_text("mine")
        for path, kind, words in (
            (other / "last", "NotSaved", str(other)),
            (other, "InvalidArgument", "is a file"),
            (self.folder, "InvalidArgument", "other things in it"),
        ):
            failures = pool(2).call(fails_to_save, str(path))
            self.assert_all(failures, kind, 0, words)
        self.assertEqual(other.read_text(), "mine")

    @ranks_may_die
    def test_a_rank_that_is_killed_in_a_save_leaves_the_old_one(self) -> None:
        saved = pool(3).call(saves, str(self.path))
        pool.close()
        for rank, function in ((1, "write"), (0, "write"), (0, "commit"), (0, "_exchange")):
            with self.subTest(rank=rank, function=function):
                with Pool(3, __file__) as job:
                    job.send(is_killed, str(self.path), rank, function)
                    failures = job.collect(may_end=True)
                self.assertIsNone(failures.pop(rank))
                for failure in failures:
                    self.assertEqual((failure[0], failure[2]), ("Aborted", rank), failure)
        self.assertGreater(len(list(self.folder.iterdir())), 1)  # What was not whole is there.
        self.assertEqual(pool(3).call(loads, str(self.path)), saved)
        pool(3).call(saves, str(self.path))
        self.assertEqual([it.name for it in self.folder.iterdir()], ["last"])

    def test_a_missing_rank_is_waited_for_as_long_as_the_method_says(self) -> None:
        for method in ("eager:max_wait=300ms", "wagma:max_wait=300ms", "adpsgd:max_wait=300ms"):
            with self.subTest(method=method):
                failures = pool(2).call(comes_late, str(self.path), method)
                self.assert_all(failures[:1], "Timeout", 1, "max_wait")
                self.assertTrue((self.path / "manifest.json").is_file())
                shutil.rmtree(self.path)

    def test_a_file_system_that_cannot_exchange_two_folders(self) -> None:
        pool(2).call(cannot_exchange, str(self.path))
        self.assertEqual([it.name for it in self.folder.iterdir()], ["last"])


def fails_to_save(path: str) -> Failure:
    training = Training("allreduce")
    training.train(0, 1)
    return failure_of(training.save, path)


if __name__ == "__main__":
    unittest.main()
