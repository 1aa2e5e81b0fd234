"""Looking at the model that all ranks have on average: by any rank alone, while the others train,
are stopped or dead; with own weights back, bit for bit, however the `with` ends.

Method: models whose values say which rank and step they are of, so that one that was read half
written shows; means are computed by hand. When a rank is stopped is drawn, from a seed that is
printed.
"""

from __future__ import annotations

import random
import time
import unittest
from typing import Any, Dict, List, Tuple

import torch
from ranks import SEED, Pool, SharedPool
from watched import LIMIT_S, Report, Watched
from whole_numbers import digest

import covey
import covey.torch as hvd

METHODS = ("allreduce", "local:H=1000", "eager", "wagma:S=2,tau=5", "adpsgd")
# Ranks that do unequal numbers of steps.
SLOW_TO_MEET = ("local:H=1000000", "eager:max_wait=50ms", "wagma:S=2,tau=1000000", "adpsgd")
WIDE = 50_000  # Numbers, so that copying them takes a while.

pool = SharedPool(__file__)


def setUpModule() -> None:
    print(f"seed {SEED}")


def tearDownModule() -> None:
    pool.close()


class Net(torch.nn.Module):
    """Numbers of two dtypes that are all equal, and some that are not trained."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.wide = torch.nn.Parameter(torch.zeros(width, dtype=torch.float64))
        self.small = torch.nn.Parameter(torch.zeros(3, 2))
        self.frozen = torch.nn.Parameter(torch.full((2,), 7.0), requires_grad=False)


def make(method: str, width: int = 50) -> Tuple[Net, Any]:
    net = Net(width)
    sgd = torch.optim.SGD([net.wide, net.small], lr=1.0)
    return net, hvd.DistributedOptimizer(sgd, model=net, method=method)


def step(net: Net, optimizer: Any, by: float) -> None:
    """Adds ``by`` to all numbers, by this rank."""
    optimizer.zero_grad()
    (-by * (net.wide.sum() + net.small.sum())).backward()
    optimizer.step()


# ---- On the ranks ------------------------------------------------------------------------------


def look_alone(method: str) -> Dict[str, Any]:
    """Rank 0 looks, twice, while the others wait for what it sends afterwards."""
    net, optimizer = make(method)
    for _ in range(3):
        step(net, optimizer, hvd.rank() + 1.0)
    hvd.barrier()
    report: Dict[str, Any] = {}
    if hvd.rank() == 0:
        before = digest(net.parameters())
        for _ in range(2):
            with covey.consensus(net) as mean:
                report["wide"], report["small"] = net.wide.unique().tolist(), net.small.tolist()
                report["frozen"] = net.frozen.tolist()
                report["distance"], report["norm"] = mean.distance, mean.norm
                report["ages"], report["missing"] = mean.ages, mean.missing
                net.wide.data.add_(1)  # Is gone afterwards.
        try:
            with covey.consensus(net):
                raise KeyError("in the middle")
        except KeyError:
            pass
        report["returned"] = digest(net.parameters()) == before
    report["own"] = net.wide.detach().unique().tolist()
    hvd.barrier()
    step(net, optimizer, 1.0)
    optimizer.finish()
    hvd.check_replicas(net)
    return report


def look_exactly(method: str) -> Dict[str, Any]:
    net, optimizer = make(method)
    for _ in range(4):
        step(net, optimizer, 3.0 * hvd.rank())
    hvd.barrier()
    own = net.wide.detach()[0].item()
    with hvd.consensus(net, exact=True) as mean:
        shown = net.wide[0].item()
        hvd.check_replicas(net)
    assert net.wide[0].item() == own
    optimizer.finish()
    return {"own": own, "shown": shown, "distance": mean.distance, "missing": mean.missing}


def refusals() -> List[str]:
    net, optimizer = make("local:H=100")
    found = []

    def refused(function: Any) -> None:
        try:
            function()
        except covey.InvalidArgument as error:
            found.append(str(error))

    with covey.consensus(net):
        refused(lambda: step(net, optimizer, 1.0))
        refused(optimizer.finish)
        refused(covey.consensus(net).__enter__)
    refused(covey.consensus(torch.nn.Linear(2, 2)).__enter__)
    hvd.barrier()
    step(net, optimizer, 1.0)
    optimizer.finish()
    return found


def leave(method: str, finishes: bool) -> None:
    """Ends as a script does."""
    net, optimizer = make(method)
    for _ in range(3):
        step(net, optimizer, 1.0 + hvd.rank())
    if finishes:
        optimizer.finish()
    hvd.barrier()
    covey.shutdown()
    covey.init()


def train_until(folder: str, method: str) -> Tuple[int, str, Dict[int, str]]:
    """Rank 0 looks after each step: how often it has seen another rank; what was wrong; who was
    not seen at last, and why."""
    net, optimizer = make(method, WIDE)
    report = Report(folder, hvd.rank())
    seen, wrong, missing, done = 0, "", {}, 0
    while report.goes_on:
        done += 1
        step(net, optimizer, 1.0 + hvd.rank())
        report.write(done)
        if hvd.rank() > 0:
            continue
        own = digest([net.wide])
        with covey.consensus(net, timeout=0.02) as mean:
            # A mean of numbers of one moment each: all elements are alike, but for rounding.
            least, most = float(net.wide.min()), float(net.wide.max())
            if most - least > 1e-9 * abs(most):
                wrong = f"half written: {least} to {most}"
            seen += len(mean.ages) - 1
            missing.update(mean.missing)
        if digest([net.wide]) != own:
            wrong = "own weights did not return"
    deadline = time.monotonic() + LIMIT_S  # News of a death may take a while.
    while hvd.rank() == 0 and "died" not in missing.get(2, "") and time.monotonic() < deadline:
        with covey.consensus(net, timeout=0.02) as mean:
            missing[2] = mean.missing.get(2, "")
    try:
        optimizer.finish()
    except covey.CoveyError:
        pass  # A rank was killed.
    return seen, wrong, missing


# ---- The tests ---------------------------------------------------------------------------------


class ConsensusTest(unittest.TestCase):
    def test_any_rank_alone_sees_the_mean_and_all_the_exact_one(self) -> None:
        for size in (2, 3, 4):
            for method in METHODS:
                with self.subTest(size=size, method=method):
                    reports = pool(size).call(look_alone, method)
                    report = reports[0]
                    self.assertEqual(report["missing"], {})
                    self.assertEqual(sorted(report["ages"]), list(range(size)))
                    self.assertTrue(report["returned"])
                    self.assertEqual(report["frozen"], [7.0, 7.0])
                    self.look_exactly(size, method)
                    if method.startswith(("allreduce", "eager")):
                        self.assertEqual(report["wide"], reports[0]["own"])
                        self.assertEqual(report["distance"], 0)
                        continue
                    # Averaging moves no mean.
                    mean = 3 * (size + 1) / 2
                    self.assertEqual(len(report["wide"]), 1)
                    if not method.startswith("wagma"):  # Somebody may have been late there.
                        self.assertAlmostEqual(report["wide"][0], mean, delta=1e-9)
                    if method.startswith("local"):
                        models = [3.0 * (rank + 1) for rank in range(size)]
                        spread = sum((model - mean) ** 2 for model in models) / size
                        self.assertAlmostEqual(report["distance"], spread**0.5 / mean, places=12)
                        self.assertAlmostEqual(report["norm"], mean * 56**0.5, places=5)
                        self.assertEqual(report["small"], [[mean] * 2] * 3)
                        self.assertEqual(set(report["ages"].values()), {0})

    def look_exactly(self, size: int, method: str) -> None:
        reports = pool(size).call(look_exactly, method)
        mean = sum(report["own"] for report in reports) / size
        spread = sum((report["own"] - mean) ** 2 for report in reports) / size
        for report in reports:
            self.assertAlmostEqual(report["shown"], mean, delta=1e-12 * mean)
            self.assertAlmostEqual(report["distance"], spread**0.5 / mean, places=6)
            self.assertEqual(report["missing"], {})

    def test_refusals(self) -> None:
        for found in pool(4).call(refusals):
            self.assertEqual(len(found), 4, found)
            self.assertIn("inside covey.consensus()", found[0])
            self.assertIn("inside covey.consensus()", found[1])
            self.assertIn("already", found[2])
            self.assertIn("no DistributedOptimizer trains", found[3])

    def test_who_leaves_while_models_differ_is_told_how_far(self) -> None:
        with Pool(2, __file__) as job:
            for finishes in (True, False):
                for method in ("local:H=1000", "adpsgd", "wagma:S=1,tau=1000"):
                    job.call(leave, method, finishes)
                said = job.stderr(0) + job.stderr(1)
                if finishes:
                    self.assertNotIn("without optimizer.finish()", said)
        self.assertGreaterEqual(said.count("without optimizer.finish()"), 2)
        # Models of 3 and 6, of local and of groups of one.
        self.assertIn("the distance of ranks 0, 1 is 0.333 of their mean's norm", said)

    def test_others_that_train_are_stopped_and_die_are_read_whole_or_named(self) -> None:
        rng = random.Random(SEED)
        for method in SLOW_TO_MEET:
            with self.subTest(method), Watched(3, __file__, train_until, method) as job:
                job.wait_for_all(3)
                for _ in range(2):
                    with job.stopped(1, rng):
                        job.wait_for_version(0, job.version(0) + 3)
                job.kill(2, rng)
                seen, wrong, missing = job.end(may_end=True)[0]
                self.assertEqual(wrong, "", f"seed {SEED}")
                self.assertGreater(seen, 0)
                self.assertIn("has died", missing.pop(2), f"seed {SEED}")
                for why in missing.values():
                    self.assertRegex(why, "being changed|closed its optimizer")  # Or it has ended.


if __name__ == "__main__":
    unittest.main()
