"""Looking at the model that all ranks have on average: by any rank alone; with own weights back,
bit for bit, however the `with` ends.

Method: means are computed by hand.
"""

from __future__ import annotations

import unittest
from typing import Any, Dict, List

import torch
from even_net import Net, make, step
from ranks import HOSTS, SEED, Pool, SharedPool
from whole_numbers import digest

import covey
import covey.torch as hvd

LIMIT_S = 5.0
METHODS = ("allreduce", "local:H=1000", "eager", "wagma:S=2,tau=5", "adpsgd", "dpsgd")

pool = SharedPool(__file__)


def setUpModule() -> None:
    print(f"seed {SEED}")


def tearDownModule() -> None:
    pool.close()


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
        step(net, optimizer, 1.0 + 3.0 * hvd.rank())
    hvd.barrier()
    before = net.wide.detach()[0].item()
    with hvd.consensus(net, exact=True) as mean:
        shown = net.wide[0].item()
        hvd.check_replicas(net)
    own = net.wide[0].item()
    assert own == before or optimizer._covey_progress.plan.in_pairs
    optimizer.finish()
    found = {"own": own, "shown": shown, "distance": mean.distance, "missing": mean.missing}
    return {**found, "finished": net.wide[0].item()}


def look_while_others_go_on(method: str) -> List[str]:
    """Rank 0 looks between two steps, when the others wait for it in the next one, or at its end:
    what was wrong."""
    net, optimizer = make(method, 20_000)
    wrong = []
    for turn in range(12):
        step(net, optimizer, hvd.rank() + 1.0)
        if hvd.rank() > 0:
            continue
        for _ in range(1 + turn % 3):
            with covey.consensus(net, timeout=LIMIT_S) as mean:
                least, most = float(net.wide.min()), float(net.wide.max())
                # Of numbers of one moment each all are alike, but for rounding.
                if mean.missing or most - least > 1e-9 * most:
                    wrong.append(f"step {turn}: {mean}, {least} to {most}")
    optimizer.finish()
    hvd.check_replicas(net)
    return wrong


def look_after_the_end(method: str) -> List[Any]:
    """All look at once when all are equal; then rank 0 when the others are a step ahead."""
    net, optimizer = make(method)
    for _ in range(6):
        step(net, optimizer, hvd.rank() + 1.0)
    optimizer.finish()
    with covey.consensus(net) as mean:
        alone = [net.wide[0].item(), mean.distance, sorted(mean.ages), mean.missing]
    own = net.wide[0].item()
    hvd.barrier()
    step(net, optimizer, 1.0)
    optimizer.finish()
    return [*alone, own]


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


def leave(method: str, finishes: bool, by: float = 1.0, quiet: bool = False) -> None:
    """Ends as a script does."""
    if quiet:
        covey.shutdown()
        covey.init(settings={"log_level": "error"})
    net = Net(50)
    with torch.no_grad():  # Before others can see them: pairs begin at once.
        for parameter in (net.wide, net.small):
            parameter.fill_(3.0)
    sgd = torch.optim.SGD([net.wide, net.small], lr=1.0)
    optimizer = hvd.DistributedOptimizer(sgd, model=net, method=method)
    for _ in range(3):
        step(net, optimizer, by * (2 - hvd.rank()))
    if finishes:
        optimizer.finish()
    hvd.barrier()
    covey.shutdown()
    covey.init()


# ---- The tests ---------------------------------------------------------------------------------


class ConsensusTest(unittest.TestCase):
    def test_any_rank_alone_sees_the_mean_and_all_the_exact_one(self) -> None:
        for size in (2, 3, 4):
            self.look_exactly(size, "swarm:H=3")  # Its last step is not handed in yet.
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
                    # A rank may be late in wagma, half of an average under way between hosts.
                    if not (method.startswith("wagma") or (HOSTS > 1 and method == "adpsgd")):
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
            if method.startswith(("adpsgd", "swarm")):
                self.assertAlmostEqual(report["shown"], report["finished"], delta=1e-12 * mean)

    def test_any_rank_alone_sees_those_that_wait_for_it(self) -> None:
        methods = ("dpsgd", "dpsgd:order=atc,codec=bf16", "local:H=3", "local:H=2,codec=int8")
        for method in (*methods, "dpsgd:topology=ring,max_wait=60s", "local:H=2,then=dpsgd@5"):
            with self.subTest(method=method):
                self.assertEqual(pool(3).call(look_while_others_go_on, method), [[]] * 3)

    def test_after_finish_it_is_what_all_have(self) -> None:
        for method in (*METHODS, "local:H=4,max_wait=60s", "swarm:H=4"):
            with self.subTest(method=method):
                for shown, distance, ages, missing, own in pool(3).call(
                    look_after_the_end, method
                ):
                    self.assertEqual((shown, distance, missing), (own, 0, {}))
                    self.assertEqual(ages, [0, 1, 2])

    def test_refusals(self) -> None:
        for found in pool(4).call(refusals):
            self.assertEqual(len(found), 4, found)
            self.assertIn("inside covey.consensus()", found[0])
            self.assertIn("inside covey.consensus()", found[1])
            self.assertIn("already", found[2])
            self.assertIn("no DistributedOptimizer trains", found[3])

    def test_one_line_of_rank_0_says_how_far_models_are_apart_at_the_end(self) -> None:
        with Pool(2, __file__) as job:
            said = self.said(job, "local:H=1000", False)  # Models of 9 and 6.
            self.assertIn("the distance of ranks 0, 1 is 0.2 of their mean's norm", said)
            self.said(job, "wagma:S=1,tau=1000", False)
            self.said(job, "swarm:H=2", False)  # The last step is not handed in.
            for method in ("local:H=1000", "adpsgd", "wagma:S=1,tau=1000"):
                self.said(job, method, True, lines=0)

    def test_nothing_is_said_of_models_that_differ_by_rounding_or_where_it_is_not_wanted(
        self,
    ) -> None:
        with Pool(2, __file__) as job:
            for method in ("swarm:H=2", "adpsgd", "dpsgd", "local:H=1000", "wagma:S=1,tau=1000"):
                for by in (0.0, 1e-9):
                    self.said(job, method, False, by, lines=0)
            self.said(job, "local:H=1000", False, 1.0, True, lines=0)

    def said(self, job: Pool, *args: Any, lines: int = 1) -> str:
        before = [job.stderr(rank) for rank in range(job.size)]
        job.call(leave, *args)
        after = [job.stderr(rank)[len(old) :] for rank, old in enumerate(before)]
        told = [text.count("without optimizer.finish()") for text in after]
        self.assertEqual(told, [lines] + [0] * (job.size - 1), (args, after))
        return after[0]


if __name__ == "__main__":
    unittest.main()
