"""max_wait of the methods that wait for all: while nobody is late they are what they are without,
bit for bit. (Who is late: max_wait_faults_test.py.)

Method: hashes of the parameters after each step, with a patience that is longer than the test.
"""

from __future__ import annotations

import os
import random
import unittest
from typing import List, Tuple

import torch  # noqa: F401  # Ranks are forks that have it.
from nets import batch_of, loss_of, make_net
from ranks import SEED, SharedPool, on_one_host
from references import OPTIMIZERS
from whole_numbers import digest

import covey
import covey.torch as hvd

PATIENT = "max_wait=3600s"

pool = SharedPool(__file__)


def setUpModule() -> None:
    print(f"seed {SEED}")


def tearDownModule() -> None:
    pool.close()


# ---- On the ranks ------------------------------------------------------------------------------


def train(kind: str, method: str, steps: int, finish_at: int = -1) -> List[Tuple[str, int]]:
    """Ranks of different pace: hash and version after each step, the last after finish()."""
    rng = random.Random(SEED + hvd.rank())
    net = make_net()
    optimizer = hvd.DistributedOptimizer(
        OPTIMIZERS[kind](net.parameters()), model=net, method=method
    )
    seen = []
    for step in range(steps):
        for _ in range(rng.randrange(30)):
            os.sched_yield()
        optimizer.zero_grad(set_to_none=step % 2 == 0)
        loss_of(net, batch_of(step, hvd.rank())).backward()
        optimizer.step()
        if step == finish_at:
            optimizer.finish()
        seen.append((digest(net.parameters()), optimizer.version))
    optimizer.finish()
    hvd.check_replicas(net)
    return seen + [(digest(net.parameters()), optimizer.version)]


def taken_up_again(method: str) -> List[str]:
    """Training goes on where others have stopped: in the middle of the local steps, and later."""
    net = make_net()
    optimizer = hvd.DistributedOptimizer(
        OPTIMIZERS["momentum"](net.parameters()), model=net, method=method
    )
    hashes = []
    for start in (6, 21):
        optimizer.version = start
        for step in range(start, start + 7):
            optimizer.zero_grad()
            loss_of(net, batch_of(step, hvd.rank())).backward()
            optimizer.step()
            assert optimizer.version == step + 1, (optimizer.version, step)
            hashes.append(digest(net.parameters()))
        optimizer.finish()
    return hashes


def exchanges() -> Tuple[int, int]:
    """Without max_wait there are no rounds: operations and versions of some steps: of an average
    one, and one that counts the ranks in it. Replicas are compared before the first update, which
    is an operation, too."""
    net = make_net()
    optimizer = hvd.DistributedOptimizer(
        OPTIMIZERS["sgd"](net.parameters()), model=net, method="local:H=2,max_wait=off"
    )
    assert not optimizer._covey_progress.plan.in_rounds
    assert optimizer._covey_progress.method == "local:local_steps=2"
    before = covey.stats()
    for step in range(4):
        loss_of(net, batch_of(step, hvd.rank())).backward()
        optimizer.step()
    after = covey.stats()
    return tuple(after[key] - before[key] for key in ("exchanges", "round_versions"))


# ---- Here --------------------------------------------------------------------------------------


@on_one_host("between hosts sums have another order, and local averages deltas")
class MaxWaitTest(unittest.TestCase):
    def test_while_nobody_is_late_it_is_the_method_without(self) -> None:
        for size in (2, 4):
            for kind, method in (("momentum", "allreduce:"), ("adam", "allreduce:"),
                                 ("momentum", "local:H=3,"), ("adam", "local:H=3,"),
                                 ("momentum", "local:H=1,"),
                                 ("momentum", "local:H=4,warmup_steps=3,")):
                with self.subTest(size=size, kind=kind, method=method):
                    plain = pool(size).call(train, kind, method.rstrip(":,"), 11)
                    self.assertEqual(
                        pool(size).call(train, kind, method + PATIENT, 11), plain, f"seed {SEED}"
                    )

    def test_a_warm_up_is_allreduce_while_nobody_is_late(self) -> None:
        """Of every method, up to its last version; with max_wait=auto too."""
        for size, kind in ((2, "adam"), (4, "momentum")):
            plain = pool(size).call(train, kind, "allreduce", 7)
            for method in ("allreduce:max_wait=auto,", "eager:", "wagma:", "adpsgd:",
                           "local:H=4,max_wait=auto,"):
                with self.subTest(size=size, method=method):
                    runs = pool(size).call(train, kind, method + "warmup_steps=7", 9)
                    for run, other in zip(runs, plain):
                        # Who looks late at its last version may find the next one made.
                        known = [one for one in run if one[1] <= 7]
                        self.assertGreaterEqual(len(known), 6)
                        self.assertEqual(known, other[: len(known)])

    def test_while_nobody_is_late_with_three_ranks(self) -> None:
        """As above: where finish() takes the mean of equal models again, (x + x + x) / 3 is x."""
        for method in ("allreduce:", "local:H=3,", "local:H=1,"):
            plain = pool(3).call(train, "momentum", method.rstrip(":,"), 11)
            limited = pool(3).call(train, "momentum", method + PATIENT, 11)
            self.assertEqual(limited, plain, method)

    def test_finish_in_between_shifts_nothing(self) -> None:
        for method in ("local:H=4", "allreduce"):
            plain = pool(2).call(train, "momentum", method, 11, 5)
            limited = f"{method}{',' if ':' in method else ':'}{PATIENT}"
            self.assertEqual(pool(2).call(train, "momentum", limited, 11, 5), plain)

    def test_one_method_after_another(self) -> None:
        for method in ("local:H=4,{}then=allreduce@6{}", "allreduce:{}then=local@3:H=3{}",
                       "local:H=2,{}then=local@5:H=3{}"):
            plain = method.format("", "")
            limited = method.format(PATIENT + ",", (":" if "@6" in method else ",") + PATIENT)
            with self.subTest(limited):
                self.assertEqual(
                    pool(2).call(train, "momentum", limited, 11),
                    pool(2).call(train, "momentum", plain, 11),
                )

    def test_training_that_is_taken_up_again(self) -> None:
        for method in ("local:H=4", "local:H=4,then=local@19:H=3", "allreduce"):
            words = method.split(",then=")
            words[0] += ("," if ":" in words[0] else ":") + PATIENT
            limited = ",then=".join(words) + ("," + PATIENT if len(words) > 1 else "")
            with self.subTest(limited):
                self.assertEqual(
                    pool(2).call(taken_up_again, limited), pool(2).call(taken_up_again, method)
                )

    def test_off_is_the_method_as_it_was(self) -> None:
        self.assertEqual(pool(2).call(exchanges), [(5, 0)] * 2)
