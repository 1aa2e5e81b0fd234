"""Goal: the launcher's parts decide rightly in cases that are hard to bring about with processes.
Method: they are pure; times are given."""

from __future__ import annotations

import json
import os
import signal
import tempfile
import unittest
from typing import List, Optional

import harness  # noqa: F401  # makes `covey` importable in a source tree

from covey.errors import shown
from covey.launch import check, endings, environment, hosts, node, output, report
from covey.launch.spec import JobSpec, LaunchError

TRACEBACK = ["Traceback (most recent call last):", '  File "x.py", line 1, in <module>']


def ended(
    rank: int, at: float, code: int = 1, traceback_at: Optional[float] = None, last: str = ""
) -> report.Exit:
    tail: List[str] = [*TRACEBACK, last] if last else []
    return report.Exit(rank, 100 + rank, code, at, traceback_at, tail)


class FirstFailureTest(unittest.TestCase):
    def first(self, *ends: report.Exit) -> int:
        return report.first_failure(ends).rank

    def test_the_earlier_traceback_counts_not_the_earlier_exit(self) -> None:
        slow = ended(0, at=9.0, traceback_at=1.0, last="ValueError: a")
        fast = ended(1, at=2.0, traceback_at=1.5, last="ValueError: b")
        self.assertEqual(self.first(slow, fast), 0)

    def test_a_killed_rank_counts_by_its_end(self) -> None:
        killed = ended(0, at=1.0, code=-9)
        other = ended(1, at=1.1, traceback_at=1.05, last="OSError: x")
        self.assertEqual(self.first(other, killed), 0)

    def test_who_blames_a_failed_rank_comes_after_it(self) -> None:
        blames = ended(0, 1.0, traceback_at=0.9, last="covey.errors.Aborted: x: rank 1 has died")
        cause = ended(1, 1.2, code=3)
        self.assertEqual(self.first(blames, cause), 1)

    def test_who_blames_a_rank_that_did_not_fail_may_be_first(self) -> None:
        blames = ended(0, 1.0, traceback_at=0.9, last="covey.errors.Aborted: x: rank 2 has left")
        later = ended(1, 1.2, traceback_at=1.1, last="ValueError: rank 0 is odd")
        self.assertEqual(self.first(blames, later), 0)

    def test_who_was_ended_while_it_exited_of_an_exception_has_failed(self) -> None:
        blames = ended(1, 1.0, traceback_at=0.9, last="covey.errors.Aborted: x: rank 0 has left")
        cause = ended(0, 2.0, code=-15, traceback_at=0.5, last="ValueError: a")
        failed = report.as_failure(cause, [blames])
        assert failed is not None
        self.assertEqual((failed.shell_code, self.first(blames, failed)), (1, 0))
        self.assertIsNone(report.as_failure(cause, []), "nobody names it: it may have handled it")
        later = ended(0, 2.0, code=-15, traceback_at=1.5, last="KeyboardInterrupt")
        self.assertIsNone(report.as_failure(later, [blames]), "it was told to end by then")
        silent = ended(0, 2.0, code=-15)
        self.assertIsNone(report.as_failure(silent, [blames]))

    def test_a_users_exception_that_mentions_a_rank_is_no_consequence(self) -> None:
        mine = ended(0, 1.0, traceback_at=0.9, last="ValueError: rank 1 sent rubbish")
        self.assertFalse(report.is_consequence(mine, {0, 1}))


class SummaryTest(unittest.TestCase):
    def test_a_rank_that_left_and_ended_well_later_is_told(self) -> None:
        first = ended(2, 1.0, traceback_at=0.9, last="covey.errors.Aborted: x: rank 1 has left")
        lines = report.failure_summary(first, [], [], [], [0, 1])
        self.assertEqual(lines[-1], "rank 1, which it names, ended with exit code 0")
        self.assertNotIn(lines[-1], report.failure_summary(first, [], [], [1], [0]))


class ShownTest(unittest.TestCase):
    def test_text_of_other_nodes_steers_no_terminal(self) -> None:
        said = "\x1b[2J\x1b]0;title\x07 \u202egood\tÄ\r\x9b\n"
        wanted = "\\x1b[2J\\x1b]0;title\\x07 \\u202egood\tÄ\\r\\x9b\\n"
        self.assertEqual(shown(said), wanted)
        fields = {"rank": 1, "pid": 2, "code": 3, "tail": [said], "host": said}
        (end,) = node._of_report(json.dumps(fields), 0.0)
        self.assertEqual((list(end.stderr_tail), end.host), ([wanted], wanted))
        lost = {"text": said, "nodes": [{"first_rank": 0, "slots": 1, "process": 1, "host": said}]}
        (end,) = node._of_loss(lost, 0.0)
        self.assertEqual((end.lost, end.host), (wanted, wanted))

    def test_nobody_is_told_to_connect_to_everywhere(self) -> None:
        for host in ("0.0.0.0", "[::]"):
            said = node._invitation(f"{host}:29500", "secret")
            self.assertIn(f"{host} stands for every network of this machine", said)
            self.assertNotIn(f"--join {host}", said)
        said = node._invitation("10.0.0.1:29500", "secret")
        self.assertTrue(said.endswith("--join 10.0.0.1:29500 --secret-file secret"))


class TracebackTest(unittest.TestCase):
    def test_chains_are_kept_whole_and_earlier_ones_left_out(self) -> None:
        handled = [*TRACEBACK, "KeyError: handled and printed", "still going"]
        chain = [*TRACEBACK, "A: 1", "", "During handling of the above exception, another", ""]
        lines = [*handled, *chain, *TRACEBACK, "B: 2"]
        self.assertEqual(report.last_traceback(lines), [*chain, *TRACEBACK, "B: 2"])
        self.assertEqual(report.exception_line(report.last_traceback(lines)), "B: 2")

    def test_without_one_the_last_lines_are_shown(self) -> None:
        end = report.Exit(0, 1, -11, 0.0, None, [str(i) for i in range(50)])
        self.assertEqual(report.last_words(end), [str(i) for i in range(30, 50)])

    def test_a_long_one_is_cut_in_the_middle(self) -> None:
        tail = [TRACEBACK[0], *["  frame"] * 150, "E: x"]
        words = report.last_words(report.Exit(0, 1, 1, 0.0, 0.0, tail))
        self.assertLessEqual(len(words), report.MAX_TRACEBACK_LINES + 1)
        self.assertEqual((words[0], words[-1]), (TRACEBACK[0], "E: x"))

    def test_they_can_be_left_out(self) -> None:
        lines = ["before", *TRACEBACK, "KeyboardInterrupt", "saved"]
        self.assertEqual(report.without_tracebacks(lines), ["before", "saved"])

    def test_how_it_ended_in_words(self) -> None:
        self.assertEqual(report.Exit(0, 1, 3, 0.0, None, []).how(), "exit code 3")
        memory = report.Exit(0, 1, -9, 0.0, None, [], out_of_memory=True)
        self.assertEqual(memory.how(), "killed by SIGKILL (the kernel was out of memory)")
        self.assertEqual(memory.shell_code, 137)
        self.assertEqual(report.ranks_in_words([3, 1, 2]), "ranks 1, 2 and 3")


class EndingTest(unittest.TestCase):
    def test_every_plan_kills_within_two_seconds(self) -> None:
        plans = (endings.AFTER_FAILURE, endings.AFTER_INTERRUPT, endings.AFTER_TERMINATE)
        for plan in (*plans, endings.AT_ONCE):
            self.assertEqual(plan[-1].number, signal.SIGKILL)
            self.assertLess(plan[-1].at, 2.0)
            self.assertEqual([step.at for step in plan], sorted(step.at for step in plan))

    def test_hurry_brings_the_next_step_and_keeps_the_distances(self) -> None:
        ending = endings.Ending(endings.AFTER_INTERRUPT, 130, now=10.0)
        self.assertIsNone(ending.due(10.2))
        ending.hurry(10.3)
        self.assertEqual(ending.due(10.3), signal.SIGINT)
        self.assertIsNone(ending.due(10.3))
        self.assertAlmostEqual(ending.deadline(), 10.7)
        self.assertEqual(ending.due(12.0), signal.SIGTERM)
        self.assertEqual(ending.due(12.0), signal.SIGKILL)
        self.assertFalse(ending.given_up(12.0))
        self.assertTrue(ending.given_up(20.0))


class LineCutterTest(unittest.TestCase):
    def test_pieces_become_lines(self) -> None:
        cutter = output.LineCutter()
        self.assertEqual(cutter.feed(b"one\ntw", 1.0), [b"one"])
        self.assertEqual(cutter.deadline(), 1.0 + output.PARTIAL_LINE_S)
        self.assertEqual(cutter.feed(b"o\r\n\nthree\n", 1.1), [b"two", b"", b"three"])
        self.assertIsNone(cutter.deadline())

    def test_the_deadline_is_that_of_the_lines_beginning(self) -> None:
        cutter = output.LineCutter()
        cutter.feed(b"a", 1.0)
        cutter.feed(b"b", 1.1)
        self.assertEqual(cutter.deadline(), 1.0 + output.PARTIAL_LINE_S)
        cutter.feed(b"\nc", 1.2)
        self.assertEqual(cutter.deadline(), 1.2 + output.PARTIAL_LINE_S)

    def test_a_line_that_a_full_buffer_has_cut_is_waited_for(self) -> None:
        cutter = output.LineCutter()
        lines = cutter.feed(b"line\n" * output.BLOCK_BYTES + b"li", 1.0)
        self.assertEqual(len(lines), output.BLOCK_BYTES)
        self.assertEqual(cutter.deadline(), 1.0 + output.CUT_LINE_S)
        self.assertEqual(cutter.feed(b"ne\nprompt", 2.0), [b"line"])
        self.assertEqual(cutter.deadline(), 2.0 + output.PARTIAL_LINE_S)

    def test_the_end_of_a_line_shown_already_makes_no_empty_one(self) -> None:
        cutter = output.LineCutter()
        cutter.feed(b"loading", 1.0)
        self.assertEqual(cutter.flush(), [b"loading"])
        self.assertEqual(cutter.feed(b"\n\n", 2.0), [b""])

    def test_a_line_without_end_is_cut(self) -> None:
        cutter = output.LineCutter()
        size = output.MAX_PARTIAL_BYTES + 1
        self.assertEqual(cutter.feed(b"x" * size, 1.0), [b"x" * size])


class CommandTest(unittest.TestCase):
    def test_the_script_among_pythons_arguments(self) -> None:
        for arguments, script in (
            (["train.py", "-c"], "train.py"),
            (["-u", "-X", "dev", "-W", "error", "train.py"], "train.py"),
            (["-m", "pkg"], None),
            (["-c", "1", "x.py"], None),
            (["-um", "pkg"], None),
            (["-"], None),
            ([], None),
        ):
            self.assertEqual(check.python_script(arguments), script, arguments)

    def test_what_is_a_python(self) -> None:
        for name in ("python", "/usr/bin/python3", "python3.11", "pypy3"):
            self.assertTrue(check.is_python(name), name)
        for name in ("pythonista", "bash", "train.py", "ipython"):
            self.assertFalse(check.is_python(name), name)


class GpusTest(unittest.TestCase):
    def test_each_rank_sees_one_in_turn(self) -> None:
        fds = environment.Descriptors(3, 4)
        for listed, ranks, seen in (
            ("0,1", 3, ["0", "1", "0"]),
            ("GPU-4fa, 7 ,2", 2, ["GPU-4fa", "7"]),
            ("3,-1,5", 2, ["3", "3"]),
        ):
            gpus = environment.gpus_of({"CUDA_VISIBLE_DEVICES": listed})
            spec = JobSpec(command=["true"], size=ranks, gpus=gpus)
            made = [
                environment.rank_environment({}, spec, place, "job", fds)
                for place in hosts.places([ranks])
            ]
            self.assertEqual([env["CUDA_VISIBLE_DEVICES"] for env in made], seen)
        spec = JobSpec(command=["true"], size=1)
        env = environment.rank_environment({}, spec, hosts.places([1])[0], "job", fds)
        self.assertNotIn("CUDA_VISIBLE_DEVICES", env)

    def test_without_the_variable_the_driver_tells(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            for name in ("0000:17:00.0", "0000:65:00.0"):
                os.mkdir(os.path.join(folder, name))
            self.assertEqual(environment.gpus_of({}, folder), ["0", "1"])

    def test_a_machine_without_one_is_said(self) -> None:
        for base, why in (
            ({"CUDA_VISIBLE_DEVICES": ""}, "CUDA_VISIBLE_DEVICES= shows none"),
            ({"CUDA_VISIBLE_DEVICES": "-1"}, "CUDA_VISIBLE_DEVICES=-1 shows none"),
            ({}, "there is none in /nowhere"),
        ):
            with self.assertRaisesRegex(LaunchError, "--bind-gpus: this machine has no GPU") as e:
                environment.gpus_of(base, "/nowhere")
            self.assertIn(why, str(e.exception))


if __name__ == "__main__":
    unittest.main()
