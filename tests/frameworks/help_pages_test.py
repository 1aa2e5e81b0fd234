"""Goal: the pages of the guide that are made of the code say what the code says.
Method: the pages are made anew and compared; `tools/pages` writes them."""

from __future__ import annotations

import importlib.util
import os
import pathlib
import re
import unittest
from typing import Dict

from tensorflows import HAS_TENSORFLOW, with_operations

_ROOT = pathlib.Path(__file__).resolve().parents[2]
_MISSING = [
    name for name in ("torch", "tensorflow", "numpy") if importlib.util.find_spec(name) is None
]

if HAS_TENSORFLOW:
    os.environ.update(with_operations())  # Else its first import compiles them.


@unittest.skipIf(_MISSING, f"not installed: {', '.join(_MISSING)}")
class HelpPagesTest(unittest.TestCase):
    made: Dict[str, str]

    @classmethod
    def setUpClass(cls) -> None:
        from tools.reference.made import made  # Which imports every module of Covey.

        cls.made = made()

    def test_they_are_fresh(self) -> None:
        stale = []
        for path, text in self.made.items():
            file = _ROOT / path
            if not file.exists() or file.read_text(encoding="utf-8") != text:
                stale.append(path)
        self.assertEqual(stale, [], "run tools/pages: these are not what the code says")

    def test_no_other_page_is_beside_them(self) -> None:
        there = {f"examples/guide/api/{file.name}" for file in
                 (_ROOT / "examples/guide/api").glob("*.md")}  # fmt: skip
        self.assertLessEqual(there, set(self.made))

    def test_links_within_the_pages_lead_to_a_heading(self) -> None:
        headings = {
            pathlib.Path(path).name: {
                re.sub(r"[^\w-]", "", line.lower().replace(" ", "-"))
                for line in re.findall(r"^#+ (.*)$", text, re.M)
            }
            for path, text in self.made.items()
        }
        for path, text in self.made.items():
            own = pathlib.Path(path).name
            for page, heading in re.findall(r"\]\((\w*\.?m?d?)#([\w-]+)\)", text):
                self.assertIn(heading, headings[page or own], f"{path}: {page}#{heading}")


if __name__ == "__main__":
    unittest.main()
