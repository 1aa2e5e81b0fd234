"""Goal: what a person sees of a job that goes well, and the mistakes found before it starts.
Method: real `coveyrun` processes with small scripts that do not use the runtime."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
import venv
from typing import Any

from harness import Launched, environment, run_launcher

PYTHON = sys.executable


def python(code: str) -> list:
    return [PYTHON, "-c", code]


class PrefixTest(unittest.TestCase):
    def test_lines_carry_the_rank_and_keep_their_stream(self) -> None:
        code = "import os, sys; r = os.environ['COVEY_RANK']; print('out', r)"
        code += "; print('err', r, file=sys.stderr)"
        exit_code, out, err = run_launcher(["-np", "3", *python(code)])
        self.assertEqual(exit_code, 0, err)
        self.assertEqual(sorted(out), [f"[{r}] out {r}" for r in range(3)])
        self.assertEqual(sorted(err), [f"[{r}] err {r}" for r in range(3)])

    def test_each_rank_sees_one_gpu_if_that_is_asked_for(self) -> None:
        show = python("import os; print(os.environ['CUDA_VISIBLE_DEVICES'])")
        of_two = ["-x", "CUDA_VISIBLE_DEVICES=5,6", *show]
        for options, seen in (
            (["-np", "3", "--bind-gpus", *of_two], ["[0] 5", "[1] 6", "[2] 5"]),
            (["-np", "2", *of_two], ["[0] 5,6", "[1] 5,6"]),
        ):
            exit_code, out, err = run_launcher(options)
            self.assertEqual((exit_code, sorted(out)), (0, seen), err)

    def test_lines_of_ranks_are_never_mixed(self) -> None:
        code = "import os\nfor i in range(3000): print(os.environ['COVEY_RANK'] * 60, i)"
        _, out, err = run_launcher(["-np", "4", *python(code)])
        self.assertEqual(err, [])
        for rank in range(4):
            mine = [line for line in out if line.startswith(f"[{rank}] ")]
            self.assertEqual(mine, [f"[{rank}] {str(rank) * 60} {i}" for i in range(3000)])
        self.assertEqual(len(out), 12000)

    def test_a_line_without_an_end_is_shown_while_the_rank_waits(self) -> None:
        code = "import signal; print('loading', end=''); signal.pause()"
        with Launched(["-np", "1", *python(code)]) as job:
            job.wait_for(r"^\[0\] loading$")

    def test_a_carriage_return_restarts_the_line(self) -> None:
        _, out, _ = run_launcher(["-np", "1", *python(r"print('10%\r50%\r100%\nnext')")])
        self.assertEqual(out, ["[0] 100%", "[0] next"])

    def test_bytes_that_are_no_text_pass_unchanged(self) -> None:
        code = r"import sys; sys.stdout.buffer.write(b'\xff\xfe\x00x\n')"
        command = "import sys; from covey.cli import coveyrun_main; sys.exit(coveyrun_main())"
        result = subprocess.run(
            [PYTHON, "-c", command, "-np", "1", *python(code)],
            env=environment(),
            capture_output=True,
            check=True,
        )
        self.assertEqual(result.stdout, b"[0] \xff\xfe\x00x\n")

    def test_output_dir_holds_every_stream_as_it_was_written(self) -> None:
        code = r"import sys; print('a\rb'); print('tail', end='', file=sys.stderr)"
        with tempfile.TemporaryDirectory() as folder:
            logs = pathlib.Path(folder, "new", "logs")
            arguments = ["-np", "2", "--output-dir", str(logs), *python(code)]
            exit_code, out, err = run_launcher(arguments)
            self.assertEqual(exit_code, 0)
            self.assertEqual(sorted(out), ["[0] b", "[1] b"])
            self.assertEqual(sorted(err), ["[0] tail", "[1] tail"])
            for rank in range(2):
                home = logs / f"rank.{rank}"
                self.assertEqual((home / "stdout").read_bytes(), b"a\rb\n")
                self.assertEqual((home / "stderr").read_bytes(), b"tail")

    def test_a_full_disk_costs_the_file_only(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            home = pathlib.Path(folder, "rank.0")
            home.mkdir()
            (home / "stdout").symlink_to("/dev/full")
            exit_code, out, err = run_launcher(
                ["-np", "1", "--output-dir", folder, *python("print('x'); print('y')")]
            )
        self.assertEqual((exit_code, out), (0, ["[0] x", "[0] y"]))
        self.assertEqual(len(err), 1, err)
        self.assertIn("No space left", err[0])

    def test_a_reader_that_leaves_ends_the_job(self) -> None:
        code = "import itertools\nfor i in itertools.count(): print(i)"
        with Launched(["-np", "2", *python(code)]) as job:
            job.wait_for(r"\] 10$", 2)
            assert job.process.stdout is not None
            os.dup2(os.open(os.devnull, os.O_RDONLY), job.process.stdout.fileno())
            job.wait_until_gone()
            self.assertEqual(job.process.wait(), 141)


class NobodyReadsTest(unittest.TestCase):
    def shell(self, redirection: str, *arguments: str, **env: str) -> Any:
        command = [PYTHON, "-m", "covey.cli", *arguments]
        return subprocess.run(
            ["sh", "-c", f'"$@" {redirection}', "sh", *command],
            env=environment(**env),
            capture_output=True,
            check=False,
            text=True,
            timeout=60,
        )

    def test_a_daemon_without_streams_runs_its_job(self) -> None:
        for closed in (">&-", "2>&-", "<&-", "<&- >&- 2>&-"):
            with self.subTest(closed=closed), tempfile.TemporaryDirectory() as folder:
                code = "import os, sys; print('out'); print('err', file=sys.stderr)"
                job = ["run", "-np", "2", "--output-dir", folder, *python(code)]
                self.assertEqual(self.shell(closed, *job).returncode, 0)
                for rank in range(2):
                    for name, text in (("stdout", "out\n"), ("stderr", "err\n")):
                        written = pathlib.Path(folder, f"rank.{rank}", name).read_text()
                        self.assertEqual(written, text)
        self.assertEqual(self.shell("2>&-", "run", "-np", "0", "true").returncode, 2)

    def test_a_full_disk_takes_no_notice_and_the_job_runs(self) -> None:
        variables = {"HOROVOD_CYCLE_TIME": "5", "COVEY_METHOD": "eager"}
        for flags in (["--inject", "delay:1ms@1"], ["--method", "local"], []):
            with self.subTest(flags=flags), tempfile.TemporaryDirectory() as folder:
                code = "import sys; open(sys.argv[1], 'w'); print('noise', file=sys.stderr)"
                there = os.path.join(folder, "ran")
                job = ["run", "-np", "1", *flags, *python(code), there, "--quiet"]
                ran = self.shell("2>/dev/full", *job, **variables)
                self.assertEqual((ran.returncode, ran.stdout), (0, ""))
                self.assertTrue(os.path.exists(there))
        self.assertEqual(self.shell("2>/dev/full", "run", "-np", "0", "true").returncode, 2)

    def test_output_that_a_full_disk_loses_is_told_of_once(self) -> None:
        ran = self.shell(">/dev/full", "run", "-np", "2", *python("print('x'); print('y')"))
        self.assertEqual(ran.returncode, 0)
        self.assertEqual(len(ran.stderr.splitlines()), 1, ran.stderr)
        self.assertIn("standard output cannot be written (No space left on device)", ran.stderr)

    def test_a_full_disk_is_one_line_without_a_traceback(self) -> None:
        for command in ("methods", "codecs"):
            ran = self.shell(">/dev/full", command)
            wanted = "covey: standard output cannot be written: No space left on device\n"
            self.assertEqual((ran.returncode, ran.stderr), (1, wanted))

    def test_a_reader_that_has_enough_sees_no_traceback(self) -> None:
        for command in ("methods", "codecs"):
            self.assertEqual(self.shell("| true", command).stderr, "")


class EnvironmentTest(unittest.TestCase):
    NAMES = [
        *("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"),
        *("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS", "PYTHONUNBUFFERED"),
    ]

    def show(self, *names: str) -> list:
        return python(f"import os; print(*[os.environ.get(n) for n in {list(names)}])")

    def test_threads_are_shared_out(self) -> None:
        env = {name: None for name in self.NAMES}
        clean = {k: v for k, v in environment().items() if k not in env}
        command = "import sys; from covey.cli import coveyrun_main; sys.exit(coveyrun_main())"
        result = subprocess.run(
            [PYTHON, "-c", command, "-np", "2", *self.show(*self.NAMES)],
            env=clean,
            capture_output=True,
            check=True,
            text=True,
        )
        share = max(1, len(os.sched_getaffinity(0)) // 2)
        for line in result.stdout.splitlines():
            self.assertEqual(line.split()[1:], [str(share)] * 5 + ["1"])

    def test_threads_set_by_the_user_stay(self) -> None:
        _, out, _ = run_launcher(
            ["-np", "1", *self.show("OMP_NUM_THREADS")], env={"OMP_NUM_THREADS": "7"}
        )
        self.assertEqual(out, ["[0] 7"])

    def test_ranks_learn_their_place(self) -> None:
        names = ["COVEY_RANK", "COVEY_SIZE", "COVEY_LOCAL_RANK", "COVEY_LOCAL_SIZE", "FROM_X"]
        _, out, _ = run_launcher(["-np", "2", "-x", "FROM_X=a=b", *self.show(*names)])
        self.assertEqual(sorted(out), ["[0] 0 2 0 2 a=b", "[1] 1 2 1 2 a=b"])

    def test_ranks_share_one_memory(self) -> None:
        code = "import os; print(os.fstat(int(os.environ['COVEY_SHM_FD'])).st_ino,"
        code += " os.environ['COVEY_JOB'])"
        _, out, _ = run_launcher(["-np", "3", *python(code)])
        self.assertEqual(len({line.split(" ", 1)[1] for line in out}), 1, out)

    def test_timeline_folder_is_made_and_told(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            for flag, name in (("--timeline", "a/b"), ("--timeline-filename", "c.json")):
                where = os.path.join(folder, name)
                _, out, _ = run_launcher(["-np", "1", flag, where, *self.show("COVEY_TIMELINE")])
                told = where[:-5] if name.endswith(".json") else where
                self.assertEqual(out, [f"[0] {told}"])
                self.assertTrue(os.path.isdir(told))


class MistakeTest(unittest.TestCase):
    def refuse(self, arguments: list, expected: str, **options: Any) -> None:
        exit_code, out, err = run_launcher(arguments, **options)
        self.assertEqual((exit_code, out, len(err)), (2, [], 1), err)
        self.assertIn(expected, err[0])

    def test_each_is_one_line_and_exit_code_2(self) -> None:
        for arguments, expected in (
            (["-np", "0", "true"], "0 is not a number of ranks"),
            (["-np", "x", "true"], "x is not a number of ranks"),
            (["-np", "", "true"], "'' is not a number of ranks"),
            (["-np", "9" * 20, "true"], f"{'9' * 20} is not a number of ranks"),
            (["-np", "1025", "true"], "-np 1025: a host has 1 to 1024 ranks"),
            (["-np", "2", "-x", "RANK=0", "true"], "RANK is not for -x: coveyrun sets it"),
            (["-np", "2", "-x", "COVEY_SIZE=9", "true"], "COVEY_SIZE is not for -x"),
            (["-np", "2", "-H", "localhost:1", "true"], "-H has only 1 slot (localhost:1)"),
            (["-np", "2", "--network-security", "no", "true"], "-security: there is no no"),
            (["-np", "-1", "true"], "-np"),
            (["true"], "-np N is missing"),
            (["-np", "2"], "no command to run"),
            (["-np", "2", "pyton", "train.py"], "no such program: pyton (did you mean python?)"),
            (["-np", "2", "./nothing"], "no such program: ./nothing"),
            (["-np", "2", PYTHON, "-u", "nothing.py"], "no such script: nothing.py"),
            (["--num-prc", "2", "true"], "unknown option --num-prc (did you mean --num-proc?)"),
            (["-np", "2", "--verbos", "true"], "(did you mean --verbose?)"),
            (["-np", "4", "-H", "localhost:2", "true"], "-H has only 2 slots"),
            (["-np", "2", "--mca", "a", "b", "true"], "--mca"),
            (["-np", "2", "--hostfile", "f", "true"], "--hostfile f: No such file"),
            (["-np", "2", "-hostfile", "f", "true"], "--hostfile f: No such file"),
            (["-H", "a:0", "true"], "a: 0 is not a number of slots"),
            (["--slots-per-host", "2", "true"], "say -H HOST:N for each host"),
            (["-np", "2", "-cb", "true"], "-cb: covey build"),
            (["-np", "2", "--stall-check-shutdown-time-seconds", "9", "true"], "max_wait"),
            (["-np", "2", "--log-level=LOUD", "true"], "--log-level: 'LOUD' is no value"),
            (["--nproc-per-node", "2", "true"], "it is -np N"),
            (
                ["-np", "2", "-x", "COVEY_METHOD=lokal", "true"],
                'COVEY_METHOD: there is no method "lokal"',
            ),
            (["-np", "2", "--host-discovery-script", "a", "true"], "needs --min-np N"),
            (["-np", "2", "-x", "=1", "true"], "is not NAME=VALUE"),
            (["-np", "2", "--timeline", "/dev/null/x", "true"], "--timeline /dev/null/x"),
            (["-np", "2", "--output-dir", "/dev/null/x", "true"], "--output-dir /dev/null/x"),
            (
                ["-np", "2", "--bind-gpus", "-x", "CUDA_VISIBLE_DEVICES=", "true"],
                "--bind-gpus: this machine has no GPU",
            ),
        ):
            with self.subTest(arguments=arguments):
                self.refuse(arguments, expected)

    def test_a_deleted_working_folder(self) -> None:
        wanted = ": the working folder cannot be found (No such file or directory): go to one that "
        for command in (["doctor", "-np", "1"], ["run", "-H", "a:1", "--ssh", "true", "true"]):
            with self.subTest(command=command), tempfile.TemporaryDirectory() as folder:
                gone = os.path.join(folder, "gone")
                os.mkdir(gone)
                words = ["sh", "-c", 'cd "$0" && rmdir "$0" && "$@"', gone]
                words += [PYTHON, "-m", "covey.cli", *command]
                ran = subprocess.run(words, env=environment(), capture_output=True, text=True)
                self.assertEqual(ran.returncode, 2, ran.stderr)
                self.assertEqual(ran.stderr, f"covey {command[0]}{wanted}exists\n")

    def test_a_script_name_nearly_right(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "train.py").touch()
            expected = "no such script: trian.py (did you mean train.py?)"
            self.refuse(["-np", "2", PYTHON, "trian.py"], expected, cwd=folder)
            self.refuse(["-np", "2", "./train.py"], "python ./train.py", cwd=folder)

    def test_a_python_without_the_package(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            venv.create(folder, with_pip=False, symlinks=True)
            bare = os.path.join(folder, "bin", "python")
            # The package must be importable for the launcher, but not by way of PYTHONPATH.
            paths = environment()["PYTHONPATH"].split(os.pathsep)
            entry = (
                f"import sys; sys.path[:0] = {paths!r}; from covey.cli import coveyrun_main;"
                "sys.exit(coveyrun_main())"
            )
            expected = "cannot import the package covey"
            arguments = ["-np", "2", bare, "-c", "1"]
            self.refuse(arguments, expected, entry=entry, env={"PYTHONPATH": ""})

    def test_help_is_readable(self) -> None:
        exit_code, out, _ = run_launcher(["--help"])
        self.assertEqual(exit_code, 0)
        self.assertIn("examples:", out)
        self.assertLessEqual(max(len(line) for line in out), 100)

    def test_horovodrun_spellings(self) -> None:
        arguments = "--num-proc 2 -H localhost:2 --start-timeout 30 --disable-cache --".split()
        exit_code, out, err = run_launcher([*arguments, *python("print('up')")])
        self.assertEqual((exit_code, sorted(out)), (0, ["[0] up", "[1] up"]))
        (said,) = err
        self.assertIn("--disable-cache is ignored: signatures are cached per stream", said)


if __name__ == "__main__":
    unittest.main()
