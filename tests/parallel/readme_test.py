"""Goal: what the README tells a newcomer to type works. Method: its code blocks are read and run.

tools/quickstart and tools/test cannot run inside themselves: of those the test makes sure that they
exist, answer --help, and are what the README says; .ci/run runs tools/test.
"""

from __future__ import annotations

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from typing import List

from harness import LIMIT_S, REPOSITORY, environment, run_launcher

import covey

# This user may be root, and the machine small.
_OPEN_MPI = ("ALLOW_RUN_AS_ROOT", "ALLOW_RUN_AS_ROOT_CONFIRM", "MCA_rmaps_base_oversubscribe")
README = (REPOSITORY / "README.md").read_text()
GUIDE = (REPOSITORY / "frameworks" / "GUIDE.md").read_text()


def blocks(language: str, text: str = README) -> List[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.M | re.S)


class ReadmeTest(unittest.TestCase):
    def test_every_shell_command_is_known_and_runs(self) -> None:
        lines = [line for block in blocks("sh") for line in block.splitlines() if line]
        commands = [line.partition("#")[0].split() for line in lines]
        self.assertGreaterEqual(len(commands), 4)
        commands.remove([".", ".venv/bin/activate"])  # A shell's own; tools/setup ends with it.
        for command in commands:
            with self.subTest(" ".join(command)):
                if command[0].startswith("tools/"):
                    self.check_tool(command)
                elif command[0] in ("covey", "mpirun"):
                    self.check_mpi(command)
                else:
                    self.assertEqual(command[:4], ["coveyrun", "-np", "4", "python"])
                    script = str(REPOSITORY / command[4])
                    code, _, err = run_launcher(["-np", "4", sys.executable, script])
                    self.assertEqual(code, 0, err)

    def check_mpi(self, command: List[str]) -> None:
        if shutil.which("mpirun") is None or shutil.which("mpicc") is None:
            self.skipTest("there is no mpirun and mpicc")
        if command[0] == "covey":  # typed before the other
            self.assertEqual(command[1:], ["build", "mpi"])
            return
        env = {f"OMPI_{name}": "1" for name in _OPEN_MPI}
        with tempfile.TemporaryDirectory() as folder:
            made = [sys.executable, "-m", "covey.cli", "build", "mpi", "--out", folder]
            subprocess.run(made, env=environment(), timeout=LIMIT_S, check=True)
            self.assertEqual(command[:4], ["mpirun", "-np", "4", "python"])
            command = [*command[:3], sys.executable, str(REPOSITORY / command[4])]
            env["PRTE_MCA_rmaps_default_mapping_policy"] = ":oversubscribe"  # Open MPI 5
            env.update(COVEY_PLUGIN_PATH=folder, TMPDIR=folder, OMP_NUM_THREADS="1")
            subprocess.run(command, env=environment(**env), timeout=LIMIT_S, check=True)

    def check_tool(self, command: List[str]) -> None:
        self.assertEqual(len(command), 1, "a README command is typed as it stands")
        result = subprocess.run(
            [str(REPOSITORY / command[0]), "--help"],
            timeout=LIMIT_S,
            capture_output=True,
            text=True,
            check=False,
        )
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn(command[0], result.stdout)

    def test_the_python_block_runs_on_two_ranks(self) -> None:
        (code,) = blocks("python")
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "readme.py")
            with open(path, "w", encoding="utf-8") as script:
                script.write(code)
            exit_code, _, err = run_launcher(["-np", "2", sys.executable, path])
            self.assertEqual(exit_code, 0, err)

    def test_the_python_block_runs_alone(self) -> None:
        (code,) = blocks("python")
        subprocess.run(
            [sys.executable, "-c", code],
            env=environment(TEST_WHOLE_TORCH="1"),  # as a reader has it: lean/sitecustomize.py
            timeout=LIMIT_S,
            check=True,
        )

    def test_the_guide_is_a_script_and_one_of_its_own(self) -> None:
        of_all = blocks("python", GUIDE)
        alone = [code for code in of_all if "covey.run(" in code]
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "guide.py")
            with open(path, "w", encoding="utf-8") as script:
                script.write("\n".join(code for code in of_all if code not in alone))
            code, _, err = run_launcher(["-np", "2", sys.executable, path])
            self.assertEqual(code, 0, err)
            self.assertNotIn("before the first update", "\n".join(err))
            with open(path, "w", encoding="utf-8") as script:
                script.write(*alone)
            command = [sys.executable, path]
            said = subprocess.check_output(command, env=environment(), timeout=LIMIT_S)
            self.assertEqual(said, b"[30.0, 30.0]\n")

    def test_the_guide_lists_every_variable_as_it_is(self) -> None:
        rows = [line for line in GUIDE.splitlines() if line.startswith("| `COVEY_")]
        wanted = []
        for knob in covey.knobs():
            default = f"`{knob['default']}`" if knob["default"] != "" else "-"
            wanted.append(f"| `COVEY_{knob['name'].upper()}` | {default} | {knob['help']} |")
        self.assertEqual(rows, wanted)

    def test_the_guide_lists_what_is_missing_of_horovod(self) -> None:
        for module in ("torch", "tensorflow"):
            (row,) = re.findall(rf"^\| `covey.{module}` \| (.*) \|$", GUIDE, re.M)
            source = pathlib.Path(covey.__file__).parent / module / "__init__.py"
            code = source.read_text(encoding="utf-8")
            not_yet = code.partition("_NOT_YET = (")[2].partition(")")[0]
            told = not_yet or code.partition("raise absent(__name__, name,")[2].partition(")")[0]
            own = {"neighbor_allreduce", "pair_average"}  # Covey's, not Horovod's.
            names = set(re.findall(r'"(\w+)"', told)) - own
            self.assertGreaterEqual(len(names), 2)
            self.assertEqual(set(re.findall("`([^`]+)`", row.partition("; also")[0])), names)


if __name__ == "__main__":
    unittest.main()
