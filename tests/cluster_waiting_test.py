"""Goal: `covey bench waiting -H` asks its questions of several hosts, takes the link of the last
one down for a while, and puts it up again. Method: hosts of tools/cluster; the smallest effort. No
figure is judged."""

from __future__ import annotations

import json
import pathlib
import sys
import tempfile
import unittest

from cluster_hosts_test import Hosts, has_tcp
from cluster_tensors_test import start

_BENCH_LIMIT_S = 600
_METHODS = ["allreduce", "eager", "wagma", "diloco", "adpsgd", "swarm"]


@unittest.skipUnless(has_tcp(), "libcovey_tcp.so is not there")
class WaitingTest(Hosts):
    def test_every_question_is_answered(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            words = ["bench", "waiting", "-H", "a,b,c", "--small", "--out", folder]
            command = [sys.executable, "-m", "covey", *words]
            bench = start("a", *command, env=self.env)
            said = bench.communicate(timeout=_BENCH_LIMIT_S)[0]
            self.assertEqual(bench.returncode, 0, said)
            text = pathlib.Path(folder, "waiting.json").read_text(encoding="utf-8")
        panels = json.loads(text)["panels"]
        names = [[line["name"] for line in panel["lines"]] for panel in panels]
        random = [name for name in _METHODS if name != "diloco"]
        self.assertEqual(names, [_METHODS] * 3 + [random] + [_METHODS] * 3)
        for panel in panels:
            self.assertIn(panel["title"], said)
        self.assertIn("host c unplugged for 0.2 s", panels[4]["title"])
        for line in panels[4]["lines"]:
            self.assertEqual(line["raw"]["faulty"], [2])
            steps = [len(rank["lengths"]) for rank in line["raw"]["ranks"]]
            self.assertEqual((len(steps), min(steps) > 0), (3, True))
        stopped = panels[0]["lines"][0]["raw"]["ranks"]
        self.assertEqual(len({len(rank["lengths"]) for rank in stopped}), 1)  # allreduce
        self.assertIn("state UP", self.do("exec", "c", "ip", "link", "show", "eth0"))


if __name__ == "__main__":
    unittest.main()
