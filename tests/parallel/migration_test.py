"""Goal: the guide's tables for those who come from Horovod and from torch.distributed are right.
Method: jobs of two ranks run each column as a script, and every call of torch.distributed."""

from __future__ import annotations

import importlib.util
import json
import pathlib
import sys
import tempfile
import unittest
from typing import Any, Dict, List

from harness import preload, run_launcher

from tools.reference import c10d, migration

preload("torch")

# Runs scripts that it is given as [name, [line, ...]], and says by name which line has failed.
# Their objects stay until the process is gone: a group of Gloo whose last reference goes holds
# Python's lock while it waits for its threads, and one of these may want that lock.
_RUNNER = """
import json, os, sys
places = []
for name, begin, each, lines in json.loads(open(sys.argv[1]).read()):
    place = {"__name__": name}
    places.append(place)
    exec(begin, place)
    for label, line, is_refused in lines:
        exec(each, place)
        try:
            exec(line, place)
            outcome = "passed"
        except Exception as error:
            outcome = f"raised {type(error).__name__}: {error}"
        if outcome.startswith("raised") != is_refused:
            print(f"BAD {name} {label}: {line}: {outcome}", flush=True)
    print("ran", name, flush=True)
os._exit(0)
"""


def column(name: str, rows: Any, side: str) -> List[Any]:
    lines = [[row.purpose, getattr(row, side), False] for row in rows]
    return [name, migration.BEGIN, "", lines]


def columns(rows: Any) -> List[Any]:
    return [column(side, rows, side) for side in ("before", "after")]


class MigrationTest(unittest.TestCase):
    def check(self, scripts: List[Any]) -> None:
        """Two ranks run the scripts, one after the other; no line fails that should not."""
        with tempfile.TemporaryDirectory() as folder:
            given, runner = pathlib.Path(folder, "scripts.json"), pathlib.Path(folder, "run.py")
            given.write_text(json.dumps(scripts), encoding="utf-8")
            runner.write_text(_RUNNER, encoding="utf-8")
            command = [sys.executable, str(runner), str(given)]
            code, out, err = run_launcher(["-np", "2", "--as-horovod", *command])
        self.assertEqual([line for line in out if "BAD" in line], [])
        self.assertEqual(code, 0, err)
        for name, *_ in scripts:
            self.assertEqual(len([line for line in out if line.endswith(f"ran {name}")]), 2, out)

    def test_from_horovod(self) -> None:
        self.check(columns(migration.HOROVOD))

    def test_from_ddp(self) -> None:
        self.check(columns(migration.DDP))

    def test_torch_distributed(self) -> None:
        rows = [[row.name, row.call, row.answer == "no"] for row in c10d.rows()[1:]]
        self.check([["torch.distributed", c10d.BEGIN, c10d.EACH, rows]])

    def test_a_row_that_fails_is_named(self) -> None:
        wrong = [migration.Row("wrong", "", "hvd.no_such_name()")]
        with self.assertRaisesRegex(AssertionError, "BAD after wrong: hvd.no_such_name"):
            self.check([column("after", [*migration.HOROVOD[:2], *wrong], "after")])

    @unittest.skipIf(importlib.util.find_spec("torch") is None, "torch is not installed")
    def test_the_table_of_torch_distributed_has_all_functions(self) -> None:
        import torch.distributed.distributed_c10d as theirs

        functions = {name for name in theirs.__all__ if callable(getattr(theirs, name))}
        functions = {name for name in functions if name[0].islower()} - {"group"}
        known: Dict[str, c10d.Row] = c10d.table()
        self.assertEqual(functions - set(known) - set(c10d.OF_TORCH), set(), c10d.__file__)


if __name__ == "__main__":
    unittest.main()
