"""Bucket layouts: every parameter has one place, nothing overlaps, limits and groups are kept."""

from __future__ import annotations

import random
import unittest
from typing import Any, List, Tuple

import torch
from ranks import SEED

from covey.errors import InvalidArgument
from covey.torch.layout import (
    ALIGN_BYTES,
    FIRST_BUCKET_BYTES,
    BucketPlan,
    describe,
    digest,
    first_difference,
    gradient_strides,
    plan_buckets,
)

Named = List[Tuple[str, torch.nn.Parameter]]


def setUpModule() -> None:
    print(f"seed {SEED}")


def make(shapes: Any, dtype: torch.dtype = torch.float32) -> Named:
    return [
        (f"p{i}", torch.nn.Parameter(torch.empty(shape, dtype=dtype)))
        for i, shape in enumerate(shapes)
    ]


def random_parameters(source: random.Random) -> Named:
    named = []
    for i in range(source.randrange(1, 60)):
        dtype = source.choice((torch.float32, torch.float64, torch.bfloat16))
        shape = [source.randrange(0, 40) for _ in range(source.randrange(4))]
        named.append((f"p{i}", torch.nn.Parameter(torch.empty(shape, dtype=dtype))))
    return named


def names(plan: BucketPlan) -> List[str]:
    return [slot.name for slot in plan.slots]


class LayoutTest(unittest.TestCase):
    def check(self, plans: List[BucketPlan], named: Named) -> None:
        placed = [slot.name for plan in plans for slot in plan.slots]
        self.assertCountEqual(placed, [name for name, _ in named])
        for plan in plans:
            item_bytes = plan.dtype.itemsize
            end = 0
            for slot in plan.slots:
                self.assertGreaterEqual(slot.offset, end)
                self.assertEqual(slot.offset * item_bytes % ALIGN_BYTES, 0)
                self.assertEqual(slot.parameter.dtype, plan.dtype)
                self.assertEqual(slot.parameter.device, plan.device)
                end = slot.offset + slot.parameter.numel()
            self.assertGreaterEqual(plan.flags_offset, end)
            self.assertGreaterEqual(plan.length, plan.flags_offset + len(plan.slots))

    def test_random_parameters(self) -> None:
        for turn in range(200):
            source = random.Random(f"{SEED} {turn}")
            named = random_parameters(source)
            limit = source.choice((1, 100, 4096, 1 << 23))
            plans = plan_buckets(named, limit)
            self.check(plans, named)
            for plan in plans:
                length_bytes = sum(s.parameter.numel() for s in plan.slots) * plan.dtype.itemsize
                self.assertTrue(length_bytes <= limit or len(plan.slots) == 1)

    def test_backward_order_and_a_small_first_bucket(self) -> None:
        named = make([(100_000,)] * 60)
        plans = plan_buckets(named, 8 << 20)
        self.assertEqual(
            [name for plan in plans for name in names(plan)], [f"p{i}" for i in reversed(range(60))]
        )
        self.assertEqual(len(plans[0].slots), FIRST_BUCKET_BYTES // 400_000)
        self.assertEqual(len(plans[1].slots), (8 << 20) // 400_000)

    def test_no_parameters(self) -> None:
        self.assertEqual(plan_buckets([], 1000), [])
        self.assertEqual(plan_buckets([], 1000, groups=3), [])

    def test_number_of_groups(self) -> None:
        named = make([(3,), (4,), (5,), (6,), (7,)])
        for count in range(1, 8):
            plans = plan_buckets(named, 1, groups=count)
            self.check(plans, named)
            self.assertEqual(len(plans), min(count, 5))
        mixed = named + make([(2,)], torch.float64)
        self.assertEqual(len(plan_buckets(mixed, 1, groups=1)), 2)

    def test_a_bucket_lies_on_one_device(self) -> None:
        here = make([(3,), (4,)])
        named = here + [("there", torch.nn.Parameter(torch.empty(5, device="meta")))]
        for plans in (plan_buckets(named, 1 << 20), plan_buckets(named, 1, groups=1)):
            self.check(plans, named)
            self.assertEqual([plan.device.type for plan in plans], ["meta", "cpu"])
        lines = describe(plan_buckets(named, 1 << 20))
        self.assertIn("float32 [5] on meta strides [1] in bucket 0", lines[0])
        self.assertNotIn(" on ", lines[1])

    def test_groups_of_parameters(self) -> None:
        named = make([(3,), (4,), (5,), (6,)])
        tensors = [parameter for _, parameter in named]
        plans = plan_buckets(named, 1 << 20, groups=[[tensors[0], tensors[3]], [], [tensors[1]]])
        self.assertEqual([names(plan) for plan in plans], [["p3", "p0"], ["p1"], ["p2"]])
        with self.assertRaises(InvalidArgument):
            plan_buckets(named, 1 << 20, groups=[[tensors[0]], [tensors[0]]])
        with self.assertRaises(ValueError):
            plan_buckets(named, 1 << 20, groups=[["p0"]])  # type: ignore[list-item]
        with self.assertRaises(ValueError):
            plan_buckets(named, 0)
        with self.assertRaisesRegex(InvalidArgument, "groups must be 1 or more.* not -1"):
            plan_buckets(named, 1 << 20, groups=-1)

    def test_gradients_have_the_strides_of_dense_parameters(self) -> None:
        dense = torch.empty(2, 3, 4, 5)
        self.assertEqual(gradient_strides(dense), dense.stride())
        last = dense.contiguous(memory_format=torch.channels_last)
        self.assertEqual(gradient_strides(last), last.stride())
        self.assertEqual(gradient_strides(dense[:, 1:]), (40, 20, 5, 1))
        self.assertEqual(gradient_strides(torch.empty(())), ())
        self.assertEqual(gradient_strides(torch.empty(4, 0, 3)), (3, 3, 1))

    def test_differences_are_named(self) -> None:
        layouts = [
            describe(plan_buckets(make([(3,), shape]), 1 << 20)) for shape in ((4, 2), (4, 3))
        ]
        again = describe(plan_buckets(make([(3,), (4, 2)]), 1 << 20))
        self.assertEqual(digest(layouts[0]), digest(again))
        self.assertNotEqual(digest(layouts[0]), digest(layouts[1]))
        text = first_difference([layouts[0], layouts[0], layouts[1]], [0, 2, 5])
        self.assertIn("rank 0 has 'p1: float32 [4, 2]", text)
        self.assertIn("rank 5 has 'p1: float32 [4, 3]", text)
        longer = first_difference([layouts[0], layouts[0] + ["p9: more"]], [0, 1])
        self.assertIn("rank 0 has 'nothing', rank 1 has 'p9: more'", longer)


if __name__ == "__main__":
    unittest.main()
