"""Goal: help(covey.NAME) tells all that a caller needs: arguments, shapes and dtypes, errors, an
example, and the paper of a method. Method: every public name of every module is looked at, with
what its docstring refers to; the rules are those of tools/reference/lacking.py."""

from __future__ import annotations

import inspect
import os
import re
import unittest
from typing import Any, List, Type

from tensorflows import HAS_TENSORFLOW, with_operations

import covey
import covey.torch
from tools.reference import docstring, markdown, surface
from tools.reference.lacking import lacking
from tools.reference.surface import Name

_OF_TENSORFLOW = ("covey.tensorflow", "covey.tensorflow.elastic", "covey.keras",
                  "covey.keras.callbacks", "covey.keras.elastic")
_LEAST_NAMES = {
    "covey": 80,
    "covey.torch": 70,
    "covey.tensorflow": 50,
    "covey.keras": 60,
    "covey.loggers": 4,
}

if HAS_TENSORFLOW:
    os.environ.update(with_operations())  # Else its first import compiles them.


class HelpTest(unittest.TestCase):
    def check(self, module: str) -> None:
        """Every public name of `module`, and every method of its classes."""
        names = surface.names(module)
        self.assertGreaterEqual(len(names), _LEAST_NAMES.get(module, 6))
        bad: List[str] = []
        for name in names:
            for one in (name, *surface.members(name)):
                missing = lacking(one)
                if missing:
                    bad.append(f"{module}.{one.name} lacks {', '.join(missing)}")
        self.assertEqual(bad, [], "\n" + "\n".join(bad))

    def test_of_covey(self) -> None:
        self.check("covey")

    def test_of_torch(self) -> None:
        self.check("covey.torch")
        self.check("covey.torch.elastic")

    def test_of_numpy(self) -> None:
        self.check("covey.numpy")

    def test_of_loggers(self) -> None:
        self.check("covey.loggers")

    @unittest.skipUnless(HAS_TENSORFLOW, "TensorFlow is not installed")
    def test_of_tensorflow_and_keras(self) -> None:
        for module in _OF_TENSORFLOW:
            self.check(module)

    @unittest.skipUnless(HAS_TENSORFLOW, "TensorFlow is not installed")
    def test_a_public_name_is_no_module_at_the_second_look_either(self) -> None:
        for module in _OF_TENSORFLOW[:2]:
            for _ in range(2):
                modules = [one.name for one in surface.names(module) if inspect.ismodule(one.value)]
                self.assertLessEqual(set(modules), {"callbacks"}, module)

    def test_every_method_names_its_paper(self) -> None:
        for method in covey.methods():
            self.assertRegex(method["citation"], r"arXiv:\d{4}\.\d{4,5}|doi:10\.", method["name"])


def _undocumented(tensor: object, root_rank: int) -> None:
    pass


def _without_errors(tensor: object, root_rank: int) -> None:
    """Sends a tensor of float32 and any shape.

    Args:
        tensor, root_rank: a tensor; a rank.

    Example:
        >>> _without_errors(tensor, 0)
    """


def _by_reference(tensor: object, root_rank: int) -> None:
    """As :func:`covey.broadcast`."""


def _with_defaults(device: str = "", kind: Type[Any] = dict) -> None:
    pass


class RulesTest(unittest.TestCase):
    """The rules themselves can fail, and follow references."""

    def lacking(self, function: object) -> List[str]:
        return lacking(Name("covey", "example", function))

    def test_what_is_missing_is_named(self) -> None:
        self.assertEqual(self.lacking(_undocumented), ["a docstring"])
        self.assertEqual(self.lacking(_without_errors), ["the errors"])
        self.assertEqual(self.lacking(_by_reference), [])

    def test_signatures_are_those_of_the_source(self) -> None:
        shown = markdown.signature("example", inspect.signature(_with_defaults))
        self.assertEqual(shown[1], "example(device: str = '', kind: Type[Any] = dict) -> None")

    def test_the_methods_of_a_private_class_are_those_of_what_returns_it(self) -> None:
        made = surface.Name("covey.torch", "DistributedOptimizer", covey.torch.DistributedOptimizer)
        found = {one.name.partition(".")[2]: one for one in surface.members(made)}
        self.assertLessEqual({"finish", "before_update", "no_sync", "version"}, set(found))
        self.assertEqual(list(found["carry"].signature.parameters), ["modules"])

    def test_sections_and_items_are_found(self) -> None:
        text = docstring.parse(inspect.getdoc(covey.allreduce) or "")
        self.assertEqual(set(text.sections), {"Args", "Returns", "Raises", "Example"})
        self.assertIn("prescale_factor", text.names("Args"))
        self.assertTrue(re.match("A tensor of the same", text.sections["Returns"][0]))


if __name__ == "__main__":
    unittest.main()
