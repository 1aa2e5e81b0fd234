"""Goal: a rank whose gradients overflow, as a GradScaler finds, does no update in that step, but
does the step: where models are averaged it takes part with the one it has, and nobody is behind.

Method: gradients of whole numbers, whose means are known; who overflows when is the test's choice.
"""

from __future__ import annotations

import unittest
import warnings
from typing import Any, Dict, List, Tuple

import torch
from ranks import SharedPool

import covey
import covey.torch as hvd

pool = SharedPool(__file__)

Seen = List[Tuple[float, float]]
WAYS = ("", "unscaled", "skip_synchronize", "fused")


def tearDownModule() -> None:
    pool.close()


# ---- On the ranks ------------------------------------------------------------------------------


def train(method: str, bad: Dict[int, List[int]], way: str) -> Seen:
    """Each step's parameter and scale. The gradient of rank r is 4 (r + 1); in the steps bad[r] it
    is infinite. ``way``: what the script calls before ``scaler.step()``."""
    parameter = torch.nn.Parameter(torch.zeros(2))
    unused = torch.nn.Parameter(torch.zeros(2))
    base: Any = torch.optim.SGD([parameter, unused], lr=1.0, fused=way == "fused")
    optimizer = hvd.DistributedOptimizer(base, method=method)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    seen = []
    for step in range(6):
        optimizer.zero_grad()
        scaler.scale((parameter * 4 * (hvd.rank() + 1)).sum()).backward()
        if step in bad.get(hvd.rank(), []):
            parameter.grad[1] = float("inf")
        if way == "unscaled":
            scaler.unscale_(optimizer)
        if way == "skip_synchronize":
            optimizer.synchronize()
            with optimizer.skip_synchronize():
                scaler.step(optimizer)
        else:
            scaler.step(optimizer)
        scaler.update()
        assert optimizer.version == step + 1, (optimizer.version, step)
        seen.append((parameter.tolist()[0], scaler.get_scale()))
    optimizer.finish()
    hvd.check_replicas(torch.nn.ParameterList([parameter]))
    return seen


def who_asks_for_scaling() -> List[bool]:
    """By part of a training; then of an optimizer that trains alone."""
    parameter = torch.nn.Parameter(torch.zeros(2))
    found = []
    for fused in (False, True):
        sgd = torch.optim.SGD([parameter], lr=1.0, fused=fused)
        optimizer = hvd.DistributedOptimizer(
            sgd, method="local:H=2,warmup_steps=1,then=eager@3:admit=all,then=allreduce@4"
        )
        for _ in range(5):
            found.append(optimizer._step_supports_amp_scaling)
            optimizer.zero_grad()
            parameter.sum().backward()
            optimizer.step()
    alone = covey.group([hvd.rank()])
    sgd = torch.optim.SGD([parameter], lr=1.0)
    optimizer = hvd.DistributedOptimizer(sgd, method="local", process_set=alone)
    return found + [optimizer._step_supports_amp_scaling]


def train_reduced(method: str, way: str) -> List[Tuple[List[float], float]]:
    """As ``train``, where gradients are reduced before they are looked at; the norm is clipped to
    one that is met in step 1 only. One more parameter has a gradient on rank 0 only."""
    parameter = torch.nn.Parameter(torch.zeros(2))
    seldom = torch.nn.Parameter(torch.zeros(1))
    sgd = torch.optim.SGD([parameter, seldom], lr=1.0, fused=way == "fused")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        optimizer = hvd.DistributedOptimizer(sgd, method=method, clip_norm=50.0)
        scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
        seen = []
        for step in range(5):
            optimizer.zero_grad()
            factor = (100.0 if step == 1 else 4.0) * (hvd.rank() + 1)
            if step == 2 and hvd.rank() == 1:
                factor = float("inf")
            loss = (parameter * factor).sum()
            if hvd.rank() == 0:
                loss = loss + seldom.sum() * 2
            scaler.scale(loss).backward()
            if way == "unscaled":
                scaler.unscale_(optimizer)
            scaler.step(optimizer)
            scaler.update()
            seen.append(([*parameter.tolist(), *seldom.tolist()], scaler.get_scale()))
    optimizer.finish()
    hvd.check_replicas(torch.nn.ParameterList([parameter, seldom]))
    return seen


# ---- Here --------------------------------------------------------------------------------------


class OverflowTest(unittest.TestCase):
    def test_models_are_averaged_as_they_are(self) -> None:
        # Rank 0 overflows where models are averaged, rank 1 in between, all in the last step.
        bad = {0: [2, 5], 1: [0, 5], 2: [5], 3: [5]}
        for way in WAYS:
            for rank, run in enumerate(pool(4).call(train, "local:H=3", bad, way)):
                own, less = 4 * (rank + 1), 1 if rank == 1 else 0
                mean = -(8 + 16 + 36 + 48) / 4
                wanted = [
                    -own * (1 - less),
                    -own * (2 - less),
                    mean,
                    mean - own,
                    mean - 2 * own,
                    mean - 20,
                ]
                self.assertEqual([value for value, _ in run], wanted, way)
                scales = [8.0 * 0.5 ** sum(b <= step for b in bad[rank]) for step in range(6)]
                self.assertEqual([scale for _, scale in run], scales, way)

    def test_groups_average_them_too(self) -> None:
        wanted = [-10.0, -18.0, -28.0, -38.0, -47.0, -57.0]
        for way in WAYS:
            for run in pool(4).call(train, "wagma:S=4,admit=all", {0: [4], 1: [1]}, way):
                self.assertEqual([value for value, _ in run], wanted, way)

    def test_reduced_gradients_are_looked_at_by_all_alike(self) -> None:
        clipped = [50 * x / (2 * 150.0**2 + 1) ** 0.5 for x in (150.0, 150.0, 1.0)]
        for method in ("allreduce", "local:H=2,warmup_steps=9", "eager:then=allreduce@1"):
            for way in ("", "fused", "unscaled"):
                # Which rank has overflowed is lost in what is reduced, but known before.
                for rank, run in enumerate(pool(2).call(train_reduced, method, way)):
                    less = 8.0 if way == "unscaled" and rank == 0 else 4.0
                    scales = [8.0, 8.0, less, less, less]
                    self.assertEqual([scale for _, scale in run], scales, (method, way))
                    value = [0.0] * 3
                    for step, (after, _) in enumerate(run):
                        if step != 2:
                            moved = clipped if step == 1 else (6.0, 6.0, 1.0)
                            value = [a - b for a, b in zip(value, moved)]
                        for one, other in zip(after, value):
                            self.assertAlmostEqual(one, other, 3, (method, way, step))

    def test_a_scaler_leaves_skipping_to_whom_it_concerns(self) -> None:
        for found in pool(2).call(who_asks_for_scaling):
            self.assertEqual(found[:5], [False, True, True, True, False])
            self.assertEqual(found[5:10], [True] * 5)
            self.assertEqual(found[10:], [False])


if __name__ == "__main__":
    unittest.main()
