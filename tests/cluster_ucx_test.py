"""Goal: jobs on several hosts over UCX: every operation and method is right, a killed rank is
named, and where UCX may not be used every rank says why.
Method: hosts of tools/cluster, whose network is declared trusted, as they have no RDMA;
`covey build ucx` makes the plug-in for the test."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import unittest

from cluster_hosts_test import has_tcp
from cluster_tensors_test import OPERATIONS, TRAINING, Tensors

_BUILD = "import sys; from covey.cli import main; sys.exit(main(['build', 'ucx', *sys.argv[1:]]))"
_NETWORK = "10.77.0.0/16"

# The plug-in is what carries the tensors.
_OVER_UCX = """
maps = open("/proc/self/maps").read()
assert "libucp" in maps, "UCX is not loaded"
"""

KILLED = """
import os, signal, covey, numpy
covey.init()
try:
    while True:
        covey.allreduce(numpy.ones(1 << 20), name="x")
        if covey.rank() == 2:
            os.kill(os.getpid(), signal.SIGKILL)
except covey.OperationError as error:
    print(f"said {covey.rank()}: {error}", flush=True)
"""

REFUSED = """
import os, covey
try:
    covey.init()
except covey.Unsupported as error:
    print(f"said {os.environ['RANK']}: {error}", flush=True)
"""


def _has_ucx() -> bool:
    compiles = ["g++", "-E", "-x", "c++", "-"]
    done = subprocess.run(compiles, input="#include <ucp/api/ucp.h>\n", capture_output=True,
                          text=True, check=False)
    return done.returncode == 0


class UcxTest(Tensors):
    """Jobs of coveyrun."""

    @classmethod
    def setUpClass(cls) -> None:
        if not _has_ucx() or not has_tcp():
            raise unittest.SkipTest("there is no UCX with headers (libucx-dev), or no tcp")
        super().setUpClass()
        cls.folder = tempfile.mkdtemp()
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        if not hasattr(cls, "env"):
            return  # Each test is skipped.
        command = [sys.executable, "-c", _BUILD, "--out", cls.folder]
        made = subprocess.run(command, env=cls.env, capture_output=True, text=True, check=False)
        assert made.returncode == 0, made.stdout + made.stderr

    def said(self, code: str, hosts: str, **more: str) -> str:
        """What a job prints that ends well."""
        env = {"COVEY_PLUGIN_PATH": self.folder, **more}
        with self.job("-H", hosts, *self.python_of(code), **env) as job:
            status, said = job.finish()
        self.assertEqual(status, 0, said)
        return said

    def fine(self, code: str, hosts: str, size: int) -> None:
        said = self.said(code + _OVER_UCX, hosts, COVEY_TRANSPORT="ucx",
                         COVEY_TRUST_NETWORK=_NETWORK)
        self.check_fine(said + "\n", size)

    def test_operations_of_two_and_two(self) -> None:
        self.fine(OPERATIONS, "a:2,b:2", 4)

    def test_operations_of_three_and_one(self) -> None:
        self.fine(OPERATIONS, "a:3,b:1", 4)

    def test_methods(self) -> None:
        self.fine(TRAINING, "a:2,b,c", 4)

    def test_a_killed_rank_is_named(self) -> None:
        env = {"COVEY_PLUGIN_PATH": self.folder, "COVEY_TRANSPORT": "ucx",
               "COVEY_TRUST_NETWORK": "yes"}
        arguments = ["-H", "a:2,b,c", "--keep-going", *self.python_of(KILLED)]
        with self.job(*arguments, **env) as job:
            said = job.finish()[1]
        for rank in (0, 1, 3):
            self.assertRegex(said, rf"said {rank}: .*rank 2 has (died|gone)")

    def test_every_rank_says_why_not(self) -> None:
        if os.path.exists("/sys/class/infiniband") and os.listdir("/sys/class/infiniband"):
            self.skipTest("this machine has RDMA")
        said = self.said(REFUSED, "a:2,b", COVEY_TRANSPORT="ucx",
                         COVEY_TRUST_NETWORK="192.0.2.0/24")
        for rank in range(3):
            self.assertRegex(said, rf"said {rank}: rank 0: transport ucx: this host has no "
                             r"InfiniBand or RoCE device that is up, and the network of its "
                             r"address 10\.77\.0\.1 is not declared trusted")

    def test_auto_takes_tcp_and_says_why_once(self) -> None:
        said = self.said(OPERATIONS, "a,b", COVEY_TRUST_NETWORK=_NETWORK)
        self.assertEqual(said.count("tensors travel between hosts by tcp, not by the plug-in ucx"),
                         1, said)

    def test_a_host_without_the_plug_in_is_named(self) -> None:
        code = "import os\nif os.environ['RANK'] == '1': del os.environ['COVEY_PLUGIN_PATH']\n"
        said = self.said(code + REFUSED, "a,b", COVEY_TRANSPORT="ucx",
                         COVEY_TRUST_NETWORK=_NETWORK)
        for rank in range(2):
            self.assertRegex(said, rf"said {rank}: rank 1: transport ucx: the plug-in "
                             r"libcovey_ucx\.so is in none of the places looked at")


if __name__ == "__main__":
    unittest.main()
