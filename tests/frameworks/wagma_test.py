"""Models averaged by groups, without waiting for all: with nobody late it is local SGD with one
step, every so-many-th step and finish() make replicas equal, and what is not trained stays apart.

Method: replicas are compared by hash; models begin where the mean of all is known.
"""

from __future__ import annotations

import os
import random
import unittest
from typing import Any, Dict, List, Tuple

import torch
from nets import batch_of, loss_of, make_net
from ranks import SEED, SharedPool, also, differ, on_one_host
from whole_numbers import digest

import covey
import covey.torch as hvd

pool = SharedPool(__file__)


def setUpModule() -> None:
    differ()
    print(f"seed {SEED}")


def tearDownModule() -> None:
    pool.close()


# ---- On the ranks ------------------------------------------------------------------------------


def equals_local(method: str) -> None:
    """Momentum stays local with both; the sums are taken in rank order by both."""
    nets = {text: make_net() for text in ("local:H=1", method)}
    for text, net in nets.items():
        sgd = torch.optim.SGD(net.parameters(), lr=0.02, momentum=0.9, weight_decay=0.01)
        optimizer = hvd.DistributedOptimizer(sgd, model=net, method=text)
        for step in range(6):
            optimizer.zero_grad(set_to_none=step % 2 == 0)
            loss_of(net, batch_of(step, hvd.rank())).backward()
            optimizer.synchronize()
            with optimizer.skip_synchronize():
                optimizer.step()
            assert optimizer.version == step + 1
    one, other = (list(net.parameters()) for net in nets.values())
    for number, (first, second) in enumerate(zip(one, other)):
        assert torch.equal(first, second), (number, first - second)


def train(method: str, steps: int, pace: int) -> Tuple[List[str], int]:
    """Ranks of different pace; hashes after each step, the last after finish()."""
    rng = random.Random(SEED + hvd.rank())
    net = make_net()
    adam = torch.optim.Adam(net.parameters(), lr=0.01)
    optimizer = hvd.DistributedOptimizer(adam, model=net, method=method)
    hashes = []
    for step in range(steps):
        for _ in range(rng.randrange(pace)):
            os.sched_yield()
        optimizer.zero_grad()
        loss_of(net, batch_of(step, hvd.rank())).backward()
        optimizer.step()
        hashes.append(digest(net.parameters()))
    optimizer.finish()
    hvd.check_replicas(net)
    assert all(torch.isfinite(parameter).all() for parameter in net.parameters())
    return hashes + [digest(net.parameters())], optimizer.version


def whom_it_waits_for(method: str, steps: int) -> List[int]:
    """By step: how many ranks the step stats have the exchange wait for."""
    net = make_net()
    sgd = torch.optim.SGD(net.parameters(), lr=0.01)
    optimizer = hvd.DistributedOptimizer(sgd, model=net, method=method)
    for step in range(steps):
        optimizer.zero_grad()
        loss_of(net, batch_of(step, hvd.rank())).backward()
        optimizer.step()
    stats = optimizer._covey_progress.step_stats
    stats.refresh()
    return [needed for _, _, needed in stats._arrivals]


def frozen_and_buffers() -> Tuple[str, List[float]]:
    """What requires no gradient and what is no parameter is this rank's own, as with local."""
    frozen = torch.nn.Parameter(torch.full((3,), float(hvd.rank())), requires_grad=False)
    norm = torch.nn.BatchNorm1d(3)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD([frozen, *norm.parameters()], lr=0.1), method="wagma"
    )
    torch.manual_seed(hvd.rank())
    norm(torch.randn(8, 3)).square().sum().backward()
    optimizer.step()
    optimizer.finish()
    hvd.check_replicas(dict(norm.named_parameters()))
    assert frozen.tolist() == [float(hvd.rank())] * 3
    return digest(norm.parameters()), norm.running_mean.tolist()


def of_many_types() -> None:
    """Each rank begins at its number: the end is the mean, in every type."""
    types = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
    parameters = [
        torch.nn.Parameter(torch.full((5, 3), 256.0 * hvd.rank(), dtype=dtype)) for dtype in types
    ]
    image = torch.zeros(2, 3, 4, 4).contiguous(memory_format=torch.channels_last)
    parameters.append(torch.nn.Parameter(image + hvd.rank()))
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(parameters, lr=1.0), method="wagma:tau=2,S=2"
    )
    optimizer.finish()
    mean = (hvd.size() - 1) / 2
    for parameter in parameters[:-1]:
        assert parameter.tolist() == [[256.0 * mean] * 3] * 5, parameter
    assert parameters[-1].is_contiguous(memory_format=torch.channels_last)
    assert parameters[-1].flatten().tolist() == [mean] * 96


def adds_a_group() -> None:
    first, second = (torch.nn.Parameter(torch.full((3,), float(hvd.rank()))) for _ in range(2))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([first], lr=1.0), method="wagma:tau=1")
    (first * 2).sum().backward()
    optimizer.step()
    optimizer.add_param_group({"params": [second]})
    mean = (hvd.size() - 1) / 2
    assert first.tolist() == [mean - 2] * 3, first
    optimizer.zero_grad()
    second.sum().backward()
    optimizer.step()
    optimizer.finish()
    assert second.tolist() == [mean - 1] * 3, second
    assert first.tolist() == [mean - 2] * 3, first
    moved = torch.nn.Parameter(torch.ones(3))
    second.data = moved.data  # Elsewhere: it is brought back.
    optimizer.zero_grad()
    optimizer.step()
    optimizer.finish()
    assert second.tolist() == [1.0] * 3, second
    assert second.data_ptr() != moved.data_ptr()
    optimizer._covey_trainer.close()
    assert second.tolist() == [1.0] * 3 and first.tolist() == [mean - 2] * 3


def refusal_of(options: Dict[str, Any]) -> str:
    parameter = torch.nn.Parameter(torch.zeros(3))
    try:
        hvd.DistributedOptimizer(torch.optim.SGD([parameter], lr=1.0), **options)
    except ValueError as error:
        return str(error)
    return ""


def outlives_the_runtime() -> List[float]:
    covey.init()
    parameter = torch.nn.Parameter(torch.full((100_000,), 1.0 + hvd.rank()))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([parameter], lr=1.0), method="wagma")
    optimizer.finish()
    covey.shutdown()
    parameter.data += 1
    del optimizer
    return parameter[-2:].tolist()


# ---- Here --------------------------------------------------------------------------------------


class WagmaTest(unittest.TestCase):
    @on_one_host("between hosts an allreduce adds in another order")
    def test_with_all_and_nobody_late_it_is_local_sgd_with_one_step(self) -> None:
        for size in (2, 3, 4, 8):
            for method in (f"wagma:S={size},admit=all,tau=1000", "wagma:tau=1"):
                with self.subTest(size=size, method=method):
                    pool(size).call(equals_local, method)

    def test_all_have_one_model_in_the_end(self) -> None:
        for size in (3, 2, *also(8), 4):
            for method in ("wagma", "wagma:S=2,tau=3,max_wait=20s", "wagma:S=2,log=1,tau=1000",
                           "wagma:S=1,tau=4", "wagma:admit=0.5,grace=1ms,S=2"):
                with self.subTest(size=size, method=method):
                    results = pool(size).call(train, method, 20, 40)
                    for hashes, version in results:
                        self.assertEqual(hashes[-1], results[0][0][-1])
                        self.assertGreaterEqual(version, 20)

    def test_each_so_many_th_step_all_have_one_model(self) -> None:
        for size, method in ((4, "wagma:S=2,tau=5,admit=all"), (3, "wagma:S=2,tau=5,admit=all")):
            histories = [hashes for hashes, _ in pool(size).call(train, method, 20, 40)]
            for step in range(1, 21):
                models = {hashes[step - 1] for hashes in histories}
                if step % 5 == 0:
                    self.assertEqual(len(models), 1, f"step {step}, seed {SEED}")
            # In between they differ, else this shows nothing.
            self.assertGreater(len({hashes[0] for hashes in histories}), 1)

    def test_the_step_stats_know_which_averages_are_of_all(self) -> None:
        """The averages of every so many steps; the core does not count the last one of a part."""
        for method, needed in (
            ("wagma:S=2,tau=2", [1, 3, 1, 3]),
            ("wagma:S=2,tau=1000,then=allreduce@4", [1, 1, 1]),
        ):
            for found in pool(3).call(whom_it_waits_for, method, 4):
                self.assertEqual(found[:4], needed, method)

    def test_only_what_is_trained_is_averaged(self) -> None:
        results = pool(3).call(frozen_and_buffers)
        self.assertEqual(len({hashed for hashed, _ in results}), 1)
        self.assertEqual(len({tuple(mean) for _, mean in results}), 3)

    def test_every_type_and_layout_is_averaged(self) -> None:
        pool(3).call(of_many_types)

    def test_parameters_may_be_added_and_moved(self) -> None:
        pool(3).call(adds_a_group)

    def test_wrong_options_are_refused_with_their_range(self) -> None:
        for options, words in (
            ({"group_size": 4}, "has groups of 4 ranks, but there are 3: group_size is auto or 1"),
            ({"group_size": 0}, "group_size is \"0\", which is not auto or a number of ranks"),
            ({"group_size": -2}, "group_size is \"-2\", which is not auto or a number of ranks"),
            ({"sync_every": 0}, "sync_every is \"0\", which is not a number of steps from 1"),
            ({"admit": 4}, "admits with 4 ranks, but there are 3"),
            ({"op": hvd.Sum}, "op must be Average"),
            ({"compression": hvd.Compression.fp16}, "compression must be none"),
        ):
            for refusal in pool(3).call(refusal_of, {"method": "wagma", **options}):
                self.assertIn(words, refusal)

    def test_parameters_outlive_the_runtime(self) -> None:
        with_pool = SharedPool(__file__)
        try:
            for values in with_pool(2).call(outlives_the_runtime):
                self.assertEqual(values, [2.5, 2.5])
        finally:
            with_pool.close()
