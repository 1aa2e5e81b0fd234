"""Goal: files of tests that run in forks of one process are counted, named and ended as if each ran
alone. Method: tests/together.py runs small files that pass, fail, end, hang and leave processes;
tools/count_tests.py reads its report."""

from __future__ import annotations

import contextlib
import io
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import textwrap
import unittest
from typing import List, Tuple

from tools import count_tests

_HERE = pathlib.Path(__file__).absolute().parent
_MAIN = "import sys, together; sys.exit(together.main(sys.argv[2:], float(sys.argv[1])))"
_LONG = "300"

_PASSES = """
    import os, sys, threading, unittest
    class ATest(unittest.TestCase):
        def test_alone(self):
            self.assertEqual(threading.active_count(), 1)
            self.assertNotIn("MARK", os.environ)
            self.assertNotIn("mark", sys.modules)
            os.environ["MARK"] = "1"
            sys.modules["mark"] = sys
            print("a word of it")
        @unittest.skip("no card")
        def test_skipped(self): pass
"""
_FAILS = """
    import unittest
    class ATest(unittest.TestCase):
        def test_good(self): pass
        def test_bad(self): self.assertEqual("<&", "one of these")
"""
_ENDS = """
    import os, unittest
    class ATest(unittest.TestCase):
        def test_end(self): os._exit(0)
"""
_HANGS = """
    import threading, unittest
    class ATest(unittest.TestCase):
        def test_hang(self): threading.Event().wait()
"""
_LEAVES = """
    import os, signal, subprocess, unittest
    class ATest(unittest.TestCase):
        def test_start(self):
            child = subprocess.Popen(["sleep", "3600"], start_new_session=True)
            with open("left", "w") as file: file.write(str(child.pid))
            child.returncode = 0  # Else Python complains.
"""


class TogetherTest(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        (self.folder / "tests").mkdir()

    def run_together(self, limit: str, **files: str) -> Tuple[int, str]:
        """Runs texts by name. Returns the code and the output."""
        paths = []
        for name, text in files.items():
            paths.append(f"tests/{name}_test.py")
            (self.folder / paths[-1]).write_text(textwrap.dedent(text), encoding="utf-8")
        env = {
            **{name: text for name, text in os.environ.items() if not name.startswith("TEST_")},
            "PYTHONPATH": str(_HERE),
            "XML_OUTPUT_FILE": str(self.folder / "test.xml"),
        }
        ended = subprocess.run(
            [sys.executable, "-c", _MAIN, limit, "none", *paths],
            cwd=self.folder,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        return ended.returncode, ended.stdout

    def counted(self, status: str) -> List[str]:
        """The words of tools/test on the report."""
        label = "//tests:group"
        uri = (self.folder / "test.xml").as_uri()
        result = {
            "testAttemptDurationMillis": 1000,
            "testActionOutput": [{"name": "test.xml", "uri": uri}],
        }
        lines = [
            {"id": {"testResult": {"label": label}}, "testResult": result},
            {"id": {"testSummary": {"label": label}}, "testSummary": {"overallStatus": status}},
        ]
        events = self.folder / "events.json"
        events.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            count_tests.main(str(events))
        return said.getvalue().splitlines()

    def test_each_has_a_process_of_its_own(self) -> None:
        code, text = self.run_together(_LONG, one=_PASSES, two=_PASSES)
        self.assertEqual(code, 0, text)
        self.assertEqual(text.count("passed,"), 2, text)
        self.assertNotIn("a word of it", text)  # The report has the log.
        self.assertEqual((self.folder / "test.xml").read_text("utf-8").count("a word of it"), 2)
        said = self.counted("PASSED")
        self.assertEqual(said[-1], "2 passed, 0 failed, 2 skipped")
        self.assertIn("2 targets", said[0])
        self.assertTrue(any(line.endswith(" //tests:two_test") for line in said), said)

    def test_what_fails_is_named_and_the_others_run(self) -> None:
        code, text = self.run_together(_LONG, one=_FAILS, two=_ENDS, three=_PASSES)
        self.assertEqual(code, 1, text)
        self.assertIn("'<&' != 'one of these'", text)
        self.assertIn("two_test.py has written no report", text)
        self.assertNotIn("a word of it", text)
        said = self.counted("FAILED")
        self.assertEqual(said[-1], "2 passed, 2 failed, 1 skipped")
        bad = ["failed: //tests:group", "  failed: //tests:one_test", "  failed: //tests:two_test"]
        self.assertEqual(said[-4:-1], bad)

    def test_a_file_that_does_not_load_has_failed(self) -> None:
        code, text = self.run_together(_LONG, one="import no_such_module", two="")
        self.assertEqual(code, 1, text)
        self.assertIn("No module named 'no_such_module'", text)
        self.assertIn("two_test.py holds no test", text)
        self.assertEqual(self.counted("FAILED")[-1], "0 passed, 2 failed")

    def test_a_file_that_hangs_is_ended_where_it_is(self) -> None:
        code, text = self.run_together("4", one=_HANGS, two=_HANGS)
        self.assertEqual(code, 1, text)
        for name in ("one", "two"):
            self.assertIn(f"{name}_test.py took longer than its 4 s", text)
        self.assertIn("in test_hang", text)
        self.assertEqual(self.counted("FAILED")[-1], "0 passed, 2 failed")

    def test_what_a_file_leaves_running_is_killed(self) -> None:
        code, text = self.run_together(_LONG, one=_LEAVES)
        self.assertEqual(code, 0, text)
        left = (self.folder / "left").read_text("ascii")
        self.assertFalse(pathlib.Path(f"/proc/{left}").exists(), text)
