"""Goal: what the README and the guide (examples/guide) tell to type works as it stands for who has
the wheel: in an empty folder with the README's script, and beside the examples in a clone.
Method: their `text` blocks are read, and each command is typed in a shell in which the environment
with the wheel is activated. Left out, as tested elsewhere: tools/ and mpirun, blocks in Python
(parallel/readme_test.py), --serve and --join (wheel_grpc_test.py), kill and --keep-going
(parallel/stop_and_go_test.py), covey bench (parallel/bench_test.py), other hosts
(parallel/elastic_hosts_test.py) and Horovod's own tests. Of all commands but one the ranks are
forks of a process that has imported torch (COVEY_PRELOAD), which parallel/preload_test.py shows to
change nothing else; with --slow each rank imports it.
"""

from __future__ import annotations

import os
import pathlib
import re
import shutil
import subprocess
import unittest
from typing import List

from installed import ROOT, Installed

PAGES = [ROOT / "README.md", *sorted((ROOT / "examples" / "guide").glob("*.md"))]
README = PAGES[0].read_text(encoding="utf-8")
LEAN = ROOT / "tests" / "lean"  # torch starts in half the time
LIMIT_S = 120.0
# After the README's script.
_SAYS = """
print("rank", hvd.rank(), "has trained", flush=True)
"""
_ELSEWHERE = ["--serve", "--join", "--keep-going", "covey bench", "pytest", " -H ", "--host-disc"]
if os.environ.get("TEST_SLOW") != "1":
    _ELSEWHERE.append("torch._dynamo")  # It takes the longest; parallel/preload_test.py has others.
# What a command of the README's promises says: by a part of it.
_SAID = {
    "--inject delay:": r"injects 50ms to 1 random rank",
    "stop_and_go.py": r"parameters equal on all workers",
    "pause:": r"rank 1: last operation allreduce .* now at \S+pytorch_minimal\.py:\d+",
    "--check-nan": r"covey\.errors\.NotFinite: .*rank 1 has 1 NaN or infinite numbers of 1",
}


def blocks(language: str, text: str = README) -> List[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.M | re.S)


def typed(in_clone: bool) -> List[str]:
    """The commands of all pages, each once: those of the examples or the others."""
    texts = [page.read_text(encoding="utf-8") for page in PAGES]
    lines = [line for text in texts for it in blocks("text", text) for line in it.splitlines()]
    commands = dict.fromkeys(line.partition("  #")[0].strip() for line in lines)
    return [
        command
        for command in commands
        if re.match(r"(\w+=\S+ )*(coveyrun|covey) ", command)
        and not any(words in command for words in _ELSEWHERE)
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

    def type(self, command: str, folder: pathlib.Path, preload: bool) -> str:
        env = self.there.environment(PYTHONPATH=f"{LEAN}:{self.packages}")
        if preload and os.environ.get("TEST_SLOW") != "1":
            env["COVEY_PRELOAD"] = "torch"
        done = subprocess.run(
            ["bash", "-c", f". {self.there.bin}/activate && {command}"],
            cwd=folder,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=LIMIT_S,
        )
        wanted = int("--check-nan" in command)  # The NaN that one command makes ends its job.
        self.assertEqual(done.returncode, wanted, f"{command}\n{done.stdout}")
        for part, said in _SAID.items():
            if part in command:
                self.assertRegex(done.stdout, said)
        return done.stdout

    def test_commands_in_an_empty_folder(self) -> None:
        commands = typed(in_clone=False)
        self.assertGreaterEqual(len(commands), 7)
        (script,) = blocks("python")
        (self.there.folder / "train.py").write_text(script + _SAYS, encoding="utf-8")
        for command in commands:
            with self.subTest(command):
                said = self.type(command, self.there.folder, command != commands[0])
                ranks = int(command.partition("-np ")[2].split()[0])
                wanted = ranks if "train.py" in command else 0
                self.assertEqual(said.count("has trained"), wanted, said)

    @unittest.skipIf(shutil.which("gcc") is None, "there is no gcc")
    def test_the_program_in_c(self) -> None:
        page = (ROOT / "examples" / "guide" / "operations.md").read_text(encoding="utf-8")
        (program,) = blocks("c", page)
        (commands,) = [block for block in blocks("text", page) if "average.c" in block]
        (self.there.folder / "average.c").write_text(program, encoding="utf-8")
        said = self.type(commands.strip(), self.there.folder, preload=False)
        self.assertEqual(said.count("mean 1.5 of 4 ranks"), 4, said)

    def test_commands_beside_the_examples(self) -> None:
        commands = typed(in_clone=True)
        self.assertGreaterEqual(len(commands), 3)
        for command in commands:
            with self.subTest(command):
                few = " --versions 10" if "stop_and_go" in command else ""
                self.assertTrue(self.type(command + few, ROOT, preload=True))


if __name__ == "__main__":
    unittest.main()
