"""SyncBatchNorm of covey.torch normalizes as one process does with the batches of all ranks.

Method: three ranks, compared with torch's own layer over all batches in one: values, gradients of
the sum of all losses, running statistics.
"""

from __future__ import annotations

import unittest
from typing import Any, List

import torch
from ranks import SEED, SharedPool, refusal_of

SIZE, CHANNELS, STEPS = 3, 4, 3
pools = SharedPool(__file__)


def setUpModule() -> None:
    print(f"seed {SEED}")


def tearDownModule() -> None:
    pools.close()


def batches(rows: List[int], rest: Any, dtype: torch.dtype, step: int) -> List[torch.Tensor]:
    """One for each rank."""
    random = torch.Generator().manual_seed((SEED + step) % (1 << 31))
    return [
        (10.0 + torch.randn(count, CHANNELS, *rest, generator=random, dtype=torch.float64)).to(
            dtype
        )
        for count in rows
    ]


def losses(outputs: torch.Tensor) -> torch.Tensor:
    return (outputs * torch.arange(1.0, CHANNELS + 1).view(1, -1, *[1] * (outputs.dim() - 2))).pow(
        2
    ).sum() + outputs.pow(3).sum()


def normalize(rows: List[int], rest: Any, dtype: torch.dtype, options: Any) -> None:
    import covey.torch as hvd

    kind = {0: torch.nn.BatchNorm1d, 1: torch.nn.BatchNorm1d, 2: torch.nn.BatchNorm2d}[len(rest)]
    theirs = kind(CHANNELS, **options).to(torch.float64)
    mine = hvd.SyncBatchNorm(CHANNELS, **options).to(dtype)
    exact = {torch.float64: 1e-9, torch.float32: 2e-3}[dtype]
    for step in range(STEPS):
        given = batches(rows, rest, dtype, step)
        own = given[hvd.rank()].clone().requires_grad_()
        whole = torch.cat(given).to(torch.float64).requires_grad_()
        begin = sum(rows[: hvd.rank()])
        part = slice(begin, begin + rows[hvd.rank()])
        outputs, expected = mine(own), theirs(whole)
        torch.testing.assert_close(outputs, expected[part].to(dtype), rtol=exact, atol=exact)
        losses(outputs).backward()
        losses(expected).backward()
        torch.testing.assert_close(own.grad, whole.grad[part].to(dtype), rtol=exact, atol=9 * exact)
    for parameter, other in zip(mine.parameters(), theirs.parameters()):
        total = hvd.allreduce(parameter.grad, op=hvd.Sum)
        torch.testing.assert_close(total, other.grad.to(dtype), rtol=exact, atol=99 * exact)
    for name, buffer in theirs.state_dict().items():
        found = mine.state_dict()[name]
        torch.testing.assert_close(found, buffer.to(found.dtype), rtol=exact, atol=exact)
    if mine.track_running_stats:
        torch.testing.assert_close(
            mine.eval()(own), theirs.eval()(whole)[part].to(dtype), rtol=exact, atol=exact
        )


def refusals() -> List[str]:
    import covey.torch as hvd

    layer = hvd.SyncBatchNorm(CHANNELS)
    rows = 1 if hvd.rank() == 1 else 0
    said = [
        refusal_of(lambda: layer(torch.zeros(CHANNELS))),
        refusal_of(lambda: layer(torch.zeros(rows, CHANNELS))),
    ]
    layer(torch.zeros(1, CHANNELS))
    return said


class SyncBatchNormTest(unittest.TestCase):
    def test_as_one_process_does(self) -> None:
        for rows, rest, dtype, options in (
            ([5, 5, 5], (), torch.float64, {}),
            ([4, 1, 7], (3, 2), torch.float32, {"momentum": None, "eps": 1e-3}),
            ([3, 0, 2], (4,), torch.float64, {"affine": False, "momentum": 0.3}),
            ([2, 2, 2], (), torch.float64, {"track_running_stats": False}),
        ):
            with self.subTest(rows=rows, options=options):
                pools(SIZE).call(normalize, rows, rest, dtype, options)

    def test_what_has_no_variance_is_refused_on_all_ranks(self) -> None:
        for said in pools(SIZE).call(refusals):
            self.assertIn("takes [N, C] or [N, C, ...], not 1 dimensions", said[0])
            self.assertIn("all ranks' batches together have 1", said[1])


if __name__ == "__main__":
    unittest.main()
