"""Goal: however a job ends, the right rank is named, the exit code is right and nothing is left.
Method: real `coveyrun` processes with small scripts that do not use the runtime. The bounds on time
are hard limits of the launcher's own promise (2 s) with room for a busy machine."""

from __future__ import annotations

import os
import random
import re
import signal
import sys
import tempfile
import time
import unittest

from harness import (
    Launched,
    holders_of_memory,
    run_launcher,
    wait_for_state,
    wait_until_memory_gone,
)

PYTHON = sys.executable
# The launcher promises 2 s; a loaded machine with two cores may add some.
PROMISE_S = 2.0 + 8.0
WAIT = "import os, signal, sys, time; r = int(os.environ['COVEY_RANK']); "
STUBBORN = "[signal.signal(s, signal.SIG_IGN) for s in (signal.SIGTERM, signal.SIGINT)]; "
UP = "print('up', os.getpid(), flush=True); "
INODE = "print('inode', os.fstat(int(os.environ['COVEY_SHM_FD'])).st_ino, flush=True); "
# A handler may run just before a pause(): scripts that wait for it look at `answers` instead.
ANSWER = (
    "answers = []; signal.signal(signal.SIGUSR1, "
    "lambda *a: (answers.append(1), print('waits for x', r, file=sys.stderr))); "
)


def python(code: str) -> list:
    return [PYTHON, "-c", code]


# As the installed command, with a Ctrl-C when a certain module is about to be imported or called.
EARLY = """
import os, signal, sys
class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == os.environ["MODULE"]:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupt())
sys.argv[0] = "/some/where/coveyrun"
from covey_command import coveyrun_main
if os.environ["MODULE"] == "":
    from covey.launch import job
    job.Summary.__init__ = lambda *_: os.kill(os.getpid(), signal.SIGINT)
sys.exit(coveyrun_main())
"""


class EarlyInterruptTest(unittest.TestCase):
    def test_a_ctrl_c_before_the_job_begins_says_one_line(self) -> None:
        for module in ("covey", "covey._native", "covey.ops", "covey.cli.run_command", ""):
            with self.subTest(module=module):
                command = ["-np", "1", *python("print('ran')")]
                code, out, err = run_launcher(command, entry=EARLY, env={"MODULE": module})
                self.assertEqual((code, out, err), (130, [], ["coveyrun: interrupted"]))


# Its shared memory is unlinked by Python's resource tracker when the process is gone.
SHARED = (
    "from multiprocessing.shared_memory import SharedMemory; "
    "m = SharedMemory(create=True, size=64); print('name', m.name, flush=True); "
)


class SharedMemoryTest(unittest.TestCase):
    def test_what_python_shares_is_unlinked_however_a_rank_ends(self) -> None:
        for end in ("os.kill(os.getpid(), 9)", "os._exit(3)", "sys.exit(0)", "signal.pause()"):
            with self.subTest(end=end):
                code = WAIT + SHARED + end
                with Launched(["-np", "2", *python(code)]) as job:
                    if "pause" in end:
                        job.wait_for(r"\] name", 2)
                        job.send(signal.SIGTERM)
                    job.finish()
                    names = re.findall(r"\] name (\S+)", "\n".join(job.stdout()))
                self.assertTrue(names)
                left = [name for name in names if os.path.exists(f"/dev/shm/{name}")]
                self.assertEqual(left, [])


class FailureTest(unittest.TestCase):
    def test_the_failing_rank_is_named_last_with_its_traceback(self) -> None:
        code = WAIT + "\nif r == 2: raise ValueError('boom')\nsignal.pause()"
        exit_code, _, err = run_launcher(["-np", "4", *python(code)])
        self.assertEqual(exit_code, 1)
        summary = [line for line in err if not line.startswith("[")]
        self.assertRegex(summary[0], r"^coveyrun: rank 2 \(pid \d+\) failed first: exit code 1$")
        self.assertIn("coveyrun:   ValueError: boom", summary)
        self.assertEqual(summary[-1], "coveyrun: ranks 0, 1 and 3 ended by the launcher")
        self.assertEqual(err[-len(summary) :], summary, "the summary comes last")

    def test_a_chained_exception_is_shown_whole(self) -> None:
        code = "try: 1 / 0\nexcept ZeroDivisionError as e: raise KeyError('outer') from e"
        _, _, err = run_launcher(["-np", "1", *python(code)])
        summary = [line for line in err if line.startswith("coveyrun:")]
        self.assertTrue(any("ZeroDivisionError" in line for line in summary), err)
        self.assertTrue(any("KeyError: 'outer'" in line for line in summary), err)

    def test_the_exit_code_is_that_of_the_first_rank(self) -> None:
        code = WAIT + "\nif r == 1: sys.exit(7)\nsignal.pause()"
        exit_code, _, err = run_launcher(["-np", "3", *python(code)])
        self.assertEqual(exit_code, 7)
        self.assertTrue(any("rank 1" in line and "exit code 7" in line for line in err), err)

    def test_a_signal_is_named_and_becomes_128_plus_its_number(self) -> None:
        for number in (signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT):
            code = WAIT + f"\nif r == 0: os.kill(os.getpid(), {int(number)})\nsignal.pause()"
            with self.subTest(number=number):
                exit_code, _, err = run_launcher(["-np", "2", *python(code)])
                self.assertEqual(exit_code, 128 + number)
                self.assertRegex("\n".join(err), rf"rank 0 \(pid \d+\).*killed by {number.name}")

    def test_who_only_reports_the_failure_is_not_the_first(self) -> None:
        # Rank 0 dies of the runtime's error about rank 1, earlier than rank 1 has exited.
        code = WAIT + (
            "\nclass AbortedError(Exception): pass"
            "\nAbortedError.__module__ = 'covey'"
            "\nif r == 0: raise AbortedError('allreduce x: rank 1 left the job')"
            "\ntime.sleep(0.3)"
            "\nraise RuntimeError('the cause')"
        )
        exit_code, _, err = run_launcher(["-np", "2", *python(code)])
        self.assertEqual(exit_code, 1)
        self.assertRegex("\n".join(err), r"rank 1 \(pid \d+\) failed first")
        self.assertTrue(any(line.startswith("coveyrun: then rank 0") for line in err), err)

    def test_the_cause_is_named_though_its_exit_takes_too_long(self) -> None:
        code = WAIT + (
            "\nimport atexit, pathlib"
            "\nclass AbortedError(Exception): pass"
            "\nAbortedError.__module__ = 'covey'"
            "\nsign = pathlib.Path(sys.argv[1])"
            "\nif r == 1:"
            "\n    atexit.register(signal.pause)"
            "\n    atexit.register(sign.touch)"
            "\n    raise RuntimeError('the cause')"
            "\nwhile not sign.exists(): time.sleep(0.001)"
            "\nraise AbortedError('allreduce x: rank 1 left the job')"
        )
        with tempfile.TemporaryDirectory() as folder:
            sign = os.path.join(folder, "sign")
            exit_code, _, err = run_launcher(["-np", "2", *python(code), sign])
        self.assertEqual(exit_code, 1)
        first = r"rank 1 \(pid \d+\) failed first: exit code 1 \(ended by the launcher"
        self.assertRegex("\n".join(err), first)
        self.assertTrue(any(line.startswith("coveyrun: then rank 0") for line in err), err)

    def test_ranks_that_ignore_everything_are_gone_in_time(self) -> None:
        code = WAIT + STUBBORN + UP + "sys.stdin.read()\nwhile r: signal.pause()\n"
        code += "while not os.path.exists(sys.argv[1]): time.sleep(0.01)\nsys.exit(3)"
        trigger = f"/tmp/covey-test-{os.getpid()}-{time.monotonic_ns()}"
        with Launched(["-np", "4", *python(code), trigger]) as job:
            job.wait_for(r"\] up", 4)
            begun = time.monotonic()
            with open(trigger, "w", encoding="ascii"):
                pass
            self.assertEqual(job.finish(), 3)
            job.wait_until_gone()
            self.assertLess(time.monotonic() - begun, PROMISE_S)
        os.unlink(trigger)

    def test_grandchildren_go_with_the_rank(self) -> None:
        code = "import subprocess; print('up', subprocess.Popen(['sleep', '1000']).pid)"
        exit_code, out, _ = run_launcher(["-np", "2", *python(code)])
        self.assertEqual(exit_code, 0)
        for line in out:
            self.assertFalse(os.path.exists(f"/proc/{line.split()[-1]}/exe"))

    def test_a_grandchild_that_keeps_the_pipe_open_holds_nobody_up(self) -> None:
        code = "import subprocess; subprocess.Popen(['sleep', '30'], start_new_session=True)"
        with Launched(["-np", "1", *python(code)]) as job:
            self.assertEqual(job.process.wait(timeout=25), 0)


class InterruptTest(unittest.TestCase):
    def test_once_asks_where_then_ends_with_130(self) -> None:
        code = WAIT + ANSWER + UP + "\nwhile True: signal.pause()"
        with Launched(["-np", "3", *python(code)]) as job:
            job.wait_for(r"\] up", 3)
            begun = time.monotonic()
            job.send(signal.SIGINT)
            self.assertEqual(job.finish(), 130)
            self.assertLess(time.monotonic() - begun, PROMISE_S)
            for rank in range(3):
                self.assertIn(f"[{rank}] waits for x {rank}", job.stderr())
            self.assertFalse([line for line in job.stderr() if "Traceback" in line], job.dump())
            job.wait_until_gone()

    def test_a_job_that_a_shell_started_with_an_ampersand_ends_too(self) -> None:
        entry = "import signal, sys; signal.signal(signal.SIGINT, signal.SIG_IGN); "
        entry += "from covey.cli import coveyrun_main; sys.exit(coveyrun_main())"
        with Launched(["-np", "1", *python(WAIT + UP + "\nsignal.pause()")], entry=entry) as job:
            job.wait_for(r"\] up")
            job.send(signal.SIGINT)
            self.assertEqual(job.finish(), 130)

    def test_ranks_may_clean_up(self) -> None:
        code = WAIT + ANSWER
        code += f"\ntry:\n  {UP}\n  while True: signal.pause()"
        code += "\nexcept KeyboardInterrupt: print('saved')"
        with Launched(["-np", "2", *python(code)]) as job:
            job.wait_for(r"\] up", 2)
            job.send(signal.SIGINT)
            self.assertEqual(job.finish(), 130)
            self.assertIn("[0] saved", job.stdout())
            self.assertIn("[1] saved", job.stdout())

    def test_a_rank_without_a_handler_is_not_asked_but_told_of(self) -> None:
        with Launched(["-np", "2", *python(WAIT + UP + "\nsignal.pause()")]) as job:
            job.wait_for(r"\] up", 2)
            job.send(signal.SIGINT)
            self.assertEqual(job.finish(), 130)
            self.assertTrue(any("ranks 0 and 1 cannot say" in line for line in job.stderr()))

    def test_stubborn_ranks_are_gone_in_time(self) -> None:
        code = WAIT + STUBBORN + UP + "\nwhile True: signal.pause()"
        with Launched(["-np", "2", *python(code)]) as job:
            job.wait_for(r"\] up", 2)
            begun = time.monotonic()
            job.send(signal.SIGINT)
            self.assertEqual(job.finish(), 130)
            job.wait_until_gone()
            self.assertLess(time.monotonic() - begun, PROMISE_S)

    def test_twice_kills_at_once(self) -> None:
        code = WAIT + STUBBORN + ANSWER + UP + "\nwhile True: signal.pause()"
        with Launched(["-np", "2", *python(code)]) as job:
            job.wait_for(r"\] up", 2)
            job.send(signal.SIGINT)
            job.wait_for("waits for x", 2)
            job.send(signal.SIGINT)
            self.assertEqual(job.finish(), 130)
            job.wait_until_gone()

    def test_a_stopped_rank_does_not_help(self) -> None:
        with Launched(["-np", "2", *python(WAIT + UP + "\nsignal.pause()")]) as job:
            pids = [int(m.group(1)) for m in job.wait_for(r"\] up (\d+)", 2)]
            os.kill(pids[0], signal.SIGSTOP)
            job.send(signal.SIGINT)
            self.assertEqual(job.finish(), 130)
            job.wait_until_gone()


class OtherSignalsTest(unittest.TestCase):
    def test_usr1_is_passed_on_and_the_job_goes_on(self) -> None:
        code = WAIT + ANSWER + UP
        code += "\nwhile len(answers) < 2: time.sleep(0.01)\nprint('done')"
        with Launched(["-np", "2", *python(code)]) as job:
            job.wait_for(r"\] up", 2)
            job.send(signal.SIGUSR1)
            job.wait_for("waits for x", 2)
            self.assertIsNone(job.process.poll())
            job.send(signal.SIGUSR1)
            self.assertEqual(job.finish(), 0)
            self.assertEqual(len([line for line in job.stdout() if "done" in line]), 2)

    def test_usr1_does_not_kill_a_rank_without_a_handler(self) -> None:
        with Launched(["-np", "2", *python(WAIT + UP + "signal.pause()")]) as job:
            pids = [int(m.group(1)) for m in job.wait_for(r"\] up (\d+)", 2)]
            job.send(signal.SIGUSR1)
            job.wait_for("ranks 0 and 1 cannot say")
            for pid in pids:
                os.kill(pid, 0)  # raises when it has gone
            job.send(signal.SIGTERM)
            self.assertEqual(job.finish(), 143)

    def test_usr1_reaches_a_python_under_a_shell(self) -> None:
        code = WAIT + ANSWER + UP + "\nwhile not answers: time.sleep(0.01)"
        script = f'{PYTHON} -c "{code}"; exit 0'
        with Launched(["-np", "2", "sh", "-c", script]) as job:
            job.wait_for(r"\] up", 2)
            job.send(signal.SIGUSR1)
            job.wait_for("waits for x", 2)
            self.assertEqual(job.finish(), 0)

    def test_the_ranks_stop_and_go_on_with_the_launcher(self) -> None:
        code = WAIT + UP + "\nwhile True: print('tick', flush=True); time.sleep(0.02)"
        with Launched(["-np", "2", *python(code)]) as job:
            pids = [int(m.group(1)) for m in job.wait_for(r"\] up (\d+)", 2)]
            job.send(signal.SIGTSTP)
            for pid in [*pids, job.process.pid]:
                wait_for_state(pid, "T")
            ticks = len(job.stdout())
            job.send(signal.SIGCONT)
            job.wait_for("tick", ticks + 10)
            job.send(signal.SIGTERM)
            self.assertEqual(job.finish(), 143)

    def test_term_and_hangup_end_the_ranks(self) -> None:
        for number in (signal.SIGTERM, signal.SIGHUP):
            with self.subTest(number=number):
                with Launched(["-np", "2", *python(WAIT + UP + "signal.pause()")]) as job:
                    job.wait_for(r"\] up", 2)
                    job.send(number)
                    self.assertEqual(job.finish(), 128 + number)
                    job.wait_until_gone()


class LauncherKilledTest(unittest.TestCase):
    """kill -9 of the launcher at ten random times: no process and no shared memory is left."""

    SEED = 20

    def test_nothing_is_left(self) -> None:
        moments = random.Random(self.SEED)
        code = WAIT + INODE + "signal.pause()"
        for trial in range(10):
            delay_s = moments.uniform(0.0, 0.6)
            with self.subTest(seed=self.SEED, trial=trial, delay_s=delay_s):
                with Launched(["-np", "4", *python(code)]) as job:
                    time.sleep(delay_s)  # the random moment itself
                    job.process.kill()
                    job.process.wait()
                    job.wait_until_gone(PROMISE_S)
                    inodes = [int(m.group(1)) for m in map(self.inode, job.all()) if m]
                    for inode in inodes:
                        wait_until_memory_gone(inode, PROMISE_S)

    @staticmethod
    def inode(line: str):  # type: ignore[no-untyped-def]
        return re.search(r"inode (\d+)", line)

    def test_the_shared_memory_is_seen_while_it_lives(self) -> None:
        with Launched(["-np", "2", *python(WAIT + INODE + "signal.pause()")]) as job:
            inode = int(job.wait_for(r"inode (\d+)", 2)[0].group(1))
            self.assertGreaterEqual(len(holders_of_memory(inode)), 2)
            job.send(signal.SIGTERM)
            job.finish()
            wait_until_memory_gone(inode)


if __name__ == "__main__":
    unittest.main()
