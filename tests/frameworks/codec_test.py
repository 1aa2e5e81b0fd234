"""Tensors that the core encodes before they travel: exact where the codec is, equal on all ranks,
and with error feedback nothing is lost.

Method: whole numbers, for which sums are exact; beside them training without a codec.
"""

from __future__ import annotations

import unittest
from typing import Any, List

import numpy
import torch
from nets import batch_of, loss_of, make_net
from ranks import SEED, SharedPool
from whole_numbers import digest

import covey
import covey.numpy
import covey.torch as hvd

CODECS = ("bf16", "fp16", "int8", "int8@block=64", "qsgd", "qsgd@bits=4", "topk@bits=4")
STEPS = 20
pool = SharedPool(__file__)


def setUpModule() -> None:
    print(f"seed {SEED}")


def tearDownModule() -> None:
    pool.close()


def numbers(rank: int, count: int = 1000) -> torch.Tensor:
    """Up to 127, which is there in each block: int8 has them exactly."""
    own = torch.Generator().manual_seed(SEED + rank)
    drawn = torch.randint(-127, 128, (count,), generator=own).float()
    drawn[::16] = 127
    return drawn


def operations() -> None:
    size = hvd.size()
    wanted = torch.stack([numbers(rank) for rank in range(size)]).sum(0)
    own = numbers(hvd.rank())
    int8 = hvd.Compression.of("int8")
    before = covey.stats()
    assert torch.equal(hvd.allreduce(own, op=hvd.Sum, compression=int8), wanted)
    after = covey.stats()
    if size > 1:
        moved, wire = (after[k] - before[k] for k in ("moved_bytes", "wire_bytes"))
        assert 0 < wire < moved / 3.8, (moved, wire)
    assert torch.equal(hvd.allreduce(own, op=hvd.Sum, codec="int8@block=64"), wanted)
    assert torch.equal(covey.allreduce(own, op=covey.Sum, codec="int8"), wanted)
    handle = hvd.allreduce_async_(own.clone(), op=hvd.Sum, name="later", codec="int8")
    assert torch.equal(hvd.synchronize(handle), wanted)
    array = covey.numpy.allreduce(own.numpy(), op=covey.Sum, codec="int8")
    assert numpy.array_equal(array, wanted.numpy())
    whole = torch.arange(5) * 1000003
    mixed = hvd.grouped_allreduce([own, whole, own.double()], op=hvd.Sum, compression=int8)
    assert torch.equal(mixed[0], wanted)
    assert torch.equal(mixed[1], whole * size)
    assert torch.equal(mixed[2], wanted.double())
    leaf = own.clone().requires_grad_()
    hvd.allreduce(leaf, op=hvd.Sum, compression=int8).sum().backward()
    assert torch.equal(leaf.grad, torch.full_like(own, size))


def refused() -> List[str]:
    said = []
    net = torch.nn.Linear(3, 2)
    sgd = torch.optim.SGD(net.parameters(), lr=0.1)
    topk = hvd.Compression.of("topk")
    calls = (
        lambda: hvd.Compression.of("int9"),
        lambda: hvd.Compression.of("qsgd@bits=3"),
        lambda: hvd.Compression.of("qsgd", error_feedback=True),
        lambda: hvd.allreduce(torch.ones(3), codec="tokp"),
        lambda: hvd.allreduce(torch.ones(3), compression=topk),
        lambda: hvd.allreduce(torch.ones(3), compression=hvd.Compression.bf16, codec="int8"),
        lambda: hvd.reducescatter(torch.ones(4, 2), compression=hvd.Compression.of("int8")),
        lambda: hvd.DistributedOptimizer(sgd, compression=topk, method="eager"),
    )
    for call in calls:
        try:
            call()
            said.append("nothing was refused")
        except ValueError as error:
            said.append(str(error))
    hvd.barrier()
    return said


def disagree() -> str:
    codec = "int8" if hvd.rank() == 0 else "bf16"
    try:
        hvd.allreduce(torch.ones(3), name="x", codec=codec)
    except covey.Mismatch as error:
        assert torch.equal(hvd.allreduce(torch.ones(3), name="x", codec="int8"), torch.ones(3))
        return str(error)
    return "no error"


def train(codec: str, steps: int) -> Any:
    """The digest of the parameters, and the loss on all batches before and after."""
    net = make_net(lambda: torch.nn.Linear(6, 3))
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(net.parameters(), lr=0.01),
        named_parameters=net.named_parameters(),
        compression=hvd.Compression.of(codec) if codec else hvd.Compression.none,
    )
    losses = []
    for step in range(steps):
        optimizer.zero_grad()
        loss = loss_of(net, batch_of(0, hvd.rank()))
        losses.append(float(hvd.allreduce(loss.detach(), name="loss")))
        loss.backward()
        optimizer.step()
    return digest(list(net.parameters())), losses[0], losses[-1]


def feed_back() -> None:
    """What was sent and what is left are the gradients, at each step and exactly."""
    size = hvd.size()
    net = torch.nn.Linear(40, 20, bias=False)
    torch.nn.init.zeros_(net.weight)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(net.parameters(), lr=1.0),
        compression=hvd.Compression.of("topk@block=64"),
        op=hvd.Sum,
    )
    wanted = torch.zeros_like(net.weight)
    for step in range(30):
        optimizer.zero_grad()
        drawn = [numbers(step * size + rank, 800).reshape(20, 40) for rank in range(size)]
        wanted += torch.stack(drawn).sum(0)
        (net.weight * drawn[hvd.rank()]).sum().backward()
        optimizer.step()
        sent = -net.weight.detach()
        if size == 1:  # Nothing travels.
            left = torch.zeros_like(sent)
        else:
            (bucket,) = optimizer._covey_reducer.buckets
            own = bucket._left_out[:800].reshape(20, 40)
            assert own.abs().max() > 0, step
            left = hvd.allreduce(own, op=hvd.Sum, name="left")
        assert torch.equal(sent + left, wanted), step


def unused() -> bool:
    """A parameter that nobody, and one that only rank 0 has used."""
    net = torch.nn.ModuleList(torch.nn.Linear(2, 2, bias=False) for _ in range(3))
    hvd.broadcast_parameters(net.state_dict(), root_rank=0)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(net.parameters(), lr=0.5, momentum=0.9),
        compression=hvd.Compression.of("int8"),
    )
    for _ in range(2):
        optimizer.zero_grad()
        used = net[0](torch.ones(1, 2)).sum() * 1e6
        if hvd.rank() == 0:
            used = used + net[1](torch.ones(1, 2)).sum()
        used.backward()
        optimizer.step()
    digests = covey.allgather_object(digest(list(net.parameters())))
    return len(set(digests)) == 1


REASONS = (
    "the nearest is int8",
    "bits 3 is not a multiple of 4 from 4 to 8",
    "right in expectation: it needs no error feedback",
    "the nearest is topk",
    "for one operation say error_feedback=False",
    "not both",
    "reducescatter has no codecs",
    "compression must be none",
)


class CodecTest(unittest.TestCase):
    def test_one_rank(self) -> None:
        pool(1).call(operations)
        pool(1).call(feed_back)

    def test_two_ranks(self) -> None:
        self.check(2)

    def test_four_ranks(self) -> None:
        self.check(4)

    def check(self, size: int) -> None:
        job = pool(size)
        job.call(operations)
        job.call(feed_back)
        self.assertEqual(set(job.call(unused)), {True})
        self.check_training(size)
        for said in job.call(refused):
            for text, reason in zip(said, REASONS):
                self.assertIn(reason, text)
        for said in job.call(disagree):
            self.assertIn("int8", said)
            self.assertIn("bf16", said)

    def check_training(self, size: int) -> None:
        (_, begin, end), *_ = pool(size).call(train, "", STEPS)
        self.assertGreater(begin, end)
        for codec in CODECS:
            with self.subTest(codec=codec, size=size):
                results = pool(size).call(train, codec, STEPS)
                self.assertEqual(len({replica for replica, _, _ in results}), 1)
                self.assertGreater(results[0][1] - results[0][2], 0.5 * (begin - end))


if __name__ == "__main__":
    unittest.main()
