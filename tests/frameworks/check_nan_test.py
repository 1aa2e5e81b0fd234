"""check_nan: a NaN or infinite number is refused before it is mixed, with rank, name, count and
step; a reduction fails on every rank, nothing hangs, and the next call works.

Method: a rank that is drawn contributes some; sums of what was mixed, and hashes of replicas.
"""

from __future__ import annotations

import math
import random
import unittest
from typing import Any, List, Tuple

import torch
from nets import make_net, one_step
from ranks import SEED, SharedPool

import covey
import covey.torch as hvd

SIZE = 3
ODD = random.Random(SEED).randrange(SIZE)
"""The rank whose numbers are unfit."""

pool = SharedPool(__file__, {"COVEY_CHECK_NAN": "1"})
unlooked = SharedPool(__file__)


def setUpModule() -> None:
    print(f"seed {SEED}, rank {ODD} is odd")


def tearDownModule() -> None:
    pool.close()
    unlooked.close()


# ---- On the ranks ------------------------------------------------------------------------------


def error_of(function: Any) -> Tuple[str, int]:
    try:
        function()
    except covey.NotFinite as error:
        assert isinstance(error, ArithmeticError)
        return str(error), error.peer_rank
    return "", -1


def spoilt(shape: Tuple[int, ...], dtype: torch.dtype, ranks: List[int]) -> torch.Tensor:
    tensor = torch.ones(shape, dtype=dtype)
    if hvd.rank() in ranks:
        tensor.view(-1)[3] = math.nan
        tensor.view(-1)[4] = -math.inf
    return tensor


def reductions(ranks: List[int]) -> List[Tuple[str, int]]:
    found = []
    for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16):
        for call in (
            lambda t: hvd.allreduce(t, name="x"),
            lambda t: hvd.allreduce_(t, name="in place"),
            lambda t: hvd.grouped_allreduce([torch.ones(2, dtype=dtype), t], name="group"),
            lambda t: hvd.reducescatter(t, name="part"),
        ):
            for _ in range(2):  # At its first occurrence, and later.
                found.append(error_of(lambda: call(spoilt((3, 4), dtype, ranks))))
                call(spoilt((3, 4), dtype, []))  # The next one works.
    assert hvd.allreduce(torch.tensor([3, 5]), name="whole").tolist() == [3, 5]
    gathered = hvd.allgather(spoilt((1, 6), torch.float32, ranks), name="not mixed")
    assert int(gathered.isnan().sum()) == len(ranks)
    return found


def train(method: str, bad_step: int) -> Tuple[List[Tuple[str, int]], List[int], bool]:
    """The errors, at which steps, and whether replicas are equal and finite in the end."""
    net = make_net()
    sgd = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    optimizer = hvd.DistributedOptimizer(sgd, model=net, method=method)
    errors, steps = [], []
    handle = None
    for step in range(8):
        if step == bad_step and hvd.rank() == ODD:
            def spoil(gradient: torch.Tensor) -> torch.Tensor:
                gradient = gradient.clone()
                gradient.view(-1)[:7] = math.nan
                return gradient

            handle = net.out.weight.register_hook(spoil)
        error = error_of(lambda: one_step(net, optimizer, step))
        if handle is not None:
            handle.remove()
        if error[0]:
            errors.append(error)
            steps.append(step)
    if method in ("eager:admit=all", "local:H=4"):
        # A rank whose gradient was refused has come all the same: nobody is behind by a step.
        assert optimizer.version == 8, optimizer.version
    optimizer.finish()
    hvd.check_replicas(net)
    return errors, steps, all(bool(p.isfinite().all()) for p in net.parameters())


def overflow() -> Tuple[List[float], float]:
    """Each step's scale, and the parameter in the end; one rank overflows in step 1 of 3."""
    parameter = torch.nn.Parameter(torch.zeros(2))
    sgd = torch.optim.SGD([parameter], lr=1.0)
    optimizer = hvd.DistributedOptimizer(sgd, method="allreduce")
    scaler, scales = torch.amp.GradScaler("cpu", init_scale=8.0), []
    for step in range(3):
        optimizer.zero_grad()
        scaler.scale(parameter.sum() * SIZE).backward()
        if step == 1 and hvd.rank() == ODD:
            parameter.grad[1] = math.inf
        scaler.step(optimizer)
        scaler.update()
        scales.append(scaler.get_scale())
    hvd.check_replicas(torch.nn.ParameterList([parameter]))
    return scales, float(parameter[0])


# ---- Here --------------------------------------------------------------------------------------


class CheckNanTest(unittest.TestCase):
    def test_reductions_fail_on_every_rank_and_the_next_one_works(self) -> None:
        words = "2 NaN or infinite numbers of 12"
        for errors in pool(SIZE).call(reductions, [ODD]):
            self.assertEqual(len(errors), 32)
            for text, rank in errors:
                self.assertIn(f"rank {ODD} has {words}", text)
                self.assertIn("first at element 3", text)
                self.assertRegex(text, r"[.](x|in place|group|part)'")
                self.assertEqual("tensor 1 of the request" in text, ".group'" in text, text)
                self.assertEqual(rank, ODD)
        for errors in pool(SIZE).call(reductions, [0, 2]):
            for text, _ in errors:
                self.assertIn(f"rank 0 has {words}", text)
                self.assertIn(f"; rank 2 has {words}", text)

    def test_without_it_nothing_is_looked_at(self) -> None:
        for errors in unlooked(2).call(reductions, [1]):
            self.assertEqual(set(errors), {("", -1)})

    def test_averaged_gradients_fail_on_every_rank_with_the_parameters_name(self) -> None:
        for method in ("allreduce", "local:warmup_steps=9"):
            for errors, steps, is_finite in pool(SIZE).call(train, method, 4):
                self.assertEqual(steps, [4])
                self.assertTrue(is_finite)
                text, rank = errors[0]
                self.assertIn(f"rank {ODD} has an unfit gradient at step 4: 7 NaN", text)
                self.assertIn("numbers of 120 in that of out.weight", text)
                self.assertEqual(rank, ODD)

    def test_an_overflow_by_a_scaler_is_a_step_that_all_leave_out(self) -> None:
        for scales, value in pool(SIZE).call(overflow):
            self.assertEqual(scales, [8.0, 4.0, 4.0])
            self.assertEqual(value, -2.0 * SIZE)

    def test_what_waits_for_nobody_fails_on_its_rank_and_is_not_mixed(self) -> None:
        for method in ("eager:admit=all", "eager:admit=solo", "local:H=4", "wagma:max_wait=2s"):
            results = pool(SIZE).call(train, method, 1)
            for rank, (errors, steps, is_finite) in enumerate(results):
                self.assertTrue(is_finite, method)
                self.assertEqual(steps, [1] if rank == ODD else [], method)
                if rank == ODD:
                    text = errors[0][0]
                    self.assertIn(f"rank {ODD} has an unfit gradient at step 1: 7 NaN", text)
                    self.assertIn("out.weight", text)
