"""clip_norm= of every method: what an update uses is no longer than that, once, at the place where
it is exact, and with the same bits on all replicas, whoever was late; and so before_update().

Method: beside clip_grad_norm_ by hand; gradients of known length; hashes at every version.
"""

from __future__ import annotations

import math
import os
import random
import unittest
from typing import Any, Dict, List, Tuple

import torch
from nets import batch_of, loss_of, make_net
from ranks import SEED, SharedPool
from whole_numbers import watch

import covey
import covey.torch as hvd
from covey.method_summary import start_summary
from covey.torch.update import norm_of

pool = SharedPool(__file__)


def setUpModule() -> None:
    print(f"seed {SEED}")


def tearDownModule() -> None:
    pool.close()


# ---- On the ranks ------------------------------------------------------------------------------


def as_by_hand(alone: bool) -> None:
    ranks = covey.group([hvd.rank()] if alone else range(hvd.size()))
    nets = [make_net() for _ in range(2)]
    optimizers = [
        hvd.DistributedOptimizer(
            torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9),
            model=net,
            process_set=ranks,
            **settings,
        )
        for net, settings in zip(nets, ({}, {"method": "allreduce", "clip_norm": 0.05}))
    ]
    for step in range(6):
        for net, optimizer in zip(nets, optimizers):
            optimizer.zero_grad()
            loss_of(net, batch_of(step, hvd.rank())).backward()
        by_hand, clipped = optimizers
        by_hand.synchronize()
        norm = torch.nn.utils.clip_grad_norm_(nets[0].parameters(), 0.05)
        assert norm > 0.05, norm  # Else this shows nothing.
        with by_hand.skip_synchronize():
            by_hand.step()
        if step % 2 == 0:
            clipped.step()
        else:
            clipped.synchronize()
            with clipped.skip_synchronize():
                clipped.step()
    for one, other in zip(nets[0].parameters(), nets[1].parameters()):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)
    hvd.check_replicas(nets[1], ranks)


def eager_is_allreduce() -> None:
    nets = {text: make_net() for text in ("allreduce:", "eager:admit=all,")}
    for text, net in nets.items():
        sgd = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
        optimizer = hvd.DistributedOptimizer(sgd, model=net, method=text + "clip_norm=0.05")
        for step in range(6):
            optimizer.zero_grad()
            loss_of(net, batch_of(step, hvd.rank())).backward()
            optimizer.step()
        optimizer.finish()
    for one, other in zip(*(net.parameters() for net in nets.values())):
        assert torch.equal(one, other)


def late_ranks(kind: str) -> Dict[int, str]:
    """Ranks with their own numbers of threads, and a schedule of warm-up and cosine."""
    rng = random.Random(SEED + hvd.rank())
    if hvd.size() == 2:
        torch.set_num_threads(1 + hvd.rank())
    torch.manual_seed(SEED)
    net = torch.nn.Sequential(
        torch.nn.Linear(6, 200), torch.nn.Tanh(), torch.nn.Linear(200, 200), torch.nn.Linear(200, 3)
    )
    parameters = list(net.parameters())
    base = torch.optim.Adam(parameters, lr=0.01) if kind == "adam" else torch.optim.SGD(
        parameters, lr=0.1, momentum=0.9, weight_decay=1e-3
    )
    optimizer = hvd.DistributedOptimizer(
        base, model=net, method="eager", admit="solo", log=200, clip_norm=0.01
    )
    schedule = torch.optim.lr_scheduler.SequentialLR(
        optimizer,
        [
            torch.optim.lr_scheduler.LinearLR(optimizer, 0.1, total_iters=4),
            torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=10),
        ],
        [4],
    )
    norms: List[float] = []
    optimizer.before_update(lambda: norms.append(norm_of([p.grad for p in parameters])))
    seen = watch(optimizer, parameters)
    for step in range(14):
        for _ in range(rng.randrange(40)):
            os.sched_yield()
        optimizer.zero_grad()
        loss_of(net, batch_of(step, hvd.rank())).backward()
        optimizer.step()
        schedule.step()
    optimizer.finish()
    torch.set_num_threads(1)
    assert len(norms) == len(seen) - 1
    assert max(norms) <= 0.0100001 and max(norms) > 0.0099, norms
    hvd.check_replicas(net)
    return seen


def of_known_length(method: str, gradients: List[List[float]], use_closure: bool) -> List[float]:
    """A step of length 1 along this rank's gradient; afterwards the mean of all."""
    parameter = torch.nn.Parameter(torch.zeros(2, dtype=torch.float64))
    sgd = torch.optim.SGD([parameter], lr=1.0)
    optimizer = hvd.DistributedOptimizer(sgd, method=method)
    wanted = torch.tensor(gradients[hvd.rank()], dtype=torch.float64)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = (parameter * wanted).sum()
        loss.backward()
        return loss

    if use_closure:
        optimizer.step(closure)
    else:
        closure()
        optimizer.step()
    optimizer.finish()
    return parameter.tolist()


def functions_see(method: str, gradients: List[List[float]]) -> Tuple[List[float], int]:
    """Six steps along this rank's gradient, which a function doubles before each update."""
    parameter = torch.nn.Parameter(torch.zeros(2, dtype=torch.float64))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([parameter], lr=1.0), method=method)
    calls: List[int] = []

    def double() -> None:
        calls.append(1)
        parameter.grad.mul_(2)

    optimizer.before_update(double)
    wanted = torch.tensor(gradients[hvd.rank()], dtype=torch.float64)
    for _ in range(6):
        optimizer.zero_grad()
        (parameter * wanted).sum().backward()
        optimizer.step()
    optimizer.finish()
    return parameter.tolist(), len(calls)


def refusal_of(settings: Dict[str, Any]) -> str:
    parameter = torch.nn.Parameter(torch.zeros(3))
    try:
        hvd.DistributedOptimizer(torch.optim.SGD([parameter], lr=1.0), **settings)
    except (ValueError, covey.Mismatch) as error:
        return str(error)
    return ""


def differing() -> str:
    return refusal_of({"method": "eager", "clip_norm": 1 + hvd.rank()})


def sparse() -> str:
    embedding = torch.nn.Embedding(4, 2, sparse=True)
    sgd = torch.optim.SGD(embedding.parameters(), lr=1.0)
    optimizer = hvd.DistributedOptimizer(sgd, method="local:clip_norm=1")
    optimizer.zero_grad()
    embedding(torch.tensor([1])).sum().backward()
    try:
        optimizer.step()
    except ValueError as error:
        return str(error)
    return ""


def summary_of(text: str) -> str:
    return "\n".join(start_summary(text, hvd.size(), 12, 0))


# ---- Here --------------------------------------------------------------------------------------


class ClipTest(unittest.TestCase):
    def test_is_clip_grad_norm_of_what_was_averaged(self) -> None:
        for alone in (False, True):
            pool(2).call(as_by_hand, alone)

    def test_waiting_for_all_is_allreduce(self) -> None:
        pool(2).call(eager_is_allreduce)

    def test_replicas_are_equal_at_every_version(self) -> None:
        for size in (8, 4, 3, 2):
            for kind in ("sgd", "adam"):
                histories = pool(size).call(late_ranks, kind)
                for history in histories[1:]:
                    self.assertEqual(history, histories[0], f"{size} ranks, {kind}, seed {SEED}")

    def test_where_gradients_are_averaged_the_average_is_clipped(self) -> None:
        gradients = [[30.0, 40.0], [-24.0, -32.0]]  # Their mean has a norm of 5.
        for method in ("allreduce:", "eager:admit=all,", "local:H=1,warmup_steps=1,",
                       "wagma:warmup_steps=1,"):
            for use_closure in (False, True):
                for norm, expected in ((1, [-0.6, -0.8]), (7, [-3.0, -4.0])):
                    text = f"{method}clip_norm={norm}"
                    for found in pool(2).call(of_known_length, text, gradients, use_closure):
                        for one, other in zip(found, expected):
                            self.assertAlmostEqual(one, other, 5, text)

    def test_where_models_are_averaged_each_ranks_own_is_clipped(self) -> None:
        gradients = [[30.0, 40.0], [0.0, 0.5]]
        for method in ("local:H=1,", "local:H=3,", "wagma:tau=1,"):
            for use_closure in (False, True):
                text = f"{method}clip_norm=1"
                for found in pool(2).call(of_known_length, text, gradients, use_closure):
                    for one, other in zip(found, [-0.3, -0.65]):
                        self.assertAlmostEqual(one, other, 5, text)

    def test_functions_are_called_before_each_update_by_every_method(self) -> None:
        gradients = [[3.0, 4.0], [5.0, -2.0]]
        methods = (
            "allreduce", "allreduce:max_wait=60s", "local:H=2", "eager:admit=all", "wagma:tau=1",
            "dpsgd", "adpsgd", "swarm:H=2", "allreduce:then=eager@2:admit=all,then=local@4:H=1",
        )
        for size, expected in ((1, [-36.0, -48.0]), (2, [-48.0, -12.0])):
            for method in methods:
                with self.subTest(method=method, size=size):
                    for found, calls in pool(size).call(functions_see, method, gradients):
                        self.assertEqual(calls, 6)
                        for one, other in zip(found, expected):
                            self.assertAlmostEqual(one, other, 9)

    def test_norm_is_that_of_all_elements_however_they_lie(self) -> None:
        torch.manual_seed(SEED)
        tensors = [
            torch.randn(3, 5, 64, 64).contiguous(memory_format=torch.channels_last),
            torch.randn(()),
            torch.randn(0),
            torch.randn(5000, 3, dtype=torch.float64).t(),
            torch.full((9000,), 100.0, dtype=torch.float16),
            torch.randn(5000, dtype=torch.bfloat16),
            torch.randn(7, 1).expand(7, 900),
        ]
        exact = math.sqrt(sum(float(t.double().square().sum()) for t in tensors))
        threads = torch.get_num_threads()
        found = set()
        for count in (1, 2, 5):
            torch.set_num_threads(count)
            found.add(norm_of(tensors))
        torch.set_num_threads(threads)
        self.assertEqual(len(found), 1)
        self.assertLess(abs(found.pop() / exact - 1), 1e-6)
        self.assertTrue(math.isnan(norm_of([torch.tensor([1.0, math.nan])])))
        self.assertEqual(norm_of([torch.tensor([1e300], dtype=torch.float64)] * 2), math.inf)
        self.assertEqual(norm_of([]), 0.0)

    def test_wrong_ones_are_refused_with_their_range(self) -> None:
        for norm in (0, -1, "nan", "one", None, True):
            for refusal in pool(2).call(refusal_of, {"method": "eager", "clip_norm": norm}):
                self.assertIn(f'clip_norm is "{norm}", which is not off or a number', refusal)
        for refusal in pool(2).call(differing):
            self.assertIn("clip_norm=1", refusal)
            self.assertIn("clip_norm=2", refusal)
        for refusal in pool(2).call(sparse):
            self.assertIn("a gradient is sparse", refusal)

    def test_summary_says_what_is_clipped(self) -> None:
        for summary in pool(2).call(summary_of, "eager:admit=2,clip_norm=0.5"):
            self.assertRegex(summary, r"clipped +what was averaged, once for each update.* of 0.5")
        for summary in pool(2).call(summary_of, "local:local_steps=2,clip_norm=3"):
            self.assertRegex(summary, r"clipped +each rank's own gradients[\s\S]* of 3")
