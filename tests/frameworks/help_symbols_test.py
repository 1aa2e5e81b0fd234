"""Goal: what the guide says of each of Horovod's names is so.
Method: the list of names and arguments of Horovod 0.28.1 against what the modules have."""

from __future__ import annotations

import os
import unittest

from tensorflows import HAS_TENSORFLOW, with_operations
from tools.reference import symbols

if HAS_TENSORFLOW:
    os.environ.update(with_operations())  # Else its first import compiles them.


class SymbolsTest(unittest.TestCase):
    def check(self, *modules: str) -> None:
        found = [one for one in symbols.symbols() if one.module in modules]
        self.assertGreaterEqual(len(found), 30 * len(modules))
        for symbol in found:
            with self.subTest(f"horovod.{symbol.module}.{symbol.name}"):
                verdict = symbols.verdict(symbol)
                has_reason = bool(symbols.told(symbols.ABSENT, symbol))
                self.assertEqual(has_reason, verdict.answer == "no", "ABSENT of symbols.py")
                if verdict.answer == "yes":
                    self.assertEqual(symbols.missing_arguments(symbol), [], "DIFFERS of symbols.py")

    def test_of_torch(self) -> None:
        self.check("torch")

    @unittest.skipUnless(HAS_TENSORFLOW, "TensorFlow is not installed")
    def test_of_tensorflow_and_keras(self) -> None:
        self.check("tensorflow", "tensorflow.keras", "keras")

    def test_a_missing_name_and_a_missing_argument_are_found(self) -> None:
        gone = symbols.Symbol("torch", "allscatter", ("tensor",))
        self.assertEqual(symbols.verdict(gone), symbols.Verdict(gone, "no", ""))
        moved = symbols.Symbol("torch", "broadcast", ("tensor", "name", "root_rank"))
        self.assertEqual(symbols.missing_arguments(moved), ["name", "root_rank"])

    def test_every_remark_is_about_a_name_of_the_list(self) -> None:
        names = {one.name for one in symbols.symbols()}
        for table in (symbols.ABSENT, symbols.DIFFERS):
            self.assertLessEqual({key.rpartition(".")[2] for key in table}, names)


if __name__ == "__main__":
    unittest.main()
