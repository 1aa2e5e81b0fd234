"""diloco under torch: AdamW inside and SGD with Nesterov momentum outside, as its paper has it; the
model others may see; checkpoints; what follows it; what it refuses.

Method: every rank's gradients are known to all, so each computes the whole job by itself, with
torch's own optimizers, and compares.
"""

from __future__ import annotations

import pathlib
import tempfile
import unittest
from typing import Any, Dict, List, Tuple

import torch
from ranks import SEED, SharedPool, refusal_of

import covey
import covey.torch as hvd

SHAPES = ((5, 3), (7,), ())
STEPS, LOCAL = 14, 4
ALL = f"diloco:H={LOCAL},admit=all,max_wait=60s"

pool = SharedPool(__file__, {"COVEY_CHECK_NAN": "1"})


def setUpModule() -> None:
    print(f"seed {SEED}")


def tearDownModule() -> None:
    pool.close()


# ---- On the ranks ------------------------------------------------------------------------------


def numbers(rank: int, step: int) -> List[torch.Tensor]:
    source = torch.Generator().manual_seed(SEED + 1000 * rank + step + 1)
    return [torch.randn(shape, generator=source, dtype=torch.float64) for shape in SHAPES]


class Net(torch.nn.Module):
    """Parameters alone."""

    def __init__(self) -> None:
        super().__init__()
        self.all = torch.nn.ParameterList(numbers(0, -1))


def inner(model: Net) -> Any:
    return torch.optim.AdamW(model.parameters(), lr=0.05, weight_decay=0.1)


def one_step(model: Net, optimizer: Any, rank: int, step: int) -> None:
    for parameter, gradient in zip(model.parameters(), numbers(rank, step)):
        parameter.grad = gradient
    optimizer.step()


def flat(model: Net) -> torch.Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def by_formula(size: int) -> Tuple[List[torch.Tensor], torch.Tensor]:
    """The models that all depart from, after each exchange; and the one that finish() leaves."""
    outer = Net()
    outer_optimizer = torch.optim.SGD(outer.parameters(), lr=0.7, momentum=0.9, nesterov=True)
    replicas = [Net() for _ in range(size)]
    optimizers = [inner(replica) for replica in replicas]
    anchors = []
    for begin in range(0, STEPS, LOCAL):
        for rank, (replica, optimizer) in enumerate(zip(replicas, optimizers)):
            for step in range(begin, min(begin + LOCAL, STEPS)):
                one_step(replica, optimizer, rank, step)
        for parameter, *theirs in zip(outer.parameters(), *(r.parameters() for r in replicas)):
            deltas = [parameter.detach() - own.detach() for own in theirs]
            parameter.grad = torch.stack(deltas).mean(dim=0)
        outer_optimizer.step()
        for replica in replicas:
            for parameter, own in zip(outer.parameters(), replica.parameters()):
                own.data.copy_(parameter.data)
        anchors.append(flat(outer))
    return anchors, anchors[-1]


def train(method: str) -> Tuple[List[Any], List[Any], int, Dict[str, Any]]:
    """By exchange the replicated model as other ranks see it; the last model; the version; the
    figures of the training."""
    model = Net()
    optimizer = hvd.DistributedOptimizer(inner(model), model=model, method=method)
    seen = []
    for step in range(STEPS):
        one_step(model, optimizer, hvd.rank(), step)
        if (step + 1) % LOCAL != 0 and step != 0:
            with hvd.consensus(model, exact=True) as mean:
                seen.append((step // LOCAL, flat(model).tolist(), mean.distance))
    optimizer.finish()
    figures = covey.stats()["training"]
    return seen, flat(model).tolist(), optimizer.version, figures


def resumed(folder: str) -> Tuple[bool, bool]:
    """A training that goes on after save(), and one that has loaded it: are they alike, and is what
    is saved the model of all?"""
    ends = []
    for is_first in (True, False):
        model = Net()
        optimizer = hvd.DistributedOptimizer(inner(model), model=model, method=ALL)
        for step in range(6 if is_first else 0):
            one_step(model, optimizer, hvd.rank(), step)
        if is_first:
            covey.save(folder, model, optimizer)
            saved = torch.load(pathlib.Path(folder) / "model.pt", weights_only=True)
            own = dict(model.state_dict())
            is_of_all = all(torch.equal(own[name], saved[name]) for name in own)
        else:
            covey.load(folder, model, optimizer)
        for step in range(6, STEPS):
            one_step(model, optimizer, hvd.rank(), step)
        optimizer.finish()
        ends.append(flat(model))
    return torch.equal(*ends), is_of_all


def followed(method: str) -> Tuple[List[float], int]:
    model = Net()
    sgd = torch.optim.SGD(model.parameters(), lr=0.125)
    optimizer = hvd.DistributedOptimizer(sgd, method=method)
    for step in range(STEPS):
        one_step(model, optimizer, hvd.rank(), step)
    optimizer.finish()
    return flat(model).tolist(), optimizer.version


def refusals() -> Dict[str, str]:
    said = {}

    def note(what: str, call: Any) -> None:
        said[what] = refusal_of(call)

    def wrap(model: Any, **options: Any) -> Any:
        sgd = torch.optim.SGD(model.parameters(), lr=0.1)
        return hvd.DistributedOptimizer(sgd, **{"method": ALL, **options})

    half = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2).to(torch.bfloat16))
    names = list(half.named_parameters())
    note("half", lambda: wrap(half, named_parameters=names))
    later = f"local:H=2,then={ALL.replace(':', '@8:', 1)}"
    note("half later", lambda: wrap(half, named_parameters=names, method=later))
    note("op", lambda: wrap(Net(), op=hvd.Sum))
    note("codec", lambda: wrap(Net(), method=ALL + ",codec=int8"))
    note("rate", lambda: wrap(Net(), method="diloco:outer_lr=off"))
    note("momentum", lambda: wrap(Net(), method="diloco:outer_momentum=1"))
    note("works", lambda: wrap(Net()))
    return said


def overflow() -> List[float]:
    """One rank has a gradient that is NaN once: its update is left out, its step is not."""
    model = Net()
    sgd = torch.optim.SGD(model.parameters(), lr=0.125)
    optimizer = hvd.DistributedOptimizer(sgd, method=ALL)
    for step in range(2 * LOCAL):
        for parameter, gradient in zip(model.parameters(), numbers(hvd.rank(), step)):
            parameter.grad = gradient * (float("nan") if step == hvd.rank() == 1 else 1.0)
        try:
            optimizer.step()
        except covey.NotFinite:
            assert step == hvd.rank() == 1
    optimizer.finish()
    return flat(model).tolist()


# ---- The tests ---------------------------------------------------------------------------------


class DeltasTest(unittest.TestCase):
    def close(self, ours: List[float], theirs: torch.Tensor, what: str) -> None:
        torch.testing.assert_close(
            torch.tensor(ours, dtype=torch.float64), theirs, rtol=0, atol=1e-12, msg=what
        )

    def test_it_is_that_of_its_paper(self) -> None:
        for size in (2, 3, 4):
            anchors, end = by_formula(size)
            found = pool(size).call(train, ALL)
            for rank, (seen, model, version, figures) in enumerate(found):
                self.close(model, end, f"{size} ranks, rank {rank}")
                self.assertEqual(model, found[0][1], "the same bits")
                self.assertEqual(version, STEPS)
                self.all_fresh(figures, size)
                for exchanges, shown, distance in seen:
                    expected = anchors[exchanges - 1] if exchanges else flat(Net())
                    self.close(shown, expected, f"seen after {exchanges} exchanges")
                    self.assertLess(distance, 1e-15)

    def all_fresh(self, figures: Dict[str, Any], size: int) -> None:
        exchanges = -(-STEPS // LOCAL)  # finish() exchanges what is left.
        self.assertEqual(figures["versions"], exchanges)
        self.assertEqual(figures["fresh_fraction_of_rank"], dict.fromkeys(range(size), 1.0))
        self.assertEqual(sum(figures["overdue_of_rank"].values()), 0)
        self.assertEqual(figures["staleness"]["0"], exchanges * size)

    def test_a_checkpoint_has_the_outer_momentum(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            for is_alike, is_of_all in pool(3).call(resumed, str(pathlib.Path(folder) / "run")):
                self.assertTrue(is_alike)
                self.assertTrue(is_of_all)

    def test_warm_up_before_and_another_method_after_it(self) -> None:
        text = "diloco:H=3,admit=all,max_wait=60s,warmup_steps=4,then=allreduce@10"
        found = pool(3).call(followed, text)
        for model, version in found:
            self.assertEqual(model, found[0][0])
            self.assertEqual(version, STEPS)

    def test_what_it_cannot_do_is_refused_by_name(self) -> None:
        for said in pool(2).call(refusals):
            for when in ("half", "half later"):  # Also by a method that is yet to come.
                self.assertIn("Unsupported: 1.weight: changes of torch.bfloat16", said[when])
            self.assertIn("op must be Average", said["op"])
            self.assertIn("nothing travels", said["codec"])
            self.assertIn("not a number such as 0.7", said["rate"])
            self.assertIn("outer_momentum", said["momentum"])
            self.assertEqual(said["works"], "nothing")

    def test_a_gradient_that_is_not_finite_costs_one_update(self) -> None:
        models = pool(2).call(overflow)
        self.assertEqual(models[0], models[1])
        self.assertTrue(all(number == number for number in models[0]))


if __name__ == "__main__":
    unittest.main()
