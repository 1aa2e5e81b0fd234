"""Goal: one argument chooses the method, from the script, the flag or the environment; the first of
these wins, what is ignored is announced, and what is wrong is one line.
Method: the launcher with a script that prints its method, and an example as it is."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import unittest
from typing import Any, List, Optional

from commands import covey
from harness import REPOSITORY, preload, run_launcher

preload("torch")

SCRIPT = """
import sys, torch, covey.torch as hvd
hvd.init()
net = torch.nn.Linear(2, 2)
method = sys.argv[1] if len(sys.argv) > 1 else None
optimizer = hvd.DistributedOptimizer(torch.optim.SGD(net.parameters(), lr=0.1), method=method)
if hvd.rank() == 0:
    print(optimizer._covey_progress.method)
"""
LOCAL = "local:local_steps={}"


class MethodChoiceTest(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.script = os.path.join(folder.name, "script.py")
        with open(self.script, "w", encoding="utf-8") as file:
            file.write(SCRIPT)

    def chosen(self, flag: List[str], told: Optional[str], *asked: str) -> Any:
        """(what rank 0 prints, lines of stderr without the method's card)."""
        env = {} if told is None else {"COVEY_METHOD": told}
        command = ["-np", "2", *flag, sys.executable, self.script, *asked]
        code, out, err = run_launcher(command, env=env)
        self.assertEqual(code, 0, err)
        told = [line for line in err if not line.startswith("[0] covey | ")]
        return [line.partition("] ")[2] or line for line in out], told

    def test_the_environment(self) -> None:
        self.assertEqual(self.chosen([], "local:H=3"), ([LOCAL.format(3)], []))

    def test_an_empty_variable_counts_as_none(self) -> None:
        for flag, asked, wanted in (
            ([], (), "allreduce"),
            ([], ("local:H=5",), LOCAL.format(5)),
            (["--method", "local:H=3"], (), LOCAL.format(3)),
        ):
            self.assertEqual(self.chosen(flag, "", *asked), ([wanted], []))

    def test_the_flag_wins_over_the_environment(self) -> None:
        out, err = self.chosen(["--method", "local:H=3"], "local:H=4")
        self.assertEqual(out, [LOCAL.format(3)])
        self.assertEqual(
            err, ["coveyrun: --method local:H=3 is used, COVEY_METHOD=local:H=4 is ignored"]
        )

    def test_the_script_wins_over_the_flag(self) -> None:
        out, err = self.chosen(["--method", "local:H=3"], None, "local:H=5")
        self.assertEqual((out, len(err)), ([LOCAL.format(5)], 1))
        self.assertRegex(
            err[0],
            r"^\[0\] covey: --method local:H=3 ignored: .*script.py:6 says method='local:H=5' \("
        )

    def test_quiet_says_nothing(self) -> None:
        """By the flag, or by the variable alone, where the table would come too."""
        for quiet, env in (("--quiet",), {}), ((), {"COVEY_LOG_LEVEL": "error"}):
            with self.subTest(quiet=quiet):
                flags = ["-np", "2", *quiet, "--method", "local:H=3", "--inject", "delay:1ms@1"]
                command = [*flags, sys.executable, self.script, "local"]
                code, out, err = run_launcher(command, env=env)
                self.assertEqual((code, err), (0, []))
                self.assertEqual(len(out), 1)

    def test_an_option_after_the_command_is_told(self) -> None:
        for flag in ("--method", "--quiet", "--summary"):
            code, _, err = run_launcher(["-np", "1", sys.executable, "-c", "", flag, "eager"])
            self.assertEqual(code, 0)
            self.assertEqual(len(err), 1)
            self.assertRegex(err[0], f"coveyrun: {flag} stands after the command and goes to it")

    def test_an_injection_into_ranks_that_are_not_there_is_refused(self) -> None:
        for who, why in (("9", "2 ranks, fewer than 9"), ("rank2", "ranks 0 to 1, no rank 2")):
            flags = ["-np", "2", "--inject", f"delay:50ms@{who}"]
            code, _, err = run_launcher([*flags, sys.executable, self.script])
            self.assertEqual((code, len(err)), (2, 1), err)
            self.assertIn(why, err[0])

    def test_the_forced_flag_wins_over_the_script(self) -> None:
        force = ["--force-method", "--method", "local:H=3"]
        out, err = self.chosen(force, None, "gossip")
        self.assertEqual((out, len(err)), ([LOCAL.format(3)], 1))
        self.assertRegex(
            err[0],
            r"^\[0\] covey: .*script.py:6 says method='gossip', ignored: --force-method, so "
            r"--method local:H=3 holds$",
        )
        self.assertEqual(self.chosen(force, None, "local:local_steps=3"), ([LOCAL.format(3)], []))
        code, _, err = run_launcher(["-np", "2", "--force-method", "true"])
        self.assertEqual((code, err), (2, ["coveyrun: --force-method needs --method METHOD"]))

    def test_an_unchanged_script_under_local(self) -> None:
        script = str(REPOSITORY / "examples" / "pytorch_minimal.py")
        method = ["--method", "local:local_steps=4,warmup_steps=8"]
        code, out, err = run_launcher(["-np", "2", *method, sys.executable, script])
        self.assertEqual((code, len(out)), (0, 2), err)
        weights = {line.partition("weight ")[2] for line in out}
        self.assertEqual(len(weights), 1, "100 steps end with an averaging")

    def test_an_unchanged_script_under_eager(self) -> None:
        script = str(REPOSITORY / "examples" / "pytorch_minimal.py")
        weights = set()
        for method in ("eager:admit=all", "allreduce"):
            code, out, err = run_launcher(
                ["-np", "2", "--method", method, sys.executable, script]
            )
            self.assertEqual((code, len(out)), (0, 2), err)
            weights |= {line.partition("weight ")[2] for line in out}
        self.assertEqual(len(weights), 1, weights)
        code, out, err = run_launcher(
            ["-np", "2", "--method", "eager:admit=solo,log=200", sys.executable, script]
        )
        self.assertEqual((code, len(out)), (0, 2), err)

    def test_a_card_at_the_start(self) -> None:
        command = [sys.executable, self.script]
        method = "eager:admit=2,warmup_steps=5,then=local@9:H=2"
        _, _, err = run_launcher(["-np", "2", "--method", method, *command])
        card = "\n".join(line for line in err if line.startswith("[0] covey | "))
        for words in ("method eager:admit=2,grace=auto,", ",warmup_steps=5,then=local@9:local",
                      "2 ranks, g = 24 B of gradients", "from step 0 to step 8: eager:admit=2",
                      "warm-up         to step 4: gradients averaged over all ranks, which are wai",
                      "from step 9 on: local:local_steps=2",
                      "exchanged       gradients of the ranks", "late ranks      ranks after",
                      "learning rate   that for one rank", "extra memory    3 g in each rank"):
            self.assertIn(words, card)
        self.assertEqual([line for line in err if "covey | " in line and "[0]" not in line], [])
        for method, bound in (("local", ""), ("wagma", ", which are waited for no longer than")):
            _, _, err = run_launcher(["-np", "2", "--method", f"{method}:warmup_steps=2", *command])
            words = f"from step 0 to step 1: warm-up, gradients averaged over all ranks{bound}"
            self.assertTrue(any(words in line for line in err), err)
        _, _, err = run_launcher(["-np", "2", *command])
        self.assertEqual(err, [], "plain allreduce needs no card")
        _, _, err = run_launcher(["-np", "2", "--summary", *command])
        self.assertRegex(err[0], "^\\[0\\] covey \\| method allreduce, 2 ranks, g = 24 B")

    def test_an_unchanged_script_under_wagma(self) -> None:
        script = str(REPOSITORY / "examples" / "pytorch_minimal.py")
        method = ["--method", "wagma:S=2,tau=10"]
        code, out, err = run_launcher(["-np", "2", *method, sys.executable, script])
        self.assertEqual((code, len(out)), (0, 2), err)
        weights = {line.partition("weight ")[2] for line in out}
        self.assertEqual(len(weights), 1, "100 steps end with a version of all")

    def test_a_wrong_method_is_one_line(self) -> None:
        for text, expected in (
            ("lokal", 'the nearest is "local"'),
            ("local:H=0", "not a number of steps from 1"),
            ("local:step=2", "it has local_steps (H), max_wait, codec, warmup_steps"),
            ("allreduce:max_wait=abc", "max_wait is \"abc\", which is not off, auto or a time"),
            ("local:max_wait=-1s", "max_wait is \"-1s\", which is not off, auto or a time"),
            ("", "there are: "),
        ):
            code, out, err = run_launcher(["-np", "2", "--method", text, "true"])
            self.assertEqual((code, out, len(err)), (2, [], 1), err)
            self.assertIn(expected, err[0])

    def test_a_reader_that_wants_no_more_is_no_error(self) -> None:
        command = [sys.executable, "-m", "covey.cli", "methods"]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        read, write = os.pipe()
        os.close(read)
        ended = subprocess.run(
            command, stdout=write, stderr=subprocess.PIPE, env=environment, check=False
        )
        os.close(write)
        self.assertEqual((ended.returncode, ended.stderr), (128 + signal.SIGPIPE, b""))

    def test_the_table_is_that_of_the_guide(self) -> None:
        code, text, _ = covey("methods", "--table")
        self.assertEqual(code, 0)
        self.assertGreater(len(text.splitlines()), 6)
        page = REPOSITORY / "examples" / "guide" / "methods.md"
        self.assertIn(f"\n\n{text}\n", page.read_text(encoding="utf-8"))

    def test_the_table_of_the_readme_is_a_part_of_it(self) -> None:
        """Its first three columns, and the default of max_wait."""
        wanted = ["| method | what is exchanged | with whom | `max_wait` |", "| --- " * 4 + "|"]
        for line in covey("methods", "--table")[1].splitlines()[2:]:
            cells = line.strip("| ").split(" | ")
            (max_wait,) = re.findall("`max_wait=([^`]+)`", cells[-1])
            wanted.append(f"| {' | '.join(cells[:3])} | `{max_wait}` |")
        readme = (REPOSITORY / "README.md").read_text(encoding="utf-8")
        self.assertIn("\n\n" + "\n".join(wanted) + "\n\n", readme)

    def test_cards(self) -> None:
        code, text, _ = covey("methods")
        self.assertEqual(code, 0)
        for word in ("late ranks      no rank: every step", "learning rate   that for one rank",
                     "allreduce", "local", "local_steps (H) = 8 steps, 1 to", "warmup_steps",
                     "2 g (P-1)/P every step", "arXiv:1805.09767", "arXiv:1604.00981",
                     "admit = 0.5\n", "grace = auto\n", "doi:10.1145/3332466.3374528",
                     "group_size (S) = auto\n", "max_wait = off\n", "max_wait so long at most",
                     "doi:10.1109/TPDS.2020.3040606"):
            self.assertIn(word, text)
        self.assertLessEqual(max(map(len, text.splitlines())), 100)
        code, text, _ = covey("methods", "allreduce")
        self.assertEqual((code, "local_steps" in text), (0, False))
        code, text, err = covey("methods", "lokal")
        self.assertEqual((code, text), (2, ""))
        self.assertEqual(err, "covey methods: there is no method lokal (did you mean local?)\n")


if __name__ == "__main__":
    unittest.main()
