"""Goal: what every run of the tests tries of jobs on several hosts: a start by ssh, every operation
over TCP in two levels, and the end of a job whose host is lost. The rest of cluster_*_test.py takes
`tools/test --cluster`. Method: one cluster of tools/cluster."""

from __future__ import annotations

import unittest

import cluster_hosts_test as hosts
import cluster_tensors_test as tensors


@unittest.skipUnless(hosts.has_tcp(), "libcovey_tcp.so is not there")
class SmallTest(tensors.Tcp, hosts.Faults):
    def test_operations_of_two_and_two(self) -> None:
        self.fine(tensors.OPERATIONS, "a:2,b:2", 4)

    def test_an_unplugged_host(self) -> None:
        self.lose("unplug", "(nothing was heard of it|ssh ended)")
        # Its own processes have ended too, without a link: `job` has waited for that.
        self.do("fault", "plug", "c")


if __name__ == "__main__":
    unittest.main()
