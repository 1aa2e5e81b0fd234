"""Goal: the kernels that nvcc has made are those the plug-in asks for: every name, with a body that
loads and stores, 16 bytes at a time; one rounding for each operation; in words that any driver
since CUDA 11 understands.
Method: the text that is built into the plug-in is read, and given to the assembler where there is
one. Skipped where there was no nvcc: then the text is empty, and tensors go by way of the host."""

from __future__ import annotations

import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest
from typing import Dict

_CUDA = pathlib.Path(__file__).absolute().parents[2] / "ops" / "devices" / "cuda"
_WORDS = ("reduce", "add", "scale", "cast")


def _image() -> str:
    source = (_CUDA / "image.c").read_text(encoding="utf-8")
    lines = re.findall(r'^"(.*)\\n"$', source, re.M)
    return "\n".join(re.sub(r"\\(.)", r"\1", line) for line in lines)


def _entries(text: str) -> Dict[str, str]:
    """Name -> body of each kernel."""
    found = re.findall(r"^\.visible \.entry (\w+)\((.*?)^\}", text, re.M | re.S)
    return dict(found)


def _assembler() -> str:
    homes = [os.environ.get("CUDA_HOME", ""), "/usr/local/cuda"]
    beside = [f"{home}/bin/ptxas" for home in homes if home]
    return next((path for path in beside if os.path.exists(path)), shutil.which("ptxas") or "")


def _wrong(name: str, body: str) -> str:
    """What is wrong with a kernel; empty: nothing."""
    loads = re.findall(r"\bld(?:\.global)?(\.v[24])?\.[fsub]\d+", body)
    stores = re.findall(r"\bst(?:\.global)?(\.v[24])?\.[fsub]\d+", body)
    if not loads or not stores:
        return f"{name} does nothing"
    if not any(loads) or not any(stores):
        return f"{name} does not load or store 16 bytes at once"
    fused = re.search(r"\b(fma|mad)\.(rn|rz|ftz)", body) or re.search(r"\.ftz\b", body)
    return f"{name} rounds otherwise than the CPU: {fused.group()}" if fused else ""


class NamesTest(unittest.TestCase):
    def test_a_kernel_without_a_body_is_seen(self) -> None:
        """nvcc says nothing when it drops what it takes for undefined."""
        self.assertEqual(_wrong("x", "{ ret; }"), "x does nothing")
        whole = "ld.v4.u32 {%r1}, [%rd1]; st.v4.u32 [%rd1], {%r1};"
        self.assertEqual(_wrong("x", whole), "")
        self.assertIn("16 bytes", _wrong("x", whole.replace(".v4", "")))
        self.assertIn("fma.rn", _wrong("x", whole + " fma.rn.f32 %f1, %f2, %f3, %f4;"))


@unittest.skipUnless(_image(), "skipped: no nvcc")
class CudaKernelsTest(unittest.TestCase):
    def test_all_names_are_there_and_all_do_something(self) -> None:
        source = (_CUDA / "launch.c").read_text(encoding="utf-8")
        asked = re.findall(r'"(covey_(?:%s)_\w+)"' % "|".join(_WORDS), source)
        entries = _entries(_image())
        self.assertEqual(len(asked), 30)
        self.assertEqual(sorted(asked), sorted(entries))
        for name, body in entries.items():
            self.assertEqual(_wrong(name, body), "")

    def test_its_words_are_old_enough(self) -> None:
        self.assertRegex(_image(), r"^\.version 7\.0\n\.target sm_70\n")

    @unittest.skipUnless(_assembler(), "skipped: no ptxas")
    def test_it_assembles_for_cards_of_today(self) -> None:
        help_of_it = [_assembler(), "--help"]
        listed = subprocess.run(help_of_it, capture_output=True, text=True, check=True)
        known = [f"sm_{n}" for n in (70, 80, 90, 100, 120) if f"'sm_{n}'" in listed.stdout]
        self.assertTrue(known)
        if os.environ.get("TEST_SLOW") != "1":
            known = [known[0], known[-1]]  # The others have fewer words, or take no others.
        with tempfile.TemporaryDirectory() as folder:
            text = pathlib.Path(folder, "kernels.ptx")
            text.write_text(_image() + "\n", encoding="utf-8")
            for card in known:
                command = [_assembler(), f"-arch={card}", "-v", str(text), "-o", f"{folder}/out"]
                done = subprocess.run(command, capture_output=True, text=True, check=False)
                self.assertEqual(done.returncode, 0, done.stderr)
                spilled = re.findall(r"\b[1-9]\d* bytes (?:stack frame|spill)", done.stderr)
                self.assertEqual(spilled, [], card)


if __name__ == "__main__":
    unittest.main()
