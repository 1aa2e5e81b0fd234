"""Goal: what README and the guide (examples/guide) tell a newcomer to type works, and their tables
are what the code says. Method: their blocks of code are read and run.

`sh` blocks are typed here, `text` blocks by tests/golden/readme_wheel_test.py. The `python` blocks
of a page are one script; all pages run in one job, one after the other. tools/quickstart and
tools/test cannot run inside themselves: they exist, answer --help, and .ci/run runs tools/test.
"""

from __future__ import annotations

import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import unittest
from typing import Dict, List

from harness import LIMIT_S, REPOSITORY, environment, run_launcher

import covey
from covey.cli import bench_command
from covey.cli.parser import Parser

# This user may be root, and the machine small.
_OPEN_MPI = ("ALLOW_RUN_AS_ROOT", "ALLOW_RUN_AS_ROOT_CONFIRM", "MCA_rmaps_base_oversubscribe")
GUIDE = REPOSITORY / "examples" / "guide"
NAMES = ("methods", "operations", "clusters", "benchmarks", "coming-from-horovod")
README = (REPOSITORY / "README.md").read_text(encoding="utf-8")
PAGES = {name: (GUIDE / f"{name}.md").read_text(encoding="utf-8") for name in NAMES}
# What the README's lines of Python in a `text` block find there.
_OPTIMIZER = "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
# Runs each page as a script of its own, and says so.
_RUNNER = """
import runpy, sys
for path in sys.argv[1:]:
    runpy.run_path(path, run_name="__main__")
    print("ran", path, flush=True)
"""


def blocks(language: str, text: str = README) -> List[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.M | re.S)


def scripts() -> Dict[str, str]:
    """By name what runs with coveyrun: the README's lines, and each page that has any."""
    (begin,) = blocks("python")
    shown = re.findall(r"^hvd\..*$", "\n".join(blocks("text")), re.M)
    found = {"readme": begin + "".join(f"{_OPTIMIZER}{line}\n" for line in shown)}
    for name, text in PAGES.items():
        parts = [code for code in blocks("python", text) if "covey.run(" not in code]
        if parts:
            found[name] = "\n".join(parts)
    return found


class ReadmeTest(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def write(self, name: str, code: str) -> str:
        path = self.folder / name
        path.write_text(code, encoding="utf-8")
        return str(path)

    def test_every_shell_command_is_known_and_runs(self) -> None:
        texts = (README, *PAGES.values())
        lines = [line for text in texts for it in blocks("sh", text) for line in it.splitlines()]
        commands = [line.partition("#")[0].split() for line in lines if line]
        self.assertGreaterEqual(len(commands), 6)
        commands.remove([".", ".venv/bin/activate"])  # A shell's own; tools/setup ends with it.
        for command in commands:
            with self.subTest(" ".join(command)):
                if command[0].startswith("tools/"):
                    self.check_tool(command)
                elif command[0] in ("covey", "mpirun"):
                    self.check_mpi(command)
                else:
                    self.assertEqual(command, ["coveyrun", "-np", "4", "python", "train.py"])
                    script = self.write("train.py", *blocks("python"))
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

    def test_the_python_block_runs_alone(self) -> None:
        (code,) = blocks("python")
        subprocess.run(
            [sys.executable, "-c", code],
            env=environment(TEST_WHOLE_TORCH="1"),  # as a reader has it: lean/sitecustomize.py
            timeout=LIMIT_S,
            check=True,
        )

    def test_the_pages_of_the_guide_run_on_two_ranks(self) -> None:
        paths = [self.write(f"{name}.py", code) for name, code in scripts().items()]
        self.assertGreaterEqual(len(paths), 5)
        runner = self.write("runner.py", _RUNNER)
        code, out, err = run_launcher(["-np", "2", sys.executable, runner, *paths])
        self.assertEqual(code, 0, err)
        self.assertNotIn("before the first update", "\n".join(err))
        for path in paths:
            self.assertEqual(len([line for line in out if line.endswith(f"ran {path}")]), 2, out)

    def test_covey_run_is_a_script_of_its_own(self) -> None:
        of_all = [code for text in PAGES.values() for code in blocks("python", text)]
        path = self.write("alone.py", *(code for code in of_all if "covey.run(" in code))
        said = subprocess.check_output(
            [sys.executable, path], env=environment(), timeout=LIMIT_S
        )
        self.assertEqual(said, b"[30.0, 30.0]\n")


class PagesTest(unittest.TestCase):
    """What is compared without a job."""

    def test_the_readme_is_short(self) -> None:
        lines = README.splitlines()
        self.assertLessEqual(len(lines), 200)
        self.assertLessEqual(len(README.split()), 2500)
        self.assertEqual([line for line in lines if len(line) > 120], [])

    def test_the_changelog_has_this_version(self) -> None:
        text = (REPOSITORY / "CHANGELOG.md").read_text(encoding="utf-8")
        versions = re.findall(r"^## \[([^\]]+)\]", text, re.M)
        self.assertIn(versions[0], ("Unreleased", covey.__version__))
        self.assertIn(covey.__version__, versions)
        kinds = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
        self.assertLessEqual(set(re.findall(r"^### (.*)$", text, re.M)), kinds)

    def test_links_lead_to_files(self) -> None:
        texts = {REPOSITORY: README, **{GUIDE / name: text for name, text in PAGES.items()}}
        for place, text in texts.items():
            folder = place if place == REPOSITORY else GUIDE
            for link in re.findall(r"\]\(([^):#]+)\)", text):
                self.assertTrue((folder / link).is_file(), f"{place}: {link}")
        for name in NAMES:
            self.assertIn(f"(examples/guide/{name}.md)", README)
        found = [name for name in os.listdir(GUIDE) if name.endswith(".md")]
        self.assertEqual(sorted(f"{name}.md" for name in NAMES), sorted(found))

    def test_files_that_are_named_are_there(self) -> None:
        named = re.compile(
            r"(?<![\w./-])(?:core|ops|frameworks|proto|tools|examples|tests)/[\w./-]*[\w/]"
        )
        for text in (README, *PAGES.values()):
            for path in named.findall(text):
                self.assertTrue((REPOSITORY / path).exists(), path)

    def test_the_benchmarks_are_those_of_covey_bench(self) -> None:
        parser = Parser(prog="covey")
        bench_command.add_to(parser.add_subparsers())
        lines = "\n".join(blocks("text", PAGES["benchmarks"])).splitlines()
        commands = [shlex.split(it, comments=True) for it in lines if it.startswith("covey bench")]
        self.assertGreaterEqual(len(commands), 8)
        for command in commands:
            parser.parse_args(command[1:])  # Exits where there is no such benchmark or option.

    def test_the_guide_lists_every_variable_as_it_is(self) -> None:
        lines = PAGES["operations"].splitlines()
        rows = [line for line in lines if line.startswith("| `COVEY_")]
        wanted = []
        for knob in covey.knobs():
            default = f"`{knob['default']}`" if knob["default"] != "" else "-"
            wanted.append(f"| `COVEY_{knob['name'].upper()}` | {default} | {knob['help']} |")
        self.assertEqual(rows, wanted)

    def test_the_guide_names_each_state_and_callback_of_elastic(self) -> None:
        told = set(re.findall(r"`(\w+)`", PAGES["coming-from-horovod"]))
        folder = pathlib.Path(covey.__file__).parent
        for module in ("torch", "tensorflow", "keras"):
            source = (folder / module / "elastic.py").read_text(encoding="utf-8")
            names = re.findall(r'"(\w+)"', source.partition("__all__ = [")[2].partition("]")[0])
            self.assertIn("run", names)
            self.assertEqual(set(names) - told, set(), module)


if __name__ == "__main__":
    unittest.main()
