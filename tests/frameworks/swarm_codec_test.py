"""Models averaged in pairs with a codec: what it rounds is lost to nobody, finish() leaves one
model on all, and training comes as far as without.

Method: gradients that are whole numbers, so that the mean of all is known; trainings beside each
other.
"""

from __future__ import annotations

import random
import unittest
from typing import List, Tuple

import torch
from nets import batch_of, loss_of, make_net
from pairs import learn, mean_of
from ranks import HOSTS, SEED, SharedPool, also
from whole_numbers import digest

import covey
import covey.torch as hvd

COPIES = "swarm:H=2,steps=geometric,exchange=nonblocking"
pool = SharedPool(__file__)


def setUpModule() -> None:
    print(f"seed {SEED}")


def tearDownModule() -> None:
    pool.close()


# ---- On the ranks ------------------------------------------------------------------------------


def learn_coded(method: str, steps: List[int]) -> Tuple[Tuple[str, List[float], int], List[int]]:
    """As learn(), of float32, and what codecs have done: decoded, repaired, bytes."""
    before = covey.stats()
    result = learn(method, steps, torch.float32)
    after = covey.stats()
    keys = ("pair_decoded", "pair_repaired", "pair_bytes")
    return result, [after[key] - before[key] for key in keys]


def converge(method: str) -> Tuple[str, float, float]:
    """The model's hash after finish(), and its loss on the batches of all before and after.

    Ranks step side by side: how far 60 steps come would otherwise depend on how unevenly the
    machine schedules them, and a codec could not be compared with none.
    """
    net = make_net()
    hvd.broadcast_parameters(net.state_dict(), root_rank=0)
    batches = [batch_of(step, rank) for step in range(4) for rank in range(hvd.size())]

    def loss() -> float:
        return sum(float(loss_of(net, batch)) for batch in batches)

    sgd = torch.optim.SGD(net.parameters(), lr=0.02)
    optimizer = hvd.DistributedOptimizer(sgd, model=net, method=method)
    begin = loss()
    for step in range(60):
        optimizer.zero_grad()
        loss_of(net, batch_of(step % 4, hvd.rank())).backward()
        optimizer.step()
        hvd.barrier()
    optimizer.finish()
    return digest(net.parameters()), begin, loss()


# ---- The tests ---------------------------------------------------------------------------------


class SwarmCodecTest(unittest.TestCase):
    def test_what_is_rounded_is_lost_to_nobody_and_training_converges(self) -> None:
        for size in (2, 3, *also(4), 8):
            self.check_codec(size)
            self.check_training(size)

    def check_codec(self, size: int) -> None:
        """What a codec rounds is lost to nobody."""
        alone = {2: "bf16", 3: "int8", 4: "qsgd", 8: "bf16@random"}[size]
        for method in (f"swarm:H=2,codec={alone}", f"adpsgd:codec={alone}",
                       COPIES + f",codec={alone},warmup_steps=3",
                       "swarm:H=2,codec=lattice@8", "swarm:H=2,codec=lattice@bits=4",
                       COPIES + ",codec=lattice@8,warmup_steps=3", "adpsgd:codec=lattice@16"):
            rng = random.Random(SEED + size)
            steps = [rng.randrange(20, 40) for _ in range(size)]
            with self.subTest(size=size, method=method):
                results = pool(size).call(learn_coded, method, steps)
                self.assertEqual(len({result[0] for result, _ in results}), 1)
                for got, wanted in zip(results[0][0][1], mean_of(steps)):
                    self.assertAlmostEqual(got, wanted, delta=0.05)  # Of float32's rounding.
                counts = [kept for _, kept in results]
                decoded, repaired, sent = (sum(column) for column in zip(*counts))
                self.assertGreater(decoded, repaired)
                # The first one's distance is not known.
                # Between hosts it goes whole, and nothing is decoded.
                if HOSTS == 1:
                    self.assertEqual(repaired > 0, "lattice" in method)
                self.assertGreater(sent, 0)

    def check_training(self, size: int) -> None:
        """It comes as far with a codec as without."""
        with self.subTest(size=size):
            plain = pool(size).call(converge, "swarm:H=2")
            alone = {2: "fp16", 3: "qsgd", 4: "int8", 8: "bf16"}[size]
            for codec in ("lattice@8", alone):
                coded = pool(size).call(converge, f"swarm:H=2,codec={codec}")
                for results in (plain, coded):
                    self.assertEqual(len({model for model, _, _ in results}), 1)
                (_, begin, end), (_, _, coded_end) = plain[0], coded[0]
                self.assertGreater(begin - coded_end, 0.5 * (begin - end), codec)


if __name__ == "__main__":
    unittest.main()
