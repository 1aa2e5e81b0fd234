"""Goal: what the README's code blocks tell to type works as it stands for who has the wheel: in an
empty folder with a script of one's own, and beside the examples in a clone.
Method: the blocks are read, and each command is typed in a shell in which the environment with the
wheel is activated. Left out, as tested elsewhere: tools/ and mpirun (parallel/readme_test.py),
--serve and --join (wheel_grpc_test.py), kill (parallel/stop_and_go_test.py).
"""

from __future__ import annotations

import pathlib
import re
import subprocess
import unittest
from typing import List

from installed import ROOT, Installed

README = (ROOT / "README.md").read_text(encoding="utf-8")
LEAN = ROOT / "tests" / "lean"  # torch starts in half the time
LIMIT_S = 120.0
# After the README's own first lines: a training that ends.
_LOOP = """
for _ in range(20):
    optimizer.zero_grad()
    model(torch.randn(8, 784)).square().mean().backward()
    optimizer.step()
optimizer.finish()
print("rank", hvd.rank(), "has trained", flush=True)
"""
# What the README's snippets in Python find there.
_NAMES = """
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scheduler, epoch = torch.optim.lr_scheduler.StepLR(optimizer, 10), 3
"""


def blocks(language: str) -> List[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.M | re.S)


def typed(in_clone: bool) -> List[str]:
    """The commands, those of the examples or the others."""
    lines = [line for of in ("sh", "text") for it in blocks(of) for line in it.splitlines()]
    commands = [line.partition("  #")[0].strip() for line in lines]
    return [
        command
        for command in commands
        if re.match(r"(\w+=\S+ )*(coveyrun|covey) ", command)
        and "--serve" not in command
        and "--join" not in command
        and "build mpi" not in command
        and ("examples/" in command) == in_clone
    ]


class ReadmeWheelTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        cls.there = Installed()
        cls.packages = cls.there.lend_torch()

    @classmethod
    def tearDownClass(cls) -> None:
        cls.there.close()

    def setUp(self) -> None:
        self.assertIsNotNone(self.packages, "tools/setup installs torch")

    def type(self, command: str, folder: pathlib.Path) -> str:
        done = subprocess.run(
            ["bash", "-c", f". {self.there.bin}/activate && {command}"],
            cwd=folder,
            env=self.there.environment(PYTHONPATH=f"{LEAN}:{self.packages}"),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=LIMIT_S,
        )
        self.assertEqual(done.returncode, 0, f"{command}\n{done.stdout}")
        return done.stdout

    def test_commands_in_an_empty_folder(self) -> None:
        (begin,) = blocks("python")
        commands = typed(in_clone=False)
        self.assertGreaterEqual(len(commands), 4)
        for name in ("train.py", "unchanged.py"):
            (self.there.folder / name).write_text(begin + _LOOP, encoding="utf-8")
        for command in commands:
            with self.subTest(command):
                said = self.type(command, self.there.folder)
                self.assertEqual(said.count("has trained"), 4, said)

    def test_commands_beside_the_examples(self) -> None:
        commands = typed(in_clone=True)
        self.assertGreaterEqual(len(commands), 2)
        for command in commands:
            with self.subTest(command):
                few = " --versions 20" if "stop_and_go" in command else ""
                self.assertTrue(self.type(command + few, ROOT))

    def test_lines_of_python_in_the_text(self) -> None:
        (begin,) = blocks("python")
        shown = "\n".join(blocks("text"))
        lines = re.findall(r"^(?:hvd|with|    print|covey\.|loaded).*$", shown, re.M)
        self.assertGreaterEqual(len(lines), 5)
        first = next(line for line in lines if line.startswith("hvd.Dist"))
        rest = [line for line in lines if line is not first]
        code = ["import covey", begin, _NAMES, f"optimizer = {first}", _LOOP, *rest]
        (self.there.folder / "shown.py").write_text("\n".join(code), encoding="utf-8")
        said = self.type("coveyrun -np 2 python shown.py", self.there.folder)
        self.assertEqual(said.count("has trained"), 2, said)


if __name__ == "__main__":
    unittest.main()
