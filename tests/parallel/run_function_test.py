"""Goal: covey.run returns the results by rank, and fails as plainly as coveyrun does.
Method: real processes; functions of this file, which the ranks import as multiprocessing would."""

from __future__ import annotations

import ast
import contextlib
import io
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import unittest
from typing import Any, Dict, List

import harness
from harness import environment

import covey
from covey.launch import JobFailed, LaunchError, run
from covey.launch.guard import is_guarded


def place(*args: object, **kwargs: object) -> tuple:
    return (os.environ["COVEY_RANK"], os.environ["COVEY_SIZE"], args, kwargs)


def fail_on_rank_1() -> None:
    if os.environ["COVEY_RANK"] == "1":
        raise ValueError("not today")


def told_of_the_method() -> tuple:
    names = ("COVEY_METHOD", "COVEY_METHOD_BY", "COVEY_LOG_LEVEL")
    return tuple(os.environ[name] for name in names)


def total() -> float:
    import numpy

    import covey

    covey.init()
    mine = numpy.array([covey.rank() + 1.0])
    return float(covey.allreduce(mine, op=covey.Sum, name="total")[0])


def lose_rank_0(folder: str) -> tuple:
    """Rank 0 kills itself; the others go on until another process has come."""
    import numpy

    import covey
    from covey import elastic

    covey.init()
    killed = pathlib.Path(folder, "killed")
    is_new, worlds = killed.exists(), []

    @elastic.run
    def train(state: Any) -> None:
        worlds.append(covey.size())
        covey.barrier()
        while covey.size() < 3 or len(worlds) + is_new < 2:
            covey.allreduce(numpy.ones(1))
            state.step += 1
            if covey.rank() == 0 and len(worlds) == 1 and not is_new:
                killed.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            state.commit()

    train(elastic.ObjectState(step=0))
    return covey.rank(), covey.size(), is_new


class RunTest(unittest.TestCase):
    def setUp(self) -> None:
        self.old = dict(os.environ)
        os.environ["PYTHONPATH"] = environment()["PYTHONPATH"]

    def tearDown(self) -> None:
        os.environ.clear()
        os.environ.update(self.old)

    def test_results_come_by_rank(self) -> None:
        expected = [(str(rank), "3", (1, "a"), {"b": 2}) for rank in range(3)]
        self.assertEqual(run(place, (1, "a"), {"b": 2}, num_proc=3), expected)
        self.assertEqual(len(run(place, np=2)), 2)

    def test_the_ranks_are_one_job(self) -> None:
        self.assertEqual(run(total, num_proc=3), [6.0] * 3)

    def test_ranks_may_come_and_go(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            found = run(lose_rank_0, (folder,), num_proc=3, min_num_proc=1, reset_limit=3)
        self.assertEqual(found, [(0, 3, False), (1, 3, False), (2, 3, True)])

    def test_a_failure_names_the_rank(self) -> None:
        with self.assertRaises(JobFailed) as caught:
            run(fail_on_rank_1, num_proc=2)
        self.assertEqual((caught.exception.rank, caught.exception.exit_code), (1, 1))
        self.assertIn("ValueError: not today", str(caught.exception))

    def test_what_cannot_be_sent_is_said(self) -> None:
        with self.assertRaisesRegex(LaunchError, "cannot send"):
            run(place, (sys.stdin,), num_proc=1)

    def test_a_rank_that_leaves_early_is_named(self) -> None:
        with self.assertRaisesRegex(JobFailed, "rank 0 exited with code 0 before"):
            run(os._exit, (0,), num_proc=1)

    def test_arguments_of_the_wrong_kind_are_named(self) -> None:
        for name, *wrong in (
            ("num_proc", 0, -1, 1.5, "2", True),
            ("np", 0, "2", 2.0),
            ("args", 5, "ab"),
            ("kwargs", [1], {1: 2}, "ab"),
            ("env", [1], {"A": 1}, {1: "A"}),
            ("method", 3),
            ("preload", "torch", [1], 3),
            ("hosts", 3),
            ("output_dir", 3),
            ("output_filename", 3),
            ("start_timeout", "x", "60"),
            ("min_num_proc", 0, "1", 1.0),
            ("reset_limit", -1, "1"),
        ):
            for value in wrong:
                with self.subTest(name=name, value=value):
                    given = {"num_proc": 1, name: value}
                    with self.assertRaisesRegex(covey.InvalidArgument, rf"\b{name}\b.* must be"):
                        run(place, **given)
        with self.assertRaisesRegex(covey.InvalidArgument, "func must be a function, not 3"):
            run(3, np=1)  # type: ignore[arg-type]

    def test_arguments_of_horovod_run(self) -> None:
        errors = io.StringIO()
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stderr(errors):
            of_horovod: Dict[str, Any] = {"use_gloo": True, "use_mpi": False, "hostfile": None}
            of_horovod.update(hosts="localhost:1,127.0.0.1:1", output_filename=folder, verbose=0)
            self.assertEqual(run(total, num_proc=2, start_timeout=60, **of_horovod), [3.0] * 2)
            self.assertEqual(sorted(os.listdir(folder)), ["rank.0", "rank.1"])
        self.assertIn("covey.run: use_gloo is ignored: no MPI, Gloo or oneCCL", errors.getvalue())
        self.assertNotIn("use_mpi", errors.getvalue())
        for wrong, why in (
            ({"min_num_proc": 3}, "min_num_proc=3, num_proc=2, max_num_proc=2: they do not grow"),
            ({"reset_limit": 1}, "reset_limit needs min_num_proc"),
            ({"slots": 1}, "slots: the ranks run on this host; coveyrun --host-discovery-script"),
            ({"hosts": "localhost:1"}, "num_proc=2: hosts has only 1 slot"),
            ({"hosts": "far:4"}, "not on far; coveyrun -np 2 -H far:4"),
            ({"executable": "/bin/false"}, "executable: the ranks run this Python"),
        ):
            with self.assertRaisesRegex(LaunchError, why):
                run(total, num_proc=2, **wrong)
        with self.assertRaisesRegex(TypeError, "unexpected keyword argument 'use_glue'"):
            run(total, num_proc=1, use_glue=True)

    def test_no_files_stay_behind(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            os.environ["TMPDIR"] = folder
            tempfile.tempdir = None
            try:
                run(place, num_proc=1)
                self.assertEqual(os.listdir(folder), [])
            finally:
                tempfile.tempdir = None

    def test_a_script_of_its_own(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            script = pathlib.Path(folder, "script.py")
            script.write_text(
                "import covey\n"
                "def double(x):\n    return 2 * x\n"
                "if __name__ == '__main__':\n    print(covey.run(double, (21,), num_proc=2))\n",
                encoding="ascii",
            )
            out = subprocess.check_output(
                [sys.executable, str(script)], env=environment(), timeout=harness.LIMIT_S
            )
        self.assertEqual(out, b"[42, 42]\n")

    def test_the_method_is_one_argument(self) -> None:
        told = run(told_of_the_method, num_proc=2, method="local:H=3", quiet=True)
        self.assertEqual(told, [("local:H=3", "flag", "error")] * 2)
        with self.assertRaisesRegex(covey.InvalidArgument, "local"):
            run(told_of_the_method, num_proc=1, method="lokal")

    def end_of(
        self, script: str, *python: str, stdin: str = "", fails: bool = True
    ) -> List[str]:
        """The stderr of a script that fails, where there is no cloudpickle."""
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "cloudpickle.py").write_text("raise ImportError", "ascii")
            path = pathlib.Path(folder, "script.py")
            path.write_text(script, encoding="ascii")
            env = environment()
            env["PYTHONPATH"] = folder + os.pathsep + env["PYTHONPATH"]
            command = [sys.executable, *(python or [str(path)])]
            ended = subprocess.run(
                command, env=env, timeout=harness.LIMIT_S, stderr=subprocess.PIPE, text=True,
                stdout=subprocess.DEVNULL, check=False, input=stdin,
            )
        self.assertEqual(ended.returncode != 0, fails, ended.stderr)
        return ended.stderr.splitlines()

    def test_a_script_without_a_guard_starts_no_jobs_within_the_job(self) -> None:
        (line,) = self.end_of("import covey\nprint(covey.run(max, (1, 2), num_proc=2))\n")
        self.assertIn("covey.run: this script calls covey.run whenever it is imported", line)
        self.assertIn('if __name__ == "__main__":', line)

    def test_ranks_refuse_what_has_no_source_to_look_into(self) -> None:
        script = "exec(compile('import covey; covey.run(max, (1, 2), num_proc=2)', 'no', 'exec'))"
        self.assertIn('if __name__ == "__main__":', "\n".join(self.end_of(script)))

    def test_a_guard_is_seen_wherever_it_stands(self) -> None:
        for script, line, guarded in (
            ("f()", 1, False),
            ("if __name__ == '__main__':\n    f()", 2, True),
            ("try:\n    if '__main__' == __name__:\n        f()\nfinally:\n    g()", 3, True),
            ("if __name__ == '__main__':\n    f()\ng()", 3, False),
            ("if __name__ != '__main__':\n    raise SystemExit\ng()", 3, True),
        ):
            with self.subTest(script):
                self.assertEqual(is_guarded(ast.parse(script), line), guarded)

    def test_a_script_from_standard_input(self) -> None:
        session = "import covey\nprint(covey.run(max, (1, 2), num_proc=2))"
        self.assertEqual(self.end_of("", "-", stdin=session, fails=False), [])
        session = "import covey\ndef double(x): return 2 * x\ncovey.run(double, (1,), num_proc=1)"
        last = self.end_of("", "-", stdin=session)[-1]
        self.assertRegex(last, "LaunchError: double is defined in an interactive .*cloudpickle")

    def test_a_function_of_a_session_without_a_file_is_refused_by_name(self) -> None:
        session = "import covey\ndef double(x): return 2 * x\ncovey.run(double, (1,), num_proc=1)"
        last = self.end_of("", "-c", session)[-1]
        self.assertRegex(last, "LaunchError: double is defined in an interactive .*cloudpickle")


if __name__ == "__main__":
    unittest.main()
