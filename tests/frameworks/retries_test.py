"""Goal: a step that was not done can be called again, and what runs around an update sees what the
method says: a closure or a hook that raises, dpsgd's models, the end of a part of deltas.
Method: 2 and 3 ranks; sums by hand."""

from __future__ import annotations

import unittest
from typing import Any, Callable, List, Tuple

import torch
from ranks import SharedPool

import covey
import covey.torch as hvd

pool = SharedPool(__file__)


def tearDownModule() -> None:
    pool.close()


def weight(value: float) -> torch.nn.Parameter:
    return torch.nn.Parameter(torch.full((3,), value, dtype=torch.float64))


def optimizer_of(parameter: torch.nn.Parameter, method: str, decay: float = 0.0) -> Any:
    sgd = torch.optim.SGD([parameter], lr=1.0, weight_decay=decay)
    return hvd.DistributedOptimizer(sgd, named_parameters=[("w", parameter)], method=method)


def raising_once(at: int, of_rank: int) -> Callable[..., None]:
    calls: List[int] = []

    def function(*_: Any) -> None:
        calls.append(0)
        if len(calls) == at and hvd.rank() == of_rank:
            raise RuntimeError("of the script")

    return function


# ---- On the ranks ------------------------------------------------------------------------------


def after_a_hook(method: str, is_hook: bool) -> None:
    """The third step of the last rank raises before its update, and is called again."""
    parameter = weight(0.0)
    optimizer = optimizer_of(parameter, method)
    function = raising_once(3, hvd.size() - 1)
    (optimizer.register_step_pre_hook if is_hook else optimizer.before_update)(function)
    raised = 0
    for step in range(6):
        optimizer.zero_grad()
        parameter.grad = torch.full_like(parameter, 2.0 * hvd.rank() + step)
        try:
            optimizer.step()
        except RuntimeError:
            raised += 1
            optimizer.step()
    optimizer.finish()
    assert raised == (hvd.rank() == hvd.size() - 1), raised
    total = -sum(hvd.size() - 1.0 + step for step in range(6))  # 2 * rank has that mean.
    torch.testing.assert_close(parameter.data, torch.full_like(parameter, total))


def with_a_closure(method: str) -> None:
    """The closure of the second batch raises; the script goes on with the third one."""
    parameter = weight(0.0)
    optimizer = optimizer_of(parameter, method)

    def closure_of(batch: float) -> Callable[[], float]:
        def closure() -> float:
            if batch == 10.0:
                raise RuntimeError("of the script")
            parameter.grad = torch.full_like(parameter, batch)
            return batch

        return closure

    assert optimizer.step(closure_of(1.0)) == 1.0
    for _ in range(2):
        try:
            optimizer.step(closure_of(10.0))
        except RuntimeError:
            continue
        raise AssertionError("the closure has raised")
    assert optimizer.step(closure_of(100.0)) == 100.0
    optimizer.finish()
    torch.testing.assert_close(parameter.data, torch.full_like(parameter, -101.0))


def around_an_update(decay: float) -> Tuple[List[float], float]:
    """The model that functions before the update and after it see, and that after the step."""
    parameter = weight(float(hvd.rank()))
    optimizer = optimizer_of(parameter, "dpsgd:topology=full", decay)
    seen: List[float] = []

    def see(*_: Any) -> None:
        seen.append(parameter[0].item())

    optimizer.register_step_pre_hook(see)
    optimizer.before_update(see)
    optimizer.register_step_post_hook(see)
    parameter.grad = torch.full_like(parameter, 0.25)
    optimizer.step()
    after = parameter[0].item()
    optimizer.finish()
    return seen, after


def up_to_a_part(method: str, lead: int) -> List[int]:
    """Rank 0 is ahead by `lead` steps before the others begin; each does 8."""
    parameter = weight(0.0)
    optimizer = optimizer_of(parameter, method)
    versions: List[int] = []
    if hvd.rank() > 0:
        covey.barrier()
    for step in range(8):
        if step == lead and hvd.rank() == 0:
            covey.barrier()
        optimizer.zero_grad()
        parameter.grad = torch.ones_like(parameter)
        optimizer.step()
        versions.append(optimizer.version)
    optimizer.finish()
    hvd.check_replicas({"w": parameter})
    return [*versions, optimizer.version]


# ---- The test ----------------------------------------------------------------------------------


class RetriesTest(unittest.TestCase):
    def run_all(self, function: Callable[..., Any], *arguments: Any, size: int = 2) -> List[Any]:
        return pool(size).call(function, *arguments)

    def test_a_step_that_a_hook_has_ended_is_done_when_it_is_called_again(self) -> None:
        for method in ("allreduce", "local:local_steps=2", "dpsgd"):
            for is_hook in (True, False):
                with self.subTest(method=method, is_hook=is_hook):
                    self.run_all(after_a_hook, method, is_hook, size=3 if is_hook else 2)

    def test_a_closure_that_raises_is_forgotten(self) -> None:
        for method in ("allreduce", "eager:admit=all", "local:local_steps=2", "dpsgd"):
            with self.subTest(method=method):
                self.run_all(with_a_closure, method)

    def test_what_hooks_see_of_neighbors_does_not_depend_on_decay(self) -> None:
        for decay in (0.0, 0.5):
            with self.subTest(decay=decay):
                for rank, (seen, after) in enumerate(self.run_all(around_an_update, decay)):
                    own = float(rank)
                    self.assertEqual(seen[:2], [own, own], "before the update")
                    self.assertAlmostEqual(after, 0.5 - 0.25 - decay * own)
                    self.assertEqual(seen[2:], [after], "after it")

    def test_ranks_of_deltas_that_step_equally_often_end_their_part_together(self) -> None:
        for method in ("diloco:H=2,admit=solo,then=allreduce@5", "diloco:H=3,admit=solo"):
            for lead in (0, 2, 4):
                with self.subTest(method=method, lead=lead):
                    for versions in self.run_all(up_to_a_part, method, lead):
                        self.assertEqual(versions, sorted(versions))
                        self.assertEqual(versions[-1], 8)


if __name__ == "__main__":
    unittest.main()
