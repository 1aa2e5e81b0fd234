"""Goal: an operation that is there is there everywhere: in covey, covey.torch and covey.numpy, in
all of its variants, with arguments of the same names in the same order, documented for help().
Method: the signatures, against the rules by which they belong together."""

from __future__ import annotations

import inspect
import pickle
import typing
import unittest
from typing import Any, List

import covey
import covey.numpy
import covey.torch as hvd
from covey import ops

_MODULES = (covey, hvd, covey.numpy)
_TENSORS = [name for name in ops.__all__ if name not in ("barrier", "join")]


def parameters(function: Any, *without: str) -> List[Any]:
    """(name, default) of each parameter; the names of covey's own functions."""
    given = inspect.signature(function).parameters.values()
    names = {"process_set": "group"}
    return [(names.get(p.name, p.name), p.default) for p in given if p.name not in without]


def base_of(name: str) -> str:
    return name.rstrip("_").replace("_async", "")


class SurfaceTest(unittest.TestCase):
    def test_every_operation_is_everywhere(self) -> None:
        for module in _MODULES:
            self.assertLessEqual(set(ops.__all__), set(module.__all__), module.__name__)
            self.assertEqual(len(set(module.__all__)), len(module.__all__), module.__name__)
            for name in _TENSORS:
                function = getattr(module, name)
                self.assertEqual(function.__name__, name)
                self.assertIs(pickle.loads(pickle.dumps(function)), function)

    def test_every_operation_has_its_variants(self) -> None:
        for base in {base_of(name) for name in _TENSORS}:
            self.assertIn(base, ops.__all__)
            self.assertIn(base + "_async", ops.__all__)
            self.assertEqual(base + "_" in ops.__all__, base + "_async_" in ops.__all__)

    def test_arguments_agree(self) -> None:
        for name in _TENSORS:
            with self.subTest(name=name):
                theirs = parameters(getattr(covey.numpy, name))
                self.assertEqual(parameters(getattr(hvd, name), "compression"), theirs)
                own = parameters(getattr(covey, name))
                self.assertEqual([n for n, _ in own], [n for n, _ in theirs if n != "average"])
                for other in (covey, hvd, covey.numpy):
                    one_way = parameters(getattr(other, base_of(name)), "compression")
                    self.assertEqual(parameters(getattr(other, name), "compression"), one_way)

    def test_compression_stands_where_horovod_has_it(self) -> None:
        for function in (hvd.allreduce, hvd.grouped_allreduce):
            names = list(inspect.signature(function).parameters)
            self.assertEqual(names[1:5], ["average", "name", "compression", "op"])
        for function in (hvd.reducescatter, hvd.grouped_reducescatter):
            names = list(inspect.signature(function).parameters)
            self.assertEqual(names[1:5], ["name", "compression", "op", "process_set"])

    def test_dir_is_what_is_public_and_the_docstring_is_short(self) -> None:
        for module in (covey, hvd):
            self.assertEqual(dir(module), sorted(module.__all__))
            for name in dir(module):
                self.assertFalse(inspect.ismodule(getattr(module, name)), name)
            self.assertLessEqual(len((module.__doc__ or "").splitlines()), 40)
        self.assertIn("examples/guide", covey.__doc__ or "")

    def test_help_is_good(self) -> None:
        for module, tensor in zip(_MODULES, ("Any", "torch.Tensor", "numpy.ndarray")):
            for name in _TENSORS:
                function = getattr(module, name)
                text, signature = inspect.getdoc(function), inspect.signature(function)
                self.assertTrue(text and text.split("\n")[0].endswith("."), (name, text))
                first = next(iter(signature.parameters.values()))
                wanted = f"Sequence[{tensor}]" if name.startswith("grouped") else tensor
                self.assertEqual(first.annotation, wanted, (module.__name__, name))
                self.assertNotIn("variant", signature.parameters)
                for line in text.splitlines():
                    self.assertLessEqual(len(line), 100, (name, line))
        hints = inspect.signature(hvd.broadcast_async).return_annotation
        self.assertEqual(hints, "Handle[torch.Tensor]")
        self.assertEqual(inspect.signature(hvd.allgather).return_annotation, "torch.Tensor")
        self.assertEqual(typing.get_type_hints(hvd.broadcast_), {})

    def test_arguments_by_name(self) -> None:
        import numpy

        covey.init()
        array = numpy.ones(3)
        self.assertEqual(covey.broadcast(tensor=array, root_rank=0).tolist(), [1, 1, 1])
        self.assertEqual(covey.numpy.allreduce_(op=covey.Sum, tensor=array).tolist(), [1, 1, 1])
        with self.assertRaises(TypeError):
            covey.allreduce()
        with self.assertRaises(TypeError):
            covey.allgather(array, root=0)
        covey.shutdown()


if __name__ == "__main__":
    unittest.main()
