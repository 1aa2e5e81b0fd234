"""Goal: with a method in rounds gradients lie where the core reads them from backward on, without
being copied at step(), and nothing that users do with ``grad`` goes wrong by it.

Method: the addresses of gradients, and whole numbers whose mean says what was published.
"""

from __future__ import annotations

import unittest
from typing import Any, List, Tuple

import torch
from ranks import SharedPool

import covey.torch as hvd
from covey import _native

METHOD = "eager:admit=all"

pool = SharedPool(__file__)


def tearDownModule() -> None:
    pool.close()


# ---- On the ranks ------------------------------------------------------------------------------


def is_in_core(optimizer: Any, parameter: torch.Tensor) -> bool:
    """Whether its gradient lies in any memory that peers read."""
    for span in optimizer._covey_trainer._versions._spans:
        for places, _ in span._known.values():
            for place in places:
                if parameter.grad is not None and parameter.grad.is_set_to(place.view):
                    return True
    return False


def vector(**options: Any) -> Tuple[torch.nn.Parameter, Any]:
    parameter = torch.nn.Parameter(torch.zeros(5))
    sgd = torch.optim.SGD([parameter], lr=1.0)
    return parameter, hvd.DistributedOptimizer(sgd, method=METHOD, **options)


def backward(parameter: torch.Tensor, factor: float) -> None:
    """Its gradient is `factor`, and more on higher ranks."""
    (parameter * (factor + hvd.rank())).sum().backward()


def mean(factor: float) -> float:
    return factor + (hvd.size() - 1) / 2


def lie_there() -> List[List[bool]]:
    """After backward, after a second pass, after step(); of a net with all kinds of layouts."""
    torch.manual_seed(1)
    convolution = torch.nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)
    tied = torch.nn.Linear(4, 4)
    empty = torch.nn.Parameter(torch.zeros(0, 3))
    parameters = [*convolution.parameters(), *tied.parameters()]
    sgd = torch.optim.SGD([*parameters, empty], lr=0.1)
    optimizer = hvd.DistributedOptimizer(sgd, method=METHOD)
    seen = []
    for _ in range(5):
        optimizer.zero_grad()
        for _ in range(2):
            out = convolution(torch.ones(2, 3, 5, 5)).mean((2, 3))
            (tied(tied(out)).sum() + empty.sum()).backward()
            seen.append([is_in_core(optimizer, parameter) for parameter in parameters])
        optimizer.step()
        seen.append([not is_in_core(optimizer, parameter) for parameter in parameters])
    optimizer.finish()
    return seen


def passes_add_up() -> List[float]:
    parameter, optimizer = vector()
    backward(parameter, 1)
    backward(parameter, 10)
    optimizer.step()
    first = parameter.tolist()[0]
    optimizer.zero_grad()
    backward(parameter, 100)  # dropped
    optimizer.zero_grad()
    backward(parameter, 1000)
    optimizer.step()
    return [first, parameter.tolist()[0]]


def kept_gradient() -> Tuple[List[float], List[float]]:
    """As those do who combine the gradients of several losses."""
    parameter, optimizer = vector()
    backward(parameter, 1)
    first = parameter.grad
    optimizer.zero_grad()
    backward(parameter, 10)
    kept = first.tolist()
    parameter.grad = first + 2 * parameter.grad
    optimizer.step()
    return kept, parameter.tolist()


def kept_by_autograd() -> Tuple[List[float], List[float]]:
    parameter, optimizer = vector()
    (gradient,) = torch.autograd.grad((parameter * 3).sum(), [parameter])
    backward(parameter, 1)
    kept = gradient.tolist()
    optimizer.step()
    return kept, parameter.tolist()


def with_a_graph() -> List[float]:
    parameter, optimizer = vector()
    (parameter * (4 + hvd.rank())).sum().backward(create_graph=True)
    optimizer.step()
    optimizer.zero_grad()
    return parameter.tolist()


def add_one(parameter: torch.Tensor) -> None:
    parameter.grad.add_(1)


def with_hooks() -> List[float]:
    """One before the gradient is accumulated and one after it, which writes in place."""
    parameter, optimizer = vector()
    parameter.register_hook(lambda gradient: 10 * gradient)
    parameter.register_post_accumulate_grad_hook(add_one)
    backward(parameter, 1)
    optimizer.step()
    return parameter.tolist()


class Interrupted(Exception):
    pass


def interrupted_step() -> Tuple[bool, List[float], List[float]]:
    """Published, and then the wait is interrupted and ``grad`` written by the user."""
    parameter, optimizer = vector()
    acknowledge = _native.trainer_ack

    def interrupt(*action: Any) -> None:
        acknowledge(*action)
        raise Interrupted

    _native.trainer_ack = interrupt
    backward(parameter, 1)
    try:
        optimizer.step()
    except Interrupted:
        _native.trainer_ack = acknowledge
    is_left = not is_in_core(optimizer, parameter)
    optimizer.zero_grad(set_to_none=False)
    parameter.grad.fill_(99)
    optimizer.finish()
    first = parameter.tolist()
    optimizer.zero_grad()
    backward(parameter, 10)
    optimizer.step()
    return is_left, first, parameter.tolist()


def zeroed_in_place() -> List[float]:
    """``grad`` is the version's result then, and the next pass adds to it."""
    parameter, optimizer = vector()
    for factor in (1, 10, 100):
        optimizer.zero_grad(set_to_none=False)
        backward(parameter, factor)
        optimizer.step()
    return parameter.tolist()


def after_the_rounds() -> Tuple[bool, List[float]]:
    """Buckets are made anew after a backward pass: its gradient stays, in other memory."""
    parameter, optimizer = vector()
    backward(parameter, 7)
    spans = optimizer._covey_trainer._versions._spans
    optimizer.rebuild_buckets()
    places = [place for span in spans for p, _ in span._known.values() for place in p]
    is_left = not any(parameter.grad.is_set_to(place.view) for place in places)
    optimizer.step()
    return is_left, parameter.tolist()


# ---- The tests ---------------------------------------------------------------------------------


class RoundGradientsTest(unittest.TestCase):
    def test_backward_puts_gradients_where_the_core_reads_them(self) -> None:
        for seen in pool(2).call(lie_there):
            self.assertEqual(len(seen), 15)
            for one in seen:
                self.assertEqual(one, [True] * 4)

    def test_passes_add_up_and_dropped_ones_do_not_count(self) -> None:
        one = -(2 * 0.5 + 11)
        for seen in pool(2).call(passes_add_up):
            self.assertEqual(seen, [one, one - 1000.5])

    def test_a_gradient_that_was_kept_stays(self) -> None:
        for rank, (kept, parameter) in enumerate(pool(2).call(kept_gradient)):
            self.assertEqual(kept, [1.0 + rank] * 5)
            self.assertEqual(parameter, [-(1.5 + 2 * 10.5)] * 5)

    def test_autograd_grad_gives_memory_of_its_own(self) -> None:
        for kept, parameter in pool(2).call(kept_by_autograd):
            self.assertEqual(kept, [3.0] * 5)
            self.assertEqual(parameter, [-1.5] * 5)

    def test_gradients_with_a_graph_count(self) -> None:
        self.assertEqual(pool(2).call(with_a_graph), [[-4.5] * 5] * 2)

    def test_hooks_of_users_count(self) -> None:
        self.assertEqual(pool(2).call(with_hooks), [[-16.0] * 5] * 2)

    def test_a_step_that_is_interrupted_leaves_no_gradient_in_memory_that_peers_read(self) -> None:
        for is_left, first, second in pool(2).call(interrupted_step):
            self.assertTrue(is_left)
            self.assertEqual(first, [-1.5] * 5)
            self.assertEqual(second, [-12.0] * 5)

    def test_gradients_may_be_zeroed_in_place(self) -> None:
        self.assertEqual(pool(2).call(zeroed_in_place), [[-112.5] * 5] * 2)

    def test_gradients_outlive_the_rounds(self) -> None:
        for is_left, parameter in pool(2).call(after_the_rounds):
            self.assertTrue(is_left)
            self.assertEqual(parameter, [-7.5] * 5)


if __name__ == "__main__":
    unittest.main()
