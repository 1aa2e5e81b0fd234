"""Goal: checkpoints that an older Covey has written load, and training goes on from there.

Those in checkpoints/ are of format 1. Covey 0.1.0 has written them, with two ranks, before there
was diloco. Each is an archive of the folder that covey.save() has made; states.json has the hashes
of what a rank was then and, where the method does the same twice, a step later. Run as a program
with the path of a folder this file writes such ones.

Method: whole numbers, and rates that are powers of two: all of it is exact on any machine.
"""

from __future__ import annotations

import json
import pathlib
import shutil
import sys
import tempfile
import unittest
from typing import Any, Dict, Tuple

import torch
from ranks import SharedPool
from whole_numbers import digest

import covey.torch as hvd

FOLDER = pathlib.Path(__file__).parent / "checkpoints"
STEPS, SIZE = 5, 2
# By the name of the archive; after local_steps=4 it is in the middle of local steps.
METHODS = {
    "adpsgd": "adpsgd",
    "allreduce": "allreduce",
    "codec": "allreduce:codec=topk@bits=4",
    "dpsgd": "dpsgd:topology=ring",
    "eager": "eager",
    "local": "local:local_steps=4",
    "wagma": "wagma",
}
WITH_LUCK = ("adpsgd", "eager", "wagma")  # A rank may come too late for a version.

pool = SharedPool(__file__)


def tearDownModule() -> None:
    pool.close()


# ---- On the ranks ------------------------------------------------------------------------------


class Net(torch.nn.Module):
    """Parameters of two dtypes, and a buffer of each rank's own."""

    seen: torch.Tensor

    def __init__(self, begin: float) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.full((6, 5), begin))
        self.bias = torch.nn.Parameter(torch.full((3,), begin, dtype=torch.float64))
        self.register_buffer("seen", torch.zeros(2))

    def forward(self, step: int) -> torch.Tensor:
        """A loss whose gradients are whole numbers, of this rank and ``step``."""
        self.seen += torch.tensor([1.0, hvd.rank()])
        slope = torch.arange(30.0).reshape(6, 5) % 7 - 3 + (step * 5 + hvd.rank() * 3) % 8
        return (self.weight * slope).sum() + (self.bias * slope[0, :3]).sum()


class Training:
    """That of one rank."""

    def __init__(self, method: str, begin: float) -> None:
        self.net = Net(begin)
        sgd = torch.optim.SGD(self.net.parameters(), lr=0.125, momentum=0.5)
        self.optimizer = hvd.DistributedOptimizer(sgd, model=self.net, method=method)
        torch.manual_seed(hvd.rank())

    def train(self, first: int, steps: int) -> None:
        for step in range(first, first + steps):
            self.optimizer.zero_grad()
            self.net(step).backward()
            self.optimizer.step()

    def state(self) -> Dict[str, Any]:
        """By name a hash, or a number."""
        kept = {
            f"momentum of {name}": self.optimizer.state[parameter]["momentum_buffer"]
            for name, parameter in self.net.named_parameters()
        }
        tensors = {**self.net.state_dict(), **kept, "random": torch.get_rng_state()}
        return {
            "version": self.optimizer.version,
            **{name: digest([tensor]) for name, tensor in tensors.items()},
        }


def write(method: str, path: str) -> Tuple[Dict[str, Any], Dict[str, Any]]:
    """The state that is saved, and that after one more step."""
    training = Training(method, 1.0)
    training.train(0, STEPS)
    hvd.save(path, training.net, training.optimizer, note=["rank", hvd.rank()])
    saved = training.state()
    training.train(STEPS, 1)
    return saved, training.state()


def load(method: str, path: str) -> Tuple[Dict[str, Any], Dict[str, Any]]:
    """The same of a training that has loaded it; then all ends well."""
    training = Training(method, 2.0)
    training.train(0, 1)  # Of which nothing is left.
    loaded = hvd.load(path, training.net, training.optimizer)
    assert loaded.exact and not loaded.reset, loaded.reset
    assert (loaded.size, loaded.steps) == (SIZE, STEPS), loaded
    assert loaded["note"] == ["rank", hvd.rank()], loaded["note"]
    begun = training.state()
    training.train(STEPS, 1)
    after = training.state()
    training.optimizer.finish()
    hvd.check_replicas(dict(training.net.named_parameters()))
    return begun, after


# ---- The tests ---------------------------------------------------------------------------------


class OldCheckpointsTest(unittest.TestCase):
    def test_the_state_is_that_which_was_saved_and_training_goes_on(self) -> None:
        states = json.loads((FOLDER / "states.json").read_text(encoding="utf-8"))
        self.assertEqual(sorted(states), sorted(METHODS))
        for name, method in METHODS.items():
            with self.subTest(method), tempfile.TemporaryDirectory() as folder:
                shutil.unpack_archive(FOLDER / f"{name}.zip", folder)
                found = pool(SIZE).call(load, method, folder)
                for rank, (begun, after) in enumerate(found):
                    self.assertEqual(begun, states[name]["saved"][rank], f"rank {rank}")
                    if name not in WITH_LUCK:
                        self.assertEqual(after, states[name]["after"][rank], f"rank {rank}")


def write_all(folder: pathlib.Path) -> None:
    """Writes the archives, and states.json beside them."""
    states: Dict[str, Any] = {}
    for name, method in METHODS.items():
        with tempfile.TemporaryDirectory() as own:
            written = pool(SIZE).call(write, method, f"{own}/it")
            shutil.make_archive(str(folder / name), "zip", f"{own}/it")
        states[name] = {"saved": [saved for saved, _ in written]}
        if name not in WITH_LUCK:
            states[name]["after"] = [after for _, after in written]
    pool.close()
    (folder / "states.json").write_text(json.dumps(states, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    write_all(pathlib.Path(sys.argv[1]))
