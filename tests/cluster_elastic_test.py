"""Goal: an elastic job goes on when a host of it is out of reach, and takes it in again. Method:
hosts of tools/cluster, each with a network, memory and processes of its own."""

from __future__ import annotations

import pathlib
import re
import tempfile
import unittest
from typing import List

import cluster_hosts_test as hosts
from parallel import elastic_program


@unittest.skipUnless(hosts.has_tcp(), "libcovey_tcp.so is not there")
class ElasticTest(hosts.Hosts):
    def places(self, job: hosts.Job, size: int, worlds: int = 1) -> List[str]:
        """The hosts of the ranks, when all are in so many worlds of that size."""
        found = job.wait_for(rf"is (\d+) of {size}, on (\w+)", size * worlds)
        last = sorted((int(it[1]), it[2]) for it in found[-size:])
        self.assertEqual([rank for rank, _ in last], list(range(size)))
        return [host for _, host in last]

    def test_an_unplugged_host_comes_back(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            words = ["-H", "a:1,b:2,c:1", "--min-np", "2"]
            code = self.python_of(elastic_program.TRAINS, folder)
            with self.job(*words, *code, COVEY_LEASE="3s") as job:
                self.assertEqual(self.places(job, 4), ["a", "b", "b", "c"])
                self.do("fault", "unplug", "b")
                self.assertEqual(self.places(job, 2), ["a", "c"])
                self.do("fault", "plug", "b")
                self.assertEqual(self.places(job, 4, worlds=2), ["a", "c", "b", "b"])
                pathlib.Path(folder, "end").touch()
                status, said = job.finish()
        self.assertEqual(status, 0, said)
        ends = sorted(re.findall(r"\] (end .*)", said))
        self.assertEqual(ends, [f"end {rank} of 4: 1" for rank in range(4)])
        self.assertIn("host b is lost, and with it ranks 1 and 2", said)
        self.assertIn("host b has come, with room for 2 ranks", said)


if __name__ == "__main__":
    unittest.main()
