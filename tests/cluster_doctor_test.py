"""Goal: `covey doctor` finds on real hosts what would keep a job from starting, and says so before.
Method: hosts of tools/cluster with a cut way, a way that loses full packets, another version of
Covey, or a frozen host."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import unittest
from typing import List

from cluster_hosts_test import Hosts
from cluster_test import _CLUSTER, _LIMIT_S, _ROOT, need

_DOCTOR = shlex.join([sys.executable, "-m", "covey.cli", "doctor"])
_TOOLS = "PATH=$PATH:/usr/sbin:/sbin; "
# Packets from b that are longer than those of a tunnel, as where a router drops them in silence.
_HOLE = """nft -f - <<END
table inet hole {
  chain input {
    type filter hook input priority 0
    ip saddr 10.77.0.2 ip length > 1420 drop
  }
}
END"""
# In the place of Python on a host: its agent is of another version.
_OLD = """#!/bin/sh
echo '{"covey": "hello", "protocol": 1, "version": "0.0.9", "build": "x"}'
exec cat >/dev/null
"""


class DoctorTest(Hosts):
    def doctor(self, *words: str, status: int) -> List[str]:
        """Lines of the doctor on host a that are not ok, without the last."""
        said = self.shell(f"{_DOCTOR} {shlex.join(words)}", status)
        *lines, last = said.splitlines()
        self.assertTrue(last.startswith(f"A job would{' not' * status} start"), said)
        return [line for line in lines if not line.startswith(("ok ", "note ", "warning "))]

    def shell(self, command: str, status: int = 0) -> str:
        words = [sys.executable, _CLUSTER, "exec", "a", "sh", "-c", command]
        ran = subprocess.run(words, env=self.env, timeout=_LIMIT_S, capture_output=True, text=True,
                             stdin=subprocess.DEVNULL, check=False)
        self.assertEqual((ran.returncode, ran.stderr), (status, ""), ran.stdout)
        return ran.stdout

    def test_all_is_well(self) -> None:
        said = self.shell(f"{_DOCTOR} -H a:1,b:1,c:1")
        for text in (
            "hosts      3 of 3 answer: a, b, c",
            "names      9 of 9 are resolved",
            "network    a 10.77.0.1 (eth0), b 10.77.0.2 (eth0), c 10.77.0.3 (eth0)",
            "ports      6 of 6 ways between hosts are open",
            "packets    6 of 6 ways take packets of 1500 bytes",
            "security   tls: ",
        ):
            self.assertIn(f"ok       {text}", said)
        self.assertEqual(said.splitlines()[-1], "A job would start.")

    def test_a_cut_way(self) -> None:
        need("--loss, cut")
        self.do("fault", "cut", "b", "--to", "c")
        self.addCleanup(self.do, "fault", "heal", "all")
        lines = self.doctor("-H", "a,b,c", status=1)
        self.assertEqual(len(lines), 2, lines)
        self.assertRegex(lines[0], r"ports +b cannot reach c at 10\.77\.0\.3:\d+ \(no answer with")
        self.assertRegex(lines[1], r"ports +c cannot reach b at 10\.77\.0\.2:\d+ .*--network")

    @unittest.skipIf(os.geteuid(), "only root filters packets within a host")
    def test_a_way_that_loses_full_packets(self) -> None:
        need("--loss, cut")
        single = f"{_TOOLS} ip link set dev eth0 gso_max_segs 1"
        self.do("exec", "b", "sh", "-c", single)  # Else a filter sees many packets as one.
        self.do("exec", "c", "sh", "-c", _TOOLS + _HOLE)
        self.addCleanup(self.do, "exec", "c", "sh", "-c", f"{_TOOLS} nft delete table inet hole")
        (line,) = self.doctor("-H", "a,b,c", status=1)
        self.assertIn("b to c: packets of 1500 bytes are lost on the way, those of 1400 arr", line)
        self.assertIn("set the MTU of eth0 on b and eth0 on c to 1400", line)

    def test_another_version(self) -> None:
        path = "/dev/shm/python"
        for host, text in (("b", _OLD), ("c", f'#!/bin/sh\nexec {sys.executable} "$@"\n')):
            write = f"printf %s {shlex.quote(text)} >{path}; chmod +x {path}"
            self.do("exec", host, "sh", "-c", write)
        (line,) = self.doctor("-H", "a,b,c", "--remote-python", path, status=1)
        self.assertIn("hosts      b: Covey's version is 0.0.9 there and", line)

    def test_a_frozen_host_is_given_up_and_named(self) -> None:
        self.do("fault", "freeze", "b")
        self.addCleanup(self.do, "fault", "thaw", "b")
        lines = self.doctor("-H", "b", "--start-timeout", "1", status=1)
        self.assertEqual(lines, ["failed   hosts  b: no answer within 1 s (--start-timeout)"])

    def test_the_transcript_of_the_guide_is_true(self) -> None:
        need("--loss, cut")
        guide = (_ROOT / "examples" / "guide" / "clusters.md").read_text(encoding="utf-8")
        (transcript,) = re.findall(r"^\$ (covey doctor .*\n(?:.|\n)*?)^```", guide, re.M)
        self.do("fault", "cut", "b", "--to", "c")
        self.addCleanup(self.do, "fault", "heal", "all")
        command, _, wanted = transcript.partition("\n")
        said = self.shell(command.replace("covey doctor", _DOCTOR))
        self.assertEqual(re.sub(r":\d{4,5} ", ":4711 ", said), wanted)


if __name__ == "__main__":
    unittest.main()
