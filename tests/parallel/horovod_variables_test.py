"""Goal: a saved command of horovodrun and its HOROVOD_* variables do here what can be done, and
what cannot is said. Method: the table against the lists of Horovod 0.28.1; a job prints what its
ranks get."""

from __future__ import annotations

import contextlib
import io
import re
import sys
import tempfile
import unittest
from typing import Dict

from harness import run_launcher

import covey
from covey.as_horovod import variables
from covey.as_horovod.variables import Given, take
from covey.cli import horovod, run_command
from covey.launch.spec import LaunchError
from tools.reference import symbols

_SHOW = "import os; print(*(f'{k}={v}' for k, v in sorted(os.environ.items()) if 'COVEY_' in k))"


def mapped(given: Dict[str, str], environ: Dict[str, str] = {}) -> Dict[str, str]:
    return take([Given(name, name, text) for name, text in given.items()], environ).mapped


class TableTest(unittest.TestCase):
    def test_every_variable_and_every_flag_of_horovod_has_a_fate(self) -> None:
        known = {*variables.VARIABLES, *variables.PLACES}
        self.assertGreaterEqual(len(symbols.variables()), 36)
        self.assertEqual(set(symbols.variables()) - known, set())
        parser = run_command.make_parser("coveyrun")
        flags = {*parser._option_string_actions, *horovod.REFUSED}
        self.assertGreaterEqual(len(symbols.flags()), 71)
        self.assertEqual(set(symbols.flags()) - flags, set())
        for flag in horovod.FLAGS:
            self.assertIn(horovod.variable_of(flag), variables.VARIABLES)

    def test_what_a_variable_becomes_is_there(self) -> None:
        knobs = {f"COVEY_{knob['name'].upper()}" for knob in covey.knobs()}
        flags = run_command.make_parser("coveyrun")._option_string_actions
        for name, one in variables.VARIABLES.items():
            self.assertIn(one.fate, (variables.MAPPED, variables.IGNORED, variables.REFUSED))
            if one.fate == variables.MAPPED:
                self.assertTrue(one.told in knobs or one.told in flags, name)

    def test_values_get_covey_s_units(self) -> None:
        for name, text, wanted in (
            ("TIMELINE", "trace/t.json", {"--timeline": "trace/t"}),
            ("TIMELINE", "DYNAMIC", {}),
            ("FUSION_THRESHOLD", "0", {"COVEY_FUSION_THRESHOLD": "0"}),
            ("STALL_CHECK_TIME_SECONDS", "7", {"COVEY_STALL_WARNING": "7s"}),
            ("STALL_CHECK_TIME_SECONDS", "0", {"COVEY_STALL_WARNING": "86400s"}),
            ("STALL_CHECK_DISABLE", "1", {"COVEY_STALL_WARNING": "86400s"}),
            ("STALL_CHECK_DISABLE", "0", {}),
            ("LOG_LEVEL", "FATAL", {"COVEY_LOG_LEVEL": "error"}),
            ("START_TIMEOUT", "600", {"COVEY_START_TIMEOUT": "600s"}),
            ("GLOO_IFACE", "eth1", {"--network": "eth1"}),
            ("ELASTIC", "0", {}),
            ("STALL_SHUTDOWN_TIME_SECONDS", "0", {}),
        ):
            self.assertEqual(mapped({f"HOROVOD_{name}": text}), wanted, (name, text))

    def test_covey_s_own_variable_wins(self) -> None:
        given = {"HOROVOD_FUSION_THRESHOLD": "5", "HOROVOD_TIMELINE": "t.json"}
        self.assertEqual(
            mapped(given, {"COVEY_FUSION_THRESHOLD": "1MiB", "COVEY_TIMELINE": "x"}), {}
        )

    def test_refusals_and_wrong_values_say_why(self) -> None:
        for name, text, why in (
            ("ELASTIC", "1", "--min-np"),
            ("STALL_SHUTDOWN_TIME_SECONDS", "60", "max_wait"),
            ("LOG_LEVEL", "LOUD", "'LOUD' is no value of it"),
            ("FUSION_THRESHOLD", "many", "'many' is no value of it"),
        ):
            with self.assertRaisesRegex(LaunchError, f"HOROVOD_{name}: .*{re.escape(why)}"):
                mapped({f"HOROVOD_{name}": text})

    def test_lines_name_what_is_ignored_once_for_each_reason(self) -> None:
        names = ["HOROVOD_CYCLE_TIME", "HOROVOD_AUTOTUNE", "HOROVOD_TIMELINE_MARK_CYCLES"]
        lines = take([Given(name, name, "1") for name in names], {}).lines
        self.assertEqual(len(lines), 2)
        self.assertIn(f"{names[0]}, {names[2]} are ignored: there is no cycle", lines)
        (line,) = take([Given("HOROVOD_FUSION_TRESHOLD", "HOROVOD_FUSION_TRESHOLD", "1")], {}).lines
        self.assertIn("did you mean HOROVOD_FUSION_THRESHOLD?", line)
        ranks = {name: "1" for name in variables.PLACES}
        self.assertEqual(variables.in_environment({**ranks, "COVEY_RANK": "1"}), [])


class LauncherTest(unittest.TestCase):
    def test_a_command_of_horovodrun_starts(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            options = ["-np", "2", "--gloo", "--fusion-threshold-mb", "32", "--cycle-time-ms", "2"]
            options += ["--timeline-filename", f"{folder}/trace.json", "--no-stall-check"]
            env = {"HOROVOD_LOG_LEVEL": "info", "HOROVOD_GPU_OPERATIONS": "NCCL"}
            code, out, err = run_launcher([*options, sys.executable, "-c", _SHOW], env=env)
            self.assertEqual(code, 0, err)
            shown = [line for line in out if "COVEY_RANK" in line]
            self.assertEqual(len(shown), 2, out)
            for word in (
                "COVEY_FUSION_THRESHOLD=33554432",
                f"COVEY_TIMELINE={folder}/trace",
                "COVEY_STALL_WARNING=86400s",
                "COVEY_LOG_LEVEL=info",
            ):
                self.assertTrue(all(word in line for line in shown), word)
        said = "\n".join(err)
        for line in ("--cycle-time-ms is ignored: there is no cycle", "--gloo is ignored: "):
            self.assertEqual(said.count(line), 1, said)

    def test_a_flag_takes_a_value_or_none_as_horovodrun_s(self) -> None:
        parser = run_command.make_parser("coveyrun")
        for flag in horovod.FLAGS:
            words = [flag.name] if flag.value is not None else [flag.name, "1"]
            (given,) = parser.parse_args(["-np", "1", *words, "true"]).given
            self.assertEqual((given.said, given.variable), (flag.name, horovod.variable_of(flag)))
        with self.assertRaises(SystemExit), contextlib.redirect_stderr(io.StringIO()) as said:
            parser.parse_args(["-np", "1", "--fusion-threshold-mb", "large", "true"])
        self.assertIn("--fusion-threshold-mb: large is not a number", said.getvalue())


if __name__ == "__main__":
    unittest.main()
