"""D-PSGD: each step is the matrix of its topology times the models of all ranks, before the update
or after it; the mean of all is moved by updates alone; models come together as fast as the spectral
gap says; finish() and consensus() give the exact mean.

Method: the slow reference is all ranks in one process in float64, matrices from covey.topology.
Models and data are drawn from a seed that is printed.
"""

from __future__ import annotations

import pathlib
import tempfile
import time
import unittest
from typing import Any, Callable, Dict, List

import numpy
import torch
from ranks import SEED, SharedPool

import covey
import covey.torch as hvd

STEPS = 7
WIDTH = 6

pool = SharedPool(__file__)


def setUpModule() -> None:
    print(f"seed {SEED}")


def tearDownModule() -> None:
    pool.close()


def make(rank: int) -> torch.nn.Module:
    """Models differ from the start, so that what is mixed shows from the first step on."""
    torch.manual_seed(SEED + rank)
    net = torch.nn.Sequential(torch.nn.Linear(WIDTH, 5), torch.nn.Tanh(), torch.nn.Linear(5, 2))
    return net.double()


def optimizer_of(kind: str, net: torch.nn.Module, rate: float = 0.1) -> torch.optim.Optimizer:
    if kind in ("adamw", "nesterov"):  # Updates that read parameters.
        many = {"weight_decay": 0.1}
        if kind == "adamw":
            return torch.optim.AdamW(net.parameters(), lr=rate, **many)
        return torch.optim.SGD(net.parameters(), lr=rate, momentum=0.9, nesterov=True, **many)
    if kind == "adam":
        return torch.optim.Adam(net.parameters(), lr=rate)
    return torch.optim.SGD(net.parameters(), lr=rate, momentum=0.9 if kind == "momentum" else 0)


def backward(net: torch.nn.Module, optimizer: Any, step: int, rank: int) -> torch.Tensor:
    source = torch.Generator().manual_seed(SEED + 1000 * step + rank)
    inputs = torch.randn(4, WIDTH, generator=source, dtype=torch.float64)
    optimizer.zero_grad()
    loss = (net(inputs) - rank).square().mean()
    loss.backward()
    return loss


def vector(net: torch.nn.Module) -> numpy.ndarray:
    return torch.cat([p.detach().reshape(-1) for p in net.parameters()]).numpy().copy()


# ---- On the ranks ------------------------------------------------------------------------------


def train(method: str, kind: str, closure: bool, rate: float = 0.1) -> Dict[str, Any]:
    """The model after each step; then what consensus() and finish() make of it."""
    rank = hvd.rank()
    net = make(rank)
    optimizer = hvd.DistributedOptimizer(optimizer_of(kind, net, rate), model=net, method=method)
    models = []
    for step in range(STEPS):
        if closure:
            optimizer.step(lambda step=step: backward(net, optimizer, step, rank))
        else:
            backward(net, optimizer, step, rank)
            optimizer.step()
        models.append(vector(net))
    hvd.barrier()
    with covey.consensus(net) as mean:
        seen = vector(net)
        assert mean.missing == {}, mean
    hvd.barrier()
    with covey.consensus(net, exact=True) as exact:
        shown = vector(net)
    assert (vector(net) == models[-1]).all()
    assert abs(mean.distance - exact.distance) < 1e-9, (mean, exact)
    optimizer.finish()
    hvd.check_replicas(net)
    return {"models": models, "seen": seen, "exact": shown, "end": vector(net)}


def refusals() -> List[str]:
    said = []
    net = make(0)
    for method in ("dpsgd:topology=bipartite", "dpsgd:topology=rung"):
        try:
            hvd.DistributedOptimizer(optimizer_of("sgd", net), model=net, method=method)
        except covey.InvalidArgument as error:
            said.append(str(error))
    return said


def wait_for(path: pathlib.Path) -> None:
    deadline = time.monotonic() + 120
    while not path.exists():
        assert time.monotonic() < deadline, f"{path} has not come"
        time.sleep(0.01)


def with_one_missing(method: str, folder: str, kind: str) -> Dict[str, Any]:
    """Rank 2 does not come to a step, nor to finish(), before all others have missed it: whom they
    have missed, and their models."""
    rank, where = hvd.rank(), pathlib.Path(folder)
    others = [other for other in range(hvd.size()) if other != 2]
    net = make(rank)
    optimizer = hvd.DistributedOptimizer(optimizer_of(kind, net), model=net, method=method)
    missed: List[int] = []

    def insist(what: str, call: Callable[[], Any]) -> None:
        if rank == 2 and what in ("step 3", "finish"):
            for other in others:
                wait_for(where / f"{what} {other}")
        while True:
            try:
                return call()
            except covey.Timeout as error:
                named = error.peer_rank
                if named == 2:
                    missed.append(optimizer.version)
                    (where / f"{what} {rank}").touch()

    models = []
    for step in range(STEPS):
        backward(net, optimizer, step, rank)
        insist(f"step {step}", optimizer.step)
        assert optimizer.version == step + 1, (optimizer.version, step)
        models.append(vector(net))
    insist("finish", lambda: optimizer.finish(strict=True))
    hvd.check_replicas(net)
    return {"models": models, "missed": len(missed)}


def parts() -> int:
    """Goes on by allreduce: replicas are equal from there on."""
    net = make(hvd.rank())
    method = "dpsgd:topology=ring,order=atc,then=allreduce@3"
    optimizer = hvd.DistributedOptimizer(optimizer_of("momentum", net), model=net, method=method)
    for step in range(5):
        backward(net, optimizer, step, hvd.rank())
        optimizer.step()
        if step >= 2:
            hvd.check_replicas(net)
    optimizer.version = 0
    for step in range(2):
        backward(net, optimizer, step, hvd.rank())
        optimizer.step()
    optimizer.finish()
    hvd.check_replicas(net)
    return optimizer.version


# ---- The reference -----------------------------------------------------------------------------


def mix(nets: List[torch.nn.Module], name: str, step: int) -> None:
    size = len(nets)
    topology = covey.topology(name, size=size)
    matrix = numpy.array([topology.weights(i, step) for i in range(size)])
    with torch.no_grad():
        for same in zip(*(net.parameters() for net in nets)):
            stacked = torch.stack([one.detach().reshape(-1) for one in same])
            for parameter, row in zip(same, torch.from_numpy(matrix) @ stacked):
                parameter.copy_(row.reshape(parameter.shape))


def put(net: torch.nn.Module, numbers: numpy.ndarray) -> None:
    torch.nn.utils.vector_to_parameters(torch.from_numpy(numbers), net.parameters())


def reference(
    size: int, name: str, order: str, kind: str, rate: float = 0.1
) -> List[List[numpy.ndarray]]:
    """By step and rank."""
    nets = [make(rank) for rank in range(size)]
    optimizers = [optimizer_of(kind, net, rate) for net in nets]
    models = []
    for step in range(STEPS):
        for rank, (net, optimizer) in enumerate(zip(nets, optimizers)):
            backward(net, optimizer, step, rank)
        before = [vector(net) for net in nets]
        for optimizer in optimizers:
            optimizer.step()
        if order == "cwa":  # W x - u, and u is of each rank's own x.
            updates = [vector(net) - x for net, x in zip(nets, before)]
            for net, x in zip(nets, before):
                put(net, x)
            mix(nets, name, step)
            for net, update in zip(nets, updates):
                put(net, vector(net) + update)
        if order == "atc":
            mix(nets, name, step)
        models.append([vector(net) for net in nets])
    return models


class DpsgdTest(unittest.TestCase):
    def check(self, size: int, name: str, order: str, kind: str, closure: bool = False) -> None:
        method = f"dpsgd:topology={name},order={order}"
        with self.subTest(size=size, method=method, kind=kind):
            wanted = reference(size, name, order, kind)
            found = pool(size).call(train, method, kind, closure)
            for rank, report in enumerate(found):
                for step in range(STEPS):
                    numpy.testing.assert_allclose(
                        report["models"][step], wanted[step][rank], rtol=1e-9, atol=1e-11
                    )
            mean = numpy.mean(wanted[-1], 0)
            for report in found:
                for what in ("seen", "exact", "end"):
                    numpy.testing.assert_allclose(report[what], mean, rtol=1e-9, atol=1e-11)

    def test_it_is_the_matrix_times_the_models(self) -> None:
        for size in (2, 3, 8, 4):  # The tests below use the last.
            names = ["ring", "exponential", "one_peer", "bipartite", "full", "matching"]
            if size == 3:
                names.remove("bipartite")
            for name in names[:3] if size == 8 else names:
                self.check(size, name, "cwa", "momentum")
                self.check(size, name, "atc", "sgd" if size == 8 else "adam")
            self.check(size, "ring", "cwa", "sgd", closure=True)
            self.check(size, "ring", "cwa", "nesterov")
            self.check(size, "ring", "cwa", "adamw", closure=True)
            self.check(size, "one_peer", "atc", "sgd", closure=True)

    def test_who_is_missing_is_named_in_time_and_the_step_goes_on(self) -> None:
        for order in ("cwa", "atc"):
            method = f"dpsgd:topology=ring,order={order},max_wait=200ms"
            with self.subTest(method=method), tempfile.TemporaryDirectory() as folder:
                kind = "nesterov" if order == "cwa" else "momentum"
                wanted = reference(3, "ring", order, kind)
                for rank, report in enumerate(pool(3).call(with_one_missing, method, folder, kind)):
                    self.assertEqual(report["missed"] >= 2, rank != 2)
                    for step in range(STEPS):
                        numpy.testing.assert_allclose(
                            report["models"][step], wanted[step][rank], rtol=1e-9, atol=1e-11
                        )

    def test_without_updates_models_come_together_and_keep_their_mean(self) -> None:
        size = 4
        first = [vector(make(rank)) for rank in range(size)]
        mean = numpy.mean(first, 0)
        for name in ("ring", "exponential", "one_peer", "bipartite", "full"):
            for order in ("cwa", "atc"):
                method = f"dpsgd:topology={name},order={order}"
                found = pool(size).call(train, method, "sgd", False, 0.0)
                topology = covey.topology(name, size=size)
                before = numpy.linalg.norm(numpy.array(first) - mean)
                for step in range(STEPS):
                    models = numpy.array([report["models"][step] for report in found])
                    numpy.testing.assert_allclose(models.mean(0), mean, rtol=1e-12, atol=1e-14)
                    if (step + 1) % topology.period == 0:
                        apart = numpy.linalg.norm(models - mean)
                        bound = topology.contraction ** (step + 1) * before
                        self.assertLessEqual(apart, bound + 1e-12, (name, step))
                if name == "one_peer":  # 4 = 2^2: the exact mean after two steps.
                    numpy.testing.assert_allclose(found[0]["models"][1], mean, rtol=1e-12)

    def test_another_method_may_follow_and_versions_may_be_set(self) -> None:
        self.assertEqual(pool(4).call(parts), [2] * 4)

    def test_what_is_wrong_is_refused(self) -> None:
        for said in pool(3).call(refusals):
            self.assertIn("dpsgd:topology=bipartite", said[0])
            self.assertIn("even", said[0])
            self.assertIn("did you mean ring?", said[1])


if __name__ == "__main__":
    unittest.main()
