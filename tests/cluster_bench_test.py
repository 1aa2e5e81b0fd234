"""Goal: `covey bench waiting -H` asks its questions of several hosts, takes the link of the last
one down for a while, and puts it up again; `covey bench allreduce -H` and others measure between
hosts beside Gloo. Method: hosts of tools/cluster; the smallest effort. No figure is judged."""

from __future__ import annotations

import json
import pathlib
import sys
import tempfile
import unittest
from typing import Any, Dict, Tuple

from cluster_hosts_test import Hosts, has_tcp
from cluster_tensors_test import start

_BENCH_LIMIT_S = 600
_METHODS = ["allreduce", "eager", "wagma", "diloco", "adpsgd", "swarm"]


@unittest.skipUnless(has_tcp(), "libcovey_tcp.so is not there")
class BenchTest(Hosts):
    def bench(self, kind: str, *options: str) -> Tuple[str, Dict[str, Any]]:
        """(stdout, what is in the file) of `covey bench KIND OPTION...`, on host a."""
        with tempfile.TemporaryDirectory() as folder:
            words = ["bench", kind, "--small", "--out", folder, *options]
            bench = start("a", sys.executable, "-m", "covey", *words, env=self.env)
            said = bench.communicate(timeout=_BENCH_LIMIT_S)[0]
            self.assertEqual(bench.returncode, 0, said)
            text = pathlib.Path(folder, kind + ".json").read_text(encoding="utf-8")
        return said, json.loads(text)

    def test_sums_beside_gloo(self) -> None:
        words = ["--sizes", "8,1MiB", "--network-security", "auth", "--rounds", "1"]
        said, found = self.bench("allreduce", "-H", "a:2,b", *words)
        self.assertEqual((found["ranks"], found["hosts"]), (3, "a:2,b"))
        self.assertEqual([row["size_bytes"] for row in found["rows"]], [8, 1 << 20])
        names = ["covey", "covey arena", "covey, C", "covey arena, C", "gloo"]
        for row in found["rows"]:
            self.assertEqual(list(row["contestants"]), names)
            self.assertGreater(min(one["min_us"] for one in row["contestants"].values()), 0)
        self.assertIn("3 ranks on a:2,b (auth;", said)

    def test_steps_beside_ddp(self) -> None:
        said, found = self.bench("step", "-H", "a,b", "--vs", "ddp", "--rounds", "1")
        self.assertIn("ddp, net", found["rows"][0]["contestants"])
        self.assertIn("2 ranks on a,b (tls;", said)

    def test_waiting_answers_every_question(self) -> None:
        said, found = self.bench("waiting", "-H", "a,b,c")
        panels = found["panels"]
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
