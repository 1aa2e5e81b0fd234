"""What goes past the caches arrives as it was, however it lies, and nothing beside it is touched.

Method: pairs of tensors of all layouts and types in two large pieces of memory, against copy_().
"""

from __future__ import annotations

import random
import unittest
from typing import List, Tuple

import torch
from ranks import SEED

from covey import _native
from covey.torch.copies import copy_past_caches

SHAPES = ((), (0,), (1,), (7,), (3, 1, 5), (64, 3, 3, 3), (1000, 37), (2, 0, 3), (262144,))


def setUpModule() -> None:
    print(f"seed {SEED}")


def pairs_of(source: torch.Tensor, room: torch.Tensor) -> List[Tuple[torch.Tensor, torch.Tensor]]:
    """Targets in ``room`` that lie as the source does, and otherwise."""
    flat = room[: source.numel()]
    found = [(flat.view(source.shape), source)]
    if source.dim() == 4:
        last = source.contiguous(memory_format=torch.channels_last)
        found.append((flat.as_strided(source.shape, last.stride()), last))
        found.append((flat.view(source.shape), last))
    if source.dim() == 2:
        found.append((flat.view(source.shape), source.t().contiguous().t()))
        found.append((flat.view(source.shape), torch.cat([source, source], 1)[:, ::2]))
        found.append((flat.view(source.shape), source.double()))
    if source.dim() == 1 and source.is_complex():
        found.append((flat.view(source.shape), source.conj()))
    if source.numel() == 7:
        found.append((flat.view(source.shape), source[:1].expand(7)))
    return found


class CopiesTest(unittest.TestCase):
    def test_all_layouts_and_types(self) -> None:
        rng = random.Random(SEED)
        torch.manual_seed(SEED)
        for dtype in (torch.float32, torch.bfloat16, torch.float64, torch.complex64):
            room = torch.zeros(1 << 20, dtype=dtype)
            for shape in SHAPES:
                source = torch.randn(shape, dtype=dtype)
                start = rng.randrange(17)
                for target, value in pairs_of(source, room[start:]):
                    with self.subTest(dtype=dtype, shape=shape, stride=value.stride()):
                        room.fill_(9)
                        copy_past_caches([target], [value])
                        self.assertTrue(torch.equal(target, value.to(dtype)))
                        self.assertTrue(bool((room[:start] == 9).all()))
                        self.assertTrue(bool((room[start + source.numel():] == 9).all()))

    def test_many_at_once(self) -> None:
        torch.manual_seed(SEED)
        sources = [torch.randn(shape) for shape in SHAPES] + [torch.randn(5, 4).t()]
        targets = [torch.zeros_like(source).contiguous() for source in sources]
        copy_past_caches(targets, sources)
        for target, source in zip(targets, sources):
            self.assertTrue(torch.equal(target, source))

    def test_a_lazy_clone_stays_lazy(self) -> None:
        source = torch.randn(1000)
        clone = torch._lazy_clone(source)
        target = torch.zeros(1000)
        copy_past_caches([target], [source])
        self.assertTrue(torch.equal(target, source))
        self.assertTrue(torch._C._is_cow_tensor(source))
        self.assertTrue(torch.equal(clone, source))

    def test_wrong_calls(self) -> None:
        with self.assertRaisesRegex(ValueError, "tuples of one length"):
            _native.copy_past_caches((1,), (1, 2), (1,))
        with self.assertRaises(TypeError):
            _native.copy_past_caches((1,), ("x",), (1,))


if __name__ == "__main__":
    unittest.main()
