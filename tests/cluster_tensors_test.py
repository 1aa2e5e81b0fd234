"""Goal: every operation and the methods of several hosts are right between hosts that share nothing
but a network: two and two ranks, three and one, one each; over TCP, encrypted or not, and over MPI.
Method: hosts of tools/cluster; jobs of coveyrun -H, of torchrun, and of mpirun if there is one."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import textwrap
import unittest
from typing import Dict, List

from cluster_hosts_test import Hosts
from cluster_test import _CLUSTER, _LIMIT_S, cluster
from parallel.operations import EVERY_OPERATION

_BUILD = "import sys; from covey.cli import main; sys.exit(main(['build', 'mpi', *sys.argv[1:]]))"

OPERATIONS = """
import os, covey
covey.init()
here = os.environ.get("LOCAL_WORLD_SIZE") or os.environ["OMPI_COMM_WORLD_LOCAL_SIZE"]
assert covey.local_size() == int(here), (covey.local_size(), here)
""" + textwrap.dedent(EVERY_OPERATION)

# Gradients are large enough for the schedule of two levels.
_TRAINING = """
import torch, covey.torch as hvd
torch.set_num_threads(1)
hvd.init()
rank, size = hvd.rank(), hvd.size()
for method in METHODS.split():
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(200, 100), torch.nn.ReLU(), torch.nn.Linear(100, 3))
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(net.parameters(), lr=0.01), model=net, method=method)
    data = [torch.randn(8, 200, generator=torch.Generator().manual_seed(r)) for r in range(size)]
    def loss():
        return sum(net(part).square().mean() for part in data).item()
    before = loss()
    for step in range(STEPS):
        optimizer.zero_grad()
        net(data[rank]).square().mean().backward()
        optimizer.step()
    optimizer.finish()
    hvd.check_replicas(net)
    assert loss() < 0.9 * before, (method, before, loss())
print(f"fine {rank}", flush=True)
"""


def training(methods: str, steps: int) -> str:
    """A program that trains by each method, in which the loss of all ranks must fall."""
    return f"METHODS, STEPS = {methods!r}, {steps}\n{_TRAINING}"


TRAINING = training(
    "allreduce allreduce:codec=int8 eager:admit=all local:local_steps=2 dpsgd "
    "diloco:local_steps=2 local:local_steps=2,warmup_steps=2,then=allreduce@4",
    6,
)


def start(host: str, *command: str, env: Dict[str, str]) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, _CLUSTER, "exec", host, *command], env=env, text=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


class Tensors(Hosts):
    def check_fine(self, said: str, size: int) -> None:
        for rank in range(size):
            self.assertEqual(said.count(f"fine {rank}\n"), 1, said)


class Tcp(Tensors):
    """Jobs of coveyrun."""

    def fine(self, code: str, hosts: str, size: int, *more: str) -> None:
        status, said = self.run_job("-H", hosts, *more, *self.python_of(code))
        self.assertEqual(status, 0, said)
        self.check_fine(said + "\n", size)


class TcpTest(Tcp):
    def test_operations_of_three_and_one_without_encryption(self) -> None:
        self.fine(OPERATIONS, "a:3,b:1", 4, "--network-security", "auth")

    def test_operations_of_one_each(self) -> None:
        self.fine(OPERATIONS, "a,b,c", 3)

    def test_methods(self) -> None:
        self.fine(TRAINING, "a:2,b,c", 4)


class TorchrunTest(Tensors):
    """Jobs of one torchrun on each host."""

    def test_operations_and_methods(self) -> None:
        for code in (OPERATIONS, TRAINING):
            with tempfile.NamedTemporaryFile("w", suffix=".py") as script:
                script.write(code)
                script.flush()
                self.check_nodes(script.name)

    def check_nodes(self, script: str) -> None:
        command = [sys.executable, "-m", "torch.distributed.run", "--nnodes", "2"]
        command += ["--nproc-per-node", "2", "--master-addr", "10.77.0.1", "--master-port", "29511"]
        nodes = []
        for number, host in enumerate("ab"):
            words = [*command, "--node-rank", str(number), script]
            nodes.append(start(host, *words, env={**self.env, "OMP_NUM_THREADS": "1"}))
        said = "".join(node.communicate(timeout=_LIMIT_S)[0] for node in nodes)
        self.assertEqual([node.returncode for node in nodes], [0, 0], said)
        for rank in range(4):
            self.assertRegex(said, f"fine {rank}")


class MpiTest(Tensors):
    """Jobs of mpirun."""

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        cls.folder = tempfile.mkdtemp()
        cls.addClassCleanup(shutil.rmtree, cls.folder)

    def setUp(self) -> None:
        super().setUp()
        if shutil.which("mpirun") is None or shutil.which("mpicc") is None:
            self.skipTest("there is no mpirun and mpicc")

    def on_a(self, *command: str) -> str:
        env = {
            **self.env,
            "PYTHONUNBUFFERED": "",  # a line is one write: those of several ranks do not mix
            "OMPI_ALLOW_RUN_AS_ROOT": "1",
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
            "OMPI_MCA_btl": "tcp,vader,self",
            "OMPI_MCA_btl_tcp_if_include": "eth0",
            "COVEY_PLUGIN_PATH": self.folder,
        }
        done = cluster("exec", "a", *command, env=env)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return str(done.stdout)

    def mpirun(self, hosts: str, size: int, code: str) -> None:
        kept: List[str] = []
        for name in ("COVEY_PLUGIN_PATH", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE"):
            kept += ["-x", name]
        command = ["mpirun", "--host", hosts, "-np", str(size), "--bind-to", "none", *kept]
        self.check_fine(self.on_a(*command, *self.python_of(code)), size)

    def test_operations_and_methods(self) -> None:
        self.on_a(sys.executable, "-c", _BUILD, "--out", self.folder)
        self.mpirun("a:2,b:2", 4, OPERATIONS)
        self.mpirun("a:2,b:1", 3, TRAINING)


if __name__ == "__main__":
    unittest.main()
