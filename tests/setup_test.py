"""Goal: tools/setup says which build of torch it takes before it downloads, and takes the one asked
for. Method: tools/torch_build.py decides on lists of versions as pip prints them."""

from __future__ import annotations

import pathlib
import unittest
from typing import List, Tuple

from tools import torch_build

_REQUIREMENTS = pathlib.Path(__file__).absolute().parents[1] / "tools" / "requirements.txt"
_PYPI = ["2.14.0", "2.13.0", "2.12.0"]
_WITH_CPU_WHEELS = ["2.14.0", "2.13.0+cpu", "2.13.0", "2.12.0"]
_WITH_CUDA_WHEELS = ["2.14.0+cu130", "2.13.0+cu130", "2.13.0+cpu", "2.13.0"]


class TorchBuildTest(unittest.TestCase):
    def chosen(self, asked: str, listed: List[str]) -> Tuple[str, str]:
        version, arguments = torch_build.choose("2.13.0", asked, listed)
        return version, " ".join(arguments)

    def test_without_being_asked_it_is_what_pip_would_take(self) -> None:
        for listed, wanted in (
            (_PYPI, "2.13.0"),
            (_WITH_CPU_WHEELS, "2.13.0+cpu"),
            (_WITH_CUDA_WHEELS, "2.13.0+cu130"),
            ([], "2.13.0"),
        ):
            self.assertEqual(self.chosen("", listed), (wanted, f"torch==={wanted}"))

    def test_an_index_is_named_where_pip_knows_of_no_cpu_wheel(self) -> None:
        for listed in (_WITH_CPU_WHEELS, _WITH_CUDA_WHEELS):
            self.assertEqual(self.chosen("cpu", listed), ("2.13.0+cpu", "torch==2.13.0+cpu"))
        version, arguments = self.chosen("cpu", _PYPI)
        self.assertEqual(version, "2.13.0+cpu")
        self.assertEqual(
            arguments, f"torch==2.13.0+cpu --extra-index-url {torch_build.CPU_INDEX}"
        )

    def test_cuda_is_taken_where_pip_would_take_the_other(self) -> None:
        for listed, wanted in (
            (_PYPI, "2.13.0"),
            (_WITH_CPU_WHEELS, "2.13.0"),
            (_WITH_CUDA_WHEELS, "2.13.0+cu130"),
        ):
            self.assertEqual(self.chosen("cuda", listed), (wanted, f"torch==={wanted}"))

    def test_the_size_is_said_and_how_to_take_the_small_one(self) -> None:
        self.assertIn("2.7 GB to download", torch_build.sentence("2.13.0"))
        self.assertIn("--torch cpu", torch_build.sentence("2.13.0"))
        self.assertIn("0.2 GB to download", torch_build.sentence("2.13.0+cpu"))
        self.assertNotIn("--torch", torch_build.sentence("2.13.0+cpu"))

    def test_sizes_are_those_of_the_version_that_is_installed(self) -> None:
        self.assertEqual(torch_build.version_of(_REQUIREMENTS), torch_build.MEASURED)


if __name__ == "__main__":
    unittest.main()
