"""Goal: strangers who attack the ports of a job on several hosts harm it in nothing, and cost each
of its processes little memory and no threads.
Method: examples/experiments/attacks_between_hosts.py on hosts of tools/cluster, for seconds only: a
rank exits with 0 if all its sums were done, and the script ends then."""

from __future__ import annotations

import re
import sys
import unittest

import cluster_tensors_test as tensors
from cluster_hosts_test import Hosts, has_tcp
from cluster_test import _LIMIT_S, _ROOT

_SCRIPT = str(_ROOT / "examples" / "experiments" / "attacks_between_hosts.py")
_SECONDS = "3"
_MOST_THREADS, _MOST_MIB = 64, 64  # Of a process; the memory beside that without an attack.
_ROW = r"(\w.*?) +formed in +[\d.]+ s +\d+ +\d+ steps/s +(\d+) threads +(\d+) MiB +(.*)"


@unittest.skipUnless(has_tcp(), "libcovey_tcp.so is not there")
class AttacksTest(Hosts):
    def test_a_job_is_unharmed_and_stays_small(self) -> None:
        with tensors.start("a", sys.executable, _SCRIPT, _SECONDS, env=self.env) as script:
            said = script.communicate(timeout=5 * _LIMIT_S)[0]
        self.assertEqual(script.returncode, 0, said)
        found = re.findall(_ROW, said)
        rows = {kind: (int(threads), int(mib)) for kind, threads, mib, _ in found}
        self.assertEqual(len(rows), 7, said)
        for kind, _, _, attacked in found:
            words = {"none": "^$", "another job's worker": "4 workers"}.get(
                kind, r"[1-9]\d* connections"
            )
            self.assertRegex(attacked, words, kind)
        for kind, (threads, mib) in rows.items():
            self.assertLessEqual(threads, _MOST_THREADS, kind)
            self.assertLessEqual(mib, rows["none"][1] + _MOST_MIB, kind)


if __name__ == "__main__":
    unittest.main()
