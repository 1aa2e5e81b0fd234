"""Goal: ranks that are forks of one process, which has imported modules, are as any others.
Method: the same commands with and without `--preload`; modules that cannot be preloaded; ends of
ranks, of the launcher and of the import by signals."""

from __future__ import annotations

import os
import pathlib
import signal
import sys
import tempfile
import textwrap
import unittest
from typing import Dict, List, Tuple

import fake_ssh
from harness import Launched, environment, run_launcher

PYTHON = sys.executable
# What a script can see of how it was started.
SEEN = """
import json, os, signal, sys
kept = ("COVEY_RANK", "COVEY_SIZE", "RANK", "OMP_NUM_THREADS", "MARK")
main = sys.modules["__main__"]
print(json.dumps([
    sys.argv, __name__, globals().get("__file__"), main is sys.modules[__name__],
    getattr(__spec__, "name", None), sys.path[:2], sys.flags.utf8_mode, os.getcwd(),
    [os.environ.get(name) for name in kept],
    os.getsid(0) == os.getpid() == os.getpgid(0), sys.stdin.read(),
    sorted(int(fd) for fd in os.listdir("/proc/self/fd"))[:3],
    [os.fstat(int(os.environ["COVEY_SHM_FD"])).st_size > 0],
    str(signal.getsignal(signal.SIGINT)), sys.stdout.line_buffering, sys.stdout.write_through,
]))
"""
SUM = """
import numpy, covey.numpy
covey.init()
total = covey.numpy.allreduce(numpy.full(3, covey.rank() + 1.0), op=covey.Sum)
print(total.tolist())
"""


class PreloadTest(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def write(self, name: str, text: str) -> str:
        path = self.folder / name
        path.write_text(textwrap.dedent(text), "utf-8")
        return str(path)

    def run_job(
        self, ranks: int, modules: str, *command: str, **extra: str
    ) -> Tuple[int, List[str], List[str]]:
        options = ["--preload", modules] if modules else []
        # The launcher's folder is the scripts', too.
        arguments = ["-np", str(ranks), *options, *command]
        return run_launcher(arguments, cwd=str(self.folder), env=extra or None)


class SameTest(PreloadTest):
    """Ranks are as without it."""

    def test_a_command_sees_the_same(self) -> None:
        self.write("seen.py", SEEN)
        folder = self.folder / "linked"
        folder.mkdir()
        (folder / "seen_link.py").symlink_to(self.folder / "seen.py")
        commands = (
            [PYTHON, "seen.py", "a", "-c"],
            [PYTHON, "-X", "utf8", "-u", "linked/seen_link.py"],
            [PYTHON, "-m", "seen", "b"],
            [PYTHON, "-um", "seen"],
            [PYTHON, "-c", SEEN, "-m"],
            [PYTHON, "-I", "seen.py"],
        )
        for number, command in enumerate(commands):
            with self.subTest(command=command[1:3]):
                env = {"PYTHONUNBUFFERED": "" if number == 0 else "1", "MARK": "\udcff=x\n"}
                plain = self.run_job(2, "", *command, **env)
                code, out, err = self.run_job(2, "json,decimal", *command, **env)
                self.assertEqual((code, err), (0, []))
                self.assertEqual(sorted(out), sorted(plain[1]))

    def test_ranks_communicate(self) -> None:
        script = self.write("sum.py", SUM)
        code, out, err = self.run_job(3, "numpy", PYTHON, script)
        expected = [f"[{rank}] [6.0, 6.0, 6.0]" for rank in range(3)]
        self.assertEqual((code, sorted(out)), (0, expected), err)

    def test_ranks_train_with_torch(self) -> None:
        script = self.write(
            "train.py",
            """
            import sys, threading
            assert "torch" in sys.modules
            import torch
            import covey.torch as covey
            covey.init()
            weight = torch.nn.Parameter(torch.ones(4))
            optimizer = covey.DistributedOptimizer(torch.optim.SGD([weight], lr=1.0))
            (weight.sum() * covey.rank()).backward()
            optimizer.step()
            print(weight.tolist())
            """,
        )
        code, out, err = self.run_job(2, "torch", PYTHON, script)
        expected = [f"[{rank}] {[0.5] * 4}" for rank in (0, 1)]
        self.assertEqual((code, sorted(out)), (0, expected), err)

    def test_a_failure_is_shown_the_same(self) -> None:
        endings: Dict[str, str] = {
            "raise": "raise ValueError('of rank ' + os.environ['RANK'])",
            "code": "sys.exit(3)",
            "text": "sys.exit('enough')",
            "syntax": "compile('1 +', 'x', 'exec')",
            "interrupt": "raise KeyboardInterrupt",
            "kill": "os.kill(os.getpid(), 9)",
        }
        for kind, line in endings.items():
            with self.subTest(kind):
                script = self.write(f"{kind}.py", f"import os, sys\n{line}\n")
                plain = self.run_job(1, "", PYTHON, script)
                forked = self.run_job(1, "json", PYTHON, script)
                self.assertEqual(forked[0], plain[0])
                self.assertNotEqual(forked[0], 0)
                self.assertEqual(*[_without_pid(job[2]) for job in (forked, plain)])

    def test_a_script_that_does_not_compile(self) -> None:
        script = self.write("wrong.py", "x = (\n")
        plain, forked = (self.run_job(1, modules, PYTHON, script) for modules in ("", "json"))
        self.assertEqual(forked[0], 1)
        self.assertEqual(*[_without_pid(job[2]) for job in (forked, plain)])

    def test_ranks_draw_different_numbers(self) -> None:
        draw = "import random, numpy; print(random.random(), numpy.random.rand())"
        code, out, err = self.run_job(3, "random,numpy.random", PYTHON, "-c", draw)
        self.assertEqual(code, 0, err)
        for at in (1, 2):
            self.assertEqual(len({line.split()[at] for line in out}), 3, out)

    def test_one_rank_that_is_killed_does_not_end_the_others(self) -> None:
        script = self.write(
            "die.py",
            """
            import os
            if os.environ["RANK"] == "1": os.kill(os.getpid(), 9)
            print("done")
            """,
        )
        command = ["-np", "3", "--keep-going", "--preload", "json", PYTHON, script]
        code, out, err = run_launcher(command)
        self.assertEqual((code, sorted(out)), (0, ["[0] done", "[2] done"]), err)
        self.assertTrue(any("rank 1" in line for line in err), err)


class ModulesTest(PreloadTest):
    """Each module is imported once, by the ranks' Python, or the job does not start."""

    def test_the_scripts_own_module_is_imported_once(self) -> None:
        self.write("own.py", "import sys\nprint('imported', sys.argv)\n")
        script = self.write("main.py", "import own\nprint('ran')\n")
        code, out, err = self.run_job(3, "own", PYTHON, script, "x")
        self.assertEqual((code, sorted(out)), (0, [f"[{rank}] ran" for rank in range(3)]))
        self.assertEqual(err, [f"imported {[script, 'x']}"])

    def test_a_module_sees_what_all_ranks_have_in_common(self) -> None:
        self.write(
            "own.py",
            """
            import os
            names = ("RANK", "COVEY_RANK", "WORLD_SIZE", "MARK")
            found = [os.environ.get(name) for name in names]
            """,
        )
        code = "import own; print(own.found)"
        _, out, _ = self.run_job(2, "own", PYTHON, "-c", code, MARK="m")
        self.assertEqual(sorted(out), [f"[{rank}] [None, None, '2', 'm']" for rank in (0, 1)])

    def test_what_cannot_be_preloaded_is_refused(self) -> None:
        self.write("fails.py", "raise OSError('no disk')")
        self.write("quits.py", "import os; os._exit(7)")
        self.write("dies.py", "import os; os.abort()")
        self.write(
            "threads.py",
            """
            import threading
            stop = threading.Event()
            threading.Thread(target=stop.wait, name="reader", daemon=True).start()
            """,
        )
        for modules, why in (
            ("jsn", "cannot import jsn: ModuleNotFoundError: No module named 'jsn'"),
            ("json,fails", "cannot import fails: OSError: no disk"),
            ("quits", "the import ended the process with exit code 7"),
            ("dies", "the import ended the process with signal 6"),
            ("threads", "a thread has been started (reader), which a fork does not have"),
        ):
            code, out, err = self.run_job(2, modules, PYTHON, "-c", "print(1)")
            self.assertEqual((code, out, err), (2, [], [f"coveyrun: --preload {modules}: {why}"]))

    def test_what_is_no_module_or_no_python_is_refused(self) -> None:
        for modules, command, why in (
            ("a b", [PYTHON, "-c", "1"], "--preload: a b is not MODULE[,MODULE...]"),
            ("json", ["true"], "--preload: the command is not python SCRIPT or python -m MODULE"),
        ):
            code, _, err = self.run_job(2, modules, *command)
            self.assertEqual((code, err), (2, [f"coveyrun: {why}"]))

    def test_an_import_that_takes_too_long_is_given_up(self) -> None:
        self.write("slow.py", "import signal\nsignal.pause()\n")
        path = os.pathsep.join([str(self.folder), environment()["PYTHONPATH"]])
        flags = ["-np", "1", "--preload", "json,slow", PYTHON, "-c", "print(1)"]
        ssh, _ = fake_ssh.write(self.folder)
        there = ["-x", "COVEY_START_TIMEOUT=1s", "--ssh", str(ssh), "-H", "a"]
        for where in (["--start-timeout", "1"], there):
            command = [*where, *flags]
            code, out, err = run_launcher(command, env={"PYTHONPATH": path})
            self.assertEqual((code, out), (2, []), err)
            wanted = "--preload json,slow: the import took longer than 1s (--start-timeout)"
            self.assertTrue(err[-1].endswith(wanted), err)

    def test_a_deleted_working_folder_is_no_obstacle(self) -> None:
        self.write("found.py", "print('ran')\n")
        for command in (("-c", "print('ran')"), ("-m", "found"), (str(self.folder / "found.py"),)):
            gone = self.folder / "gone"
            gone.mkdir()
            remove = f"import os; os.rmdir({str(gone)!r}); import sys; "
            entry = remove + "from covey.cli import coveyrun_main; sys.exit(coveyrun_main())"
            path = os.pathsep.join([str(self.folder), environment()["PYTHONPATH"]])
            arguments = ["-np", "1", "--preload", "json", PYTHON, *command]
            ran = run_launcher(arguments, cwd=str(gone), entry=entry, env={"PYTHONPATH": path})
            self.assertEqual(ran, (0, ["[0] ran"], []))

    def test_the_variable_is_for_commands_of_python(self) -> None:
        show = "import os, sys; print('decimal' in sys.modules, os.environ.get('COVEY_PRELOAD'))"
        for command, shown in (
            ([PYTHON, "-c", show], "[0] True None"),
            (["sh", "-c", f'{PYTHON} -c "{show}"'], "[0] False None"),
        ):
            code, out, err = self.run_job(1, "", *command, COVEY_PRELOAD="decimal")
            self.assertEqual((code, out), (0, [shown]), err)
        code, _, err = self.run_job(1, "", PYTHON, "-c", "1", COVEY_PRELOAD="a b")
        why = "coveyrun: COVEY_PRELOAD: a b is not MODULE[,MODULE...]"
        self.assertEqual((code, err), (2, [why]))


class EndingsTest(PreloadTest):
    """Nothing is left behind."""

    def test_ranks_end_with_the_launcher(self) -> None:
        script = self.write("wait.py", "import signal\nprint('up')\nsignal.pause()\n")
        with Launched(["-np", "2", "--preload", "json", PYTHON, script]) as job:
            job.wait_for("up", 2)
            job.send(signal.SIGKILL)
            job.wait_until_gone()

    def test_a_signal_during_the_import_ends_the_job(self) -> None:
        self.write("slow.py", "import signal\nprint('importing', flush=True)\nsignal.pause()\n")
        env = {"PYTHONPATH": os.pathsep.join([str(self.folder), environment()["PYTHONPATH"]])}
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
            command = ["-np", "2", "--preload", "slow", PYTHON, "-c", "print('ran')"]
            with self.subTest(number), Launched(command, env=env) as job:
                job.wait_for("importing")
                job.send(number)
                code = job.finish()
                self.assertEqual(code, -9 if number == signal.SIGKILL else 128 + number)
                job.wait_until_gone()
                self.assertEqual(job.stdout(), [])

    def test_ctrl_c_tells_where_ranks_are(self) -> None:
        script = self.write(
            "wait.py",
            """
            import signal, covey
            covey.init()
            print("up")
            signal.pause()
            """,
        )
        with Launched(["-np", "2", "--preload", "json", PYTHON, script]) as job:
            job.wait_for("up", 2)
            job.send(signal.SIGINT)
            self.assertEqual(job.finish(), 130)
            # One may not have come to its last line yet.
            self.assertEqual(len(job.wait_for(r"is at .*wait\.py:[45] in <module>", 2)), 2)


def _without_pid(lines: List[str]) -> List[str]:
    return [line.partition("(pid ")[0] + line.partition(")")[2] for line in lines]


if __name__ == "__main__":
    unittest.main()
