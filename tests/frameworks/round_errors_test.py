"""A rank that throws in the middle of a step, or ends early: what it has not published is in no
version, nobody waits for it, and it can go on.

Method: gradients of whole numbers, whose sum says what went in; hashes at every version.
"""

from __future__ import annotations

import contextlib
import gc
import sys
import unittest
from typing import Any, Dict, List, Tuple, Type

import torch
from nets import batch_of, loss_of, make_net
from ranks import SEED, SharedPool, also
from whole_numbers import Trainer, gradient_of, sum_of

import covey.torch as hvd
from covey.torch.trainer import version_gradients

pool = SharedPool(__file__)


def setUpModule() -> None:
    print(f"seed {SEED}")


def tearDownModule() -> None:
    pool.close()


# ---- On the ranks ------------------------------------------------------------------------------


class Thrown(Exception):
    pass


def throw(*_: Any) -> None:
    raise Thrown


def throws_in_its_closure(method: str) -> Tuple[List[float], Dict[int, str]]:
    """Rank 1 at its third step, before it has published anything."""
    trainer = Trainer(method)
    for step in range(1, 7):
        if step != 3 or hvd.rank() != 1:
            trainer.step()
            continue
        trainer.steps += 1
        try:
            trainer.optimizer.step(throw)
        except Thrown:
            continue
        raise AssertionError("step() has caught what the closure has thrown")
    trainer.optimizer.finish()
    return trainer.parameter.tolist(), trainer.seen


def throws_before_an_update(method: str) -> Tuple[List[float], Dict[int, str]]:
    """Rank 1 once, when its gradient is published and nothing of the version is applied."""
    trainer = Trainer(method)
    functions = trainer.optimizer._covey_functions
    for step in range(1, 7):
        if step == 3 and hvd.rank() == 1:
            functions.append(throw)
        try:
            trainer.step()
        except Thrown:
            functions.clear()
    assert not functions  # It has thrown.
    trainer.optimizer.finish()
    return trainer.parameter.tolist(), trainer.seen


def throws_after_an_update(method: str) -> Tuple[List[float], Dict[int, str]]:
    """Rank 1 in a post-hook of its first update from its third step on."""
    trainer = Trainer(method)
    thrown = []

    def log(*_: Any) -> None:
        if trainer.steps >= 3 and hvd.rank() == 1 and not thrown:
            thrown.append(True)
            raise Thrown

    trainer.optimizer.register_step_post_hook(log)
    for _ in range(6):
        with contextlib.suppress(Thrown):
            trainer.step()
    with contextlib.suppress(Thrown):  # All its updates, if it was slow.
        trainer.optimizer.finish()
    assert bool(thrown) == (hvd.rank() == 1)
    trainer.optimizer.finish()
    return trainer.parameter.tolist(), trainer.seen


def throws_in_a_post_hook(method: str, what: Type[BaseException]) -> Tuple[int, int, List[float]]:
    """Rank 1 after its third update."""
    trainer = Trainer(method, op=hvd.Average)
    thrown = []

    def log(*_: Any) -> None:
        if trainer.steps == 3 and hvd.rank() == 1 and not thrown:
            thrown.append(True)
            raise what

    trainer.optimizer.register_step_post_hook(log)
    caught = 0
    for _ in range(6):
        try:
            trainer.step()
        except what:
            caught += 1
    trainer.optimizer.finish()
    assert caught == len(thrown) == (hvd.rank() == 1)
    return trainer.steps, trainer.optimizer.version, trainer.parameter.tolist()


def ends_early(method: str) -> None:
    """Rank r does 3 + 4 r steps."""
    net = make_net()
    sgd = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    optimizer = hvd.DistributedOptimizer(sgd, model=net, method=method)
    for step in range(3 + 4 * hvd.rank()):
        optimizer.zero_grad()
        loss_of(net, batch_of(step, hvd.rank())).backward()
        optimizer.step()
    optimizer.finish()
    hvd.check_replicas(net)
    assert all(bool(p.isfinite().all()) for p in net.parameters())


def fails_half_made() -> List[str]:
    """Something fails after the rounds are open: what is said when they are dropped."""
    said: List[str] = []
    kept, sys.unraisablehook = sys.unraisablehook, lambda what: said.append(str(what.exc_value))
    parameter = torch.nn.Parameter(torch.zeros(3))
    try:
        for name in ("spans_of", "Ahead"):
            whole = getattr(version_gradients, name)
            setattr(version_gradients, name, throw)
            try:
                hvd.DistributedOptimizer(
                    torch.optim.SGD([parameter], lr=1.0), op=hvd.Sum, method="eager:admit=all"
                )
            except Thrown:
                pass
            else:
                raise AssertionError("it has not failed")
            finally:
                setattr(version_gradients, name, whole)
            gc.collect()
    finally:
        sys.unraisablehook = kept
    return said


def refusal_of(options: Dict[str, Any]) -> str:
    parameter = torch.nn.Parameter(torch.zeros(3))
    try:
        hvd.DistributedOptimizer(torch.optim.SGD([parameter], lr=1.0), **options)
    except ValueError as error:
        return str(error)
    return ""


# ---- Here --------------------------------------------------------------------------------------


class RoundErrorsTest(unittest.TestCase):
    def test_what_a_closure_throws_leaves_nothing_in_a_version(self) -> None:
        for method in ("eager:admit=all,max_wait=30s", "eager:admit=solo,log=16"):
            results = pool(3).call(throws_in_its_closure, method)
            expected = torch.tensor(sum_of([6, 6, 6]), dtype=torch.float64) + gradient_of(1, 3)
            for parameter, seen in results:
                self.assertEqual(parameter, expected.tolist(), method)
                self.assertEqual(seen, results[0][1], f"{method}, seed {SEED}")

    def test_what_is_thrown_before_an_update_is_applied_once_later(self) -> None:
        results = pool(3).call(throws_before_an_update, "eager:admit=all,max_wait=30s")
        for parameter, seen in results:
            self.assertEqual(parameter, sum_of([6, 6, 6]))
            self.assertEqual(seen, results[0][1], f"seed {SEED}")

    def test_what_is_thrown_after_an_update_does_not_undo_it(self) -> None:
        for method in ("eager:admit=all,max_wait=30s", "eager:admit=solo,log=16"):
            results = pool(3).call(throws_after_an_update, method)
            for parameter, seen in results:
                self.assertEqual(parameter, sum_of([6, 6, 6]), method)
                self.assertEqual(seen, results[0][1], f"{method}, seed {SEED}")

    def test_a_post_hook_that_throws_ends_the_step_after_what_is_exchanged(self) -> None:
        expected = [total / 2 for total in sum_of([6, 6])]
        for method in (
            *("allreduce", "allreduce:max_wait=30s", "dpsgd", "dpsgd:order=atc", "adpsgd", "swarm"),
            *("local:H=2", "local:H=2,max_wait=30s", "wagma:max_wait=30s,then=local@4"),
            *("eager:admit=all,max_wait=30s,then=allreduce@4", "wagma:max_wait=30s"),
        ):
            for what in (Thrown, *also(KeyboardInterrupt)):
                results = pool(2).call(throws_in_a_post_hook, method, what)
                self.assertEqual(results[0], results[1], f"{method}, seed {SEED}")
                if not method.startswith("wagma"):  # Its models average what is older.
                    self.assertEqual(results[0], (6, 6, expected), method)

    def test_one_that_fails_half_made_leaves_quietly(self) -> None:
        self.assertEqual(pool(2).call(fails_half_made), [[], []])

    def test_who_ends_early_is_not_waited_for(self) -> None:
        for method in ("eager:admit=all,max_wait=30s", "eager", "wagma:tau=3,max_wait=30s",
                       "allreduce:max_wait=30s", "local:H=3,max_wait=30s"):
            pool(3).call(ends_early, method)

    def test_what_a_method_does_not_have_is_named_with_the_nearest(self) -> None:
        for options, words in (
            ({"method": "eager", "group_size": 2}, 'method "eager" has no parameter "group_size"'),
            ({"method": "eager", "max_stalenes": 2}, 'the nearest is "max_staleness"'),
            ({"method": "wagma", "max_staleness": 2}, 'method "wagma" has no parameter "max_stal'),
            ({"method": "wagma", "groupsize": 2}, 'the nearest is "group_size"'),
            ({"method": "local", "admit": "solo"}, "it has local_steps (H), max_wait, codec, wa"),
            ({"method": "allreduce", "admit": 2}, "it has max_wait, codec, warmup_steps, clip"),
            ({"method": "allreduce", "max_wiat": "2s"}, 'the nearest is "max_wait"'),
            ({"method": "allreduce", "max_wait": "-1s"}, "is not off, auto or a time such as "),
            ({"method": "local", "max_wait": "abc"}, "is not off, auto or a time such as "),
            ({"method": "local", "max_wait": "0s"}, "is not off, auto or a time such as "),
            ({"method": "allreduce", "max_wait": "1s", "op": hvd.Max}, "op must be Average or Sum"),
            ({"method": "local", "max_wait": "1s", "op": hvd.Sum}, "op must be Average"),
            ({"method": "wagma", "group_size": -1}, "is not auto or a number of ranks from 1"),
            ({"method": "wagma", "group_size": 5}, "has groups of 5 ranks, but there are 3"),
            ({"method": "eager", "admit": 0}, "a number of ranks from 1, or a part of them"),
            ({"method": "eager", "admit": -1}, "a number of ranks from 1, or a part of them"),
            ({"method": "eager", "admit": 1.5}, "a number of ranks from 1, or a part of them"),
            ({"method": "wagma", "admit": 4}, "admits with 4 ranks, but there are 3"),
            ({"method": "eager", "L": 0}, "which is not a number of steps from 1 to"),
            ({"method": "eager", "max_wait": 5}, "which is not auto or a time such as 20ms"),
        ):
            for refusal in pool(3).call(refusal_of, options):
                self.assertIn(words, refusal)
