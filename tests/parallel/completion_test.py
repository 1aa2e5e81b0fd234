"""Goal: bash and zsh complete covey and coveyrun: flags, their values, subcommands, and the job's
command as files. Method: the shell itself completes words, by the script that the command prints.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import unittest
from typing import List

from harness import LIMIT_S, run_launcher

from covey.cli import completion

# As Readline at a Tab: calls the function that `complete` has registered.
_TAB = """
eval "$SCRIPT"
function=$(complete -p "${1##*/}" | sed 's/.*-F \\([^ ]*\\) .*/\\1/')
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
"$function" "$1" "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}" 2>/dev/null
printf '%s\\n' "${COMPREPLY[@]}"
"""


class CompletionTest(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        for name in ("hosts.txt", "train.py"):
            with open(os.path.join(self.folder, name), "w", encoding="utf-8"):
                pass
        os.mkdir(os.path.join(self.folder, "traces"))

    def completed(self, *words: str) -> List[str]:
        """Bash's offers for the last of these words."""
        said = subprocess.check_output(
            ["bash", "--norc", "-c", _TAB, "bash", *words],
            env={**os.environ, "SCRIPT": completion.script("bash")},
            cwd=self.folder,
            timeout=LIMIT_S,
            text=True,
        )
        return sorted(said.split())

    def test_flags_and_their_values(self) -> None:
        for words, wanted in (
            (["coveyrun", "--ti"], ["--timeline"]),
            (["coveyrun", "-np", "4", "--net"], ["--network", "--network-security"]),
            (["coveyrun", "--network-security", ""], ["auth", "tls"]),
            (["coveyrun", "--method", "d"], ["diloco", "dpsgd"]),
            (["coveyrun", "--inject", "pa"], ["pareto", "pause"]),
            (["coveyrun", "--hostfile", "ho"], ["hosts.txt"]),
            (["coveyrun", "--timeline", ""], ["traces"]),
            (["/usr/bin/coveyrun", "--quie"], ["--quiet"]),
            (["coveyrun", "--gloo", "--keep"], ["--keep-going"]),
            (["covey", "run", "--method", "ea"], ["eager"]),
            (["covey", "do"], ["doctor"]),
            (["covey", "doctor", "--js"], ["--json"]),
        ):
            with self.subTest(words=words):
                self.assertEqual(self.completed(*words), wanted)
        self.assertNotIn("--cycle-time-ms", self.completed("coveyrun", "--"))
        self.assertIn("bash", self.completed("coveyrun", "-np", "2", "bas"))
        self.assertEqual(self.completed("coveyrun", "-np", ""), [])

    def test_behind_the_job_s_command_the_shell_completes(self) -> None:
        self.assertEqual(self.completed("coveyrun", "-np", "2", "python", "--ti"), [])
        files = self.completed("coveyrun", "-np", "2", "python", "tr")
        self.assertEqual(files, ["traces", "train.py"])  # As in zsh: Readline is not there.

    def test_the_command_prints_what_bash_takes(self) -> None:
        code, out, _ = run_launcher(["--completion", "bash"])
        self.assertEqual(code, 0)
        self.assertEqual("\n".join(out) + "\n", completion.script("bash"))
        checked = subprocess.run(["bash", "-n"], input="\n".join(out), text=True, check=False)
        self.assertEqual(checked.returncode, 0)

    @unittest.skipIf(shutil.which("zsh") is None, "zsh is not installed")
    def test_zsh_takes_its_script(self) -> None:
        text = f"autoload -Uz compinit && compinit -u -D\n{completion.script('zsh')}"
        text += 'print -r -- "$_comps[coveyrun]"'
        said = subprocess.check_output(["zsh", "-f"], input=text, timeout=LIMIT_S, text=True)
        self.assertIn("_covey", said)


if __name__ == "__main__":
    unittest.main()
