"""Gradients between backward() and step(): each rank reads its own, and what stands in them at
step() is what is reduced, however it was written there. An optimizer that is dropped is freed.

Method: the mean of gradients that are changed by hand, with one bucket and with many; weak
references.
"""

from __future__ import annotations

import contextlib
import copy
import gc
import io
import unittest
import weakref
from typing import Any, Callable, Dict, List

import torch
from nets import batch_of, loss_of, make_net
from ranks import SEED, SharedPool

import covey
import covey.torch as hvd

pool = SharedPool(__file__)
STEPS = 40  # More than from one step to the next in which who writes is looked at again.
MANY, ONE = 64, 1 << 23  # Bytes of a bucket.


def setUpModule() -> None:
    print(f"seed {SEED}")


def tearDownModule() -> None:
    pool.close()


# ---- On the ranks ------------------------------------------------------------------------------


def nothing(_: torch.nn.Module) -> None:
    """Writes nothing."""


def clip(net: torch.nn.Module) -> None:
    norm = torch.nn.utils.clip_grad_norm_(net.parameters(), 0.05)
    assert norm > 0.05, norm


def halve_on_rank_0(net: torch.nn.Module) -> None:
    for parameter in gradients_of(net):
        if hvd.rank() == 0:
            parameter.grad *= 0.5


def halve_data(net: torch.nn.Module) -> None:
    for parameter in gradients_of(net):
        parameter.grad.data.mul_(0.5)


def replace(net: torch.nn.Module) -> None:
    for parameter in gradients_of(net):
        parameter.grad = parameter.grad * 0.5


WRITERS: Dict[str, Callable[[torch.nn.Module], None]] = {
    writer.__name__: writer for writer in (nothing, clip, halve_on_rank_0, halve_data, replace)
}


def gradients_of(net: torch.nn.Module) -> List[Any]:
    return [parameter for parameter in net.parameters() if parameter.grad is not None]


def mean_of(net: torch.nn.Module) -> List[torch.Tensor]:
    """Of all ranks' gradients, by an operation of its own."""
    return [hvd.allreduce(parameter.grad, name="mean") for parameter in gradients_of(net)]


def wrapped(net: torch.nn.Module, bucket_bytes: int = MANY, **options: Any) -> Any:
    sgd = torch.optim.SGD(net.parameters(), lr=0.05)
    return hvd.DistributedOptimizer(sgd, model=net, bucket_bytes=bucket_bytes, **options)


def step_both(net: Any, optimizer: Any, twin: Any, by_hand: Any) -> None:
    """A step of each, that of the twin with gradients averaged by hand: they must stay equal."""
    for parameter, mean in zip(gradients_of(twin), mean_of(twin)):
        parameter.grad = mean
    optimizer.step()
    by_hand.step()
    for own, other in zip(net.parameters(), twin.parameters()):
        torch.testing.assert_close(own, other, rtol=1e-6, atol=1e-7)


def written(writer: str, bucket_bytes: int, set_to_none: bool, first: int = 0) -> int:
    """Trains beside a copy whose gradients are averaged by hand. How many warnings there were.
    ``first``: from this step on it writes."""
    net = make_net()
    twin = copy.deepcopy(net)
    optimizer, by_hand = wrapped(net, bucket_bytes), torch.optim.SGD(twin.parameters(), lr=0.05)
    with contextlib.redirect_stderr(io.StringIO()) as said:
        for step in range(STEPS):
            optimizer.zero_grad(set_to_none=set_to_none)
            by_hand.zero_grad()
            for model in (net, twin):
                loss_of(model, batch_of(step, hvd.rank())).backward()
            for own, other in zip(gradients_of(net), gradients_of(twin)):
                assert torch.equal(own.grad, other.grad), "not this rank's own gradient"
            for model in (net, twin):
                WRITERS[writer if step >= first else "nothing"](model)
            for own, other in zip(gradients_of(net), gradients_of(twin)):
                assert torch.equal(own.grad, other.grad), "what was written is not there"
            step_both(net, optimizer, twin, by_hand)
    hvd.check_replicas(net)
    return said.getvalue().count(f"covey rank {hvd.rank()} warning: gradients were written to")


def lying_on_rank_1() -> None:
    """Rank 1 keeps its gradients in the bucket, rank 0 does not, and writes to its own at times."""
    net = make_net()
    twin = copy.deepcopy(net)
    optimizer, by_hand = wrapped(net), torch.optim.SGD(twin.parameters(), lr=0.05)
    for step in range(STEPS):
        optimizer.zero_grad(set_to_none=hvd.rank() == 0 or step % 8 < 5)
        by_hand.zero_grad()
        for model in (net, twin):
            loss_of(model, batch_of(step, hvd.rank())).backward()
            if step % 3 == 0:
                halve_on_rank_0(model)
        step_both(net, optimizer, twin, by_hand)


def zeros_at_first(method: str) -> bool:
    net = make_net()
    wrapped(net, method=method)
    trained = [parameter for parameter in net.parameters() if parameter.requires_grad]
    return all(it.grad is not None and not it.grad.any() for it in trained)


def recipe_of_horovod(method: str) -> str:
    """Empty: it works."""
    net = make_net()
    optimizer = wrapped(net, method=method)
    try:
        for step in range(3):
            optimizer.zero_grad()
            loss_of(net, batch_of(step, hvd.rank())).backward()
            optimizer.synchronize()
            norm = torch.nn.utils.clip_grad_norm_(net.parameters(), 0.05)
            assert norm > 0.05, norm
            with optimizer.skip_synchronize():
                optimizer.step()
    except covey.InvalidArgument as error:
        optimizer.zero_grad()
        return str(error)
    finally:
        optimizer.finish()
    return ""


def dropped(method: str) -> None:
    for _ in range(2):
        net = torch.nn.Linear(64, 64)
        optimizer = wrapped(net, ONE, method=method)
        net(torch.ones(2, 64)).sum().backward()
        optimizer.step()
        optimizer.finish()
        known = [weakref.ref(net.weight), weakref.ref(optimizer)]
        del net, optimizer
        gc.collect()
        assert [ref() for ref in known] == [None, None], "it is kept"


class WrittenTest(unittest.TestCase):
    def test_gradients_are_read_and_written_before_the_step(self) -> None:
        for writer in WRITERS:
            for bucket_bytes in (MANY, ONE):
                for set_to_none in (True, False):
                    with self.subTest(writer, bytes=bucket_bytes, none=set_to_none):
                        said = pool(2).call(written, writer, bucket_bytes, set_to_none)
                        told = writer != "nothing" and bucket_bytes == MANY
                        if writer == "halve_data" and not set_to_none:
                            told = False  # It is not looked for: all travels in step() anyway.
                        self.assertEqual(said, [int(told), 0])

    def test_writing_may_begin_in_any_step(self) -> None:
        for writer, first in (("halve_data", 10), ("replace", 21)):
            for set_to_none in (True, False):
                with self.subTest(writer, none=set_to_none):
                    pool(2).call(written, writer, MANY, set_to_none, first)

    def test_gradients_may_lie_in_the_bucket_on_one_rank_alone(self) -> None:
        pool(2).call(lying_on_rank_1)

    def test_gradients_are_zeros_before_the_first_pass(self) -> None:
        for method in ("allreduce", "eager", "local:H=2", "wagma", "dpsgd", "adpsgd", "swarm:H=2"):
            with self.subTest(method):
                self.assertEqual(pool(2).call(zeros_at_first, method), [True, True])

    def test_the_recipe_of_horovod_works_or_names_clip_norm(self) -> None:
        for method in ("allreduce", "local:H=2", "wagma", "dpsgd", "adpsgd", "swarm:H=2"):
            with self.subTest(method):
                self.assertEqual(pool(2).call(recipe_of_horovod, method), ["", ""])
        for method in ("eager:admit=all", "allreduce:max_wait=60s"):
            with self.subTest(method):
                for refusal in pool(2).call(recipe_of_horovod, method):
                    self.assertIn("clip_norm=1.0", refusal)

    def test_an_optimizer_that_is_dropped_is_freed(self) -> None:
        for method in ("allreduce", "local:H=1", "eager:admit=all", "adpsgd"):
            with self.subTest(method):
                pool(2).call(dropped, method)


if __name__ == "__main__":
    unittest.main()
