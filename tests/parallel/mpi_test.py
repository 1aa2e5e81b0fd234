"""Goal: a script that mpirun starts is a job over MPI, with nothing set: every operation is right,
groups and training too, beside mpi4py, and who leaves is named; `covey build mpi` makes what it
needs and says clearly what is missing.
Method: the plug-in is built with the machine's mpicc into a folder of the test; real mpirun.
Without an MPI on the machine the cases that need one are skipped."""

from __future__ import annotations

import importlib.util
import os
import pathlib
import shutil
import sys
import tempfile
import unittest
from typing import Any
from unittest import mock

from harness import run_launcher
from mpi_job import BUILD, HAS_MPI, WHY_NOT, MpiJob, run_here
from operations import EVERY_OPERATION

from covey.cli import build_command, build_part
from covey.launch.spec import LaunchError

# The ranks are those of mpirun.
OPERATIONS = (
    """
    import os, sys, covey
    assert not [name for name in os.environ if name.startswith("COVEY_RANK")]
    covey.init()
    rank, size = covey.rank(), covey.size()
    assert size == int(os.environ["OMPI_COMM_WORLD_SIZE"]) == int(sys.argv[1])
    assert rank == int(os.environ["OMPI_COMM_WORLD_RANK"])
    assert covey.local_rank() == int(os.environ["OMPI_COMM_WORLD_LOCAL_RANK"])
    assert covey.local_size() == int(os.environ["OMPI_COMM_WORLD_LOCAL_SIZE"])
    assert covey.cross_rank() == 0 and covey.cross_size() == 1
"""
    + EVERY_OPERATION
)

TRAINING = """
    import torch, covey.torch as hvd
    torch.set_num_threads(1)
    hvd.init()
    torch.manual_seed(hvd.rank())
    net = torch.nn.Sequential(torch.nn.Linear(20, 50), torch.nn.ReLU(), torch.nn.Linear(50, 3))
    hvd.broadcast_parameters(net.state_dict(), root_rank=0)
    plain = torch.nn.Sequential(torch.nn.Linear(20, 50), torch.nn.ReLU(), torch.nn.Linear(50, 3))
    plain.load_state_dict(net.state_dict())
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9), model=net)
    alone = torch.optim.SGD(plain.parameters(), lr=0.1, momentum=0.9)
    data = [torch.randn(8, 20, generator=torch.Generator().manual_seed(r))
            for r in range(hvd.size())]
    for step in range(5):
        optimizer.zero_grad()
        net(data[hvd.rank()]).square().mean().backward()
        optimizer.step()
        alone.zero_grad()
        sum(plain(part).square().mean() for part in data).div(hvd.size()).backward()
        alone.step()
    hvd.check_replicas(net)
    for mine, wanted in zip(net.parameters(), plain.parameters()):
        torch.testing.assert_close(mine, wanted, rtol=1e-4, atol=1e-6)
    print("fine", hvd.rank(), flush=True)
"""

# As torch does where the wheel is installed; nothing says where ranks could meet.
NAME_ALONE = """
    import os, torch.distributed as dist, covey_torch
    assert "MASTER_ADDR" not in os.environ
    covey_torch.register()
"""
NAME_BY_IMPORT = """
    import torch.distributed as dist, covey.torch
"""
TORCH_DISTRIBUTED = """
    import torch
    for turn in range(3):
        dist.init_process_group("covey")
        rank, size = dist.get_rank(), dist.get_world_size()
        total = torch.full((3,), 10.0 ** rank)
        dist.all_reduce(total)
        assert total.tolist() == [sum(10.0 ** other for other in range(size))] * 3
        ranks = [None] * size
        dist.all_gather_object(ranks, rank)
        assert ranks == list(range(size))
        assert dist.new_group([0, 1]) is not None
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(3, 2))
        (model(torch.ones(1, 3)).sum() * rank).backward()
        assert model.module.bias.grad.tolist() == [(size - 1) / 2] * 2
        dist.destroy_process_group()
    print("fine", rank, flush=True)
"""

# Every method works over memory, and nobody polls the network.
ON_ONE_HOST = """
    import torch, covey, covey.torch as hvd
    hvd.init()
    assert covey.stats()["polls_network"] == 0
    for method in ("wagma:group_size=2", "local:H=2,max_wait=2s", "adpsgd", "swarm"):
        torch.manual_seed(0)
        net = torch.nn.Linear(3, 2)
        optimizer = hvd.DistributedOptimizer(
            torch.optim.SGD(net.parameters(), lr=0.1), model=net, method=method)
        for _ in range(4):
            net(torch.ones(1, 3)).sum().backward()
            optimizer.step()
        optimizer.finish()
    print("fine", covey.rank(), flush=True)
"""

LEAVES = """
    import os, numpy, covey
    covey.init()
    covey.allreduce(numpy.ones(3), name="x")
    if covey.rank() == 1:
        covey.shutdown()
    else:
        try:
            covey.allreduce(numpy.ones(3), name="x")
        except covey.Aborted as error:
            print("aborted:", error, flush=True)
    print("fine", os.environ["OMPI_COMM_WORLD_RANK"], flush=True)
"""

RAISES = """
    import numpy, covey
    covey.init()
    covey.allreduce(numpy.ones(3), name="x")
    if covey.rank() == 1:
        raise RuntimeError("its own mistake")
    covey.allreduce(numpy.ones(3), name="x")
"""

# Sums that depend on the order; the digest is compared with coveyrun's.
SAME_BITS = """
    import hashlib, numpy, covey
    covey.init()
    digest = hashlib.sha256()
    for count in (3, 1000, 100_003, 1_000_001):
        mine = numpy.random.default_rng(covey.rank()).normal(size=count).astype("float32")
        digest.update(covey.allreduce(mine, name=str(count)).tobytes())
    print("digest", digest.hexdigest(), flush=True)
"""

WITH_MPI4PY = """
    import threading, numpy, covey
    from mpi4py import MPI
    comm = MPI.COMM_WORLD
    assert comm.allreduce(1) == comm.Get_size()  # before
    covey.init()
    assert (covey.rank(), covey.size()) == (comm.Get_rank(), comm.Get_size())
    for turn in range(50):  # at the same time
        handle = covey.allreduce_async(numpy.full(1000, turn, "float64"), op=covey.Sum, name="x")
        assert comm.allreduce(turn) == turn * comm.Get_size()
        assert (handle.wait() == turn * covey.size()).all()
    covey.shutdown()
    assert comm.allreduce(2) == 2 * comm.Get_size()  # after
    print("fine", comm.Get_rank(), flush=True)
"""

# Covey has initialised MPI here, and must have asked for what two threads at once need.
MPI4PY_COMES_LATER = """
    import numpy, covey
    covey.init()
    covey.allreduce(numpy.ones(3), name="before")
    from mpi4py import MPI
    comm = MPI.COMM_WORLD
    assert MPI.Query_thread() == MPI.THREAD_MULTIPLE
    for turn in range(300):
        handles = [covey.allreduce_async(numpy.full(1000, turn, "float64"), op=covey.Sum)
                   for _ in range(5)]
        assert comm.allreduce(turn) == turn * comm.Get_size()
        for handle in handles:
            assert (handle.wait() == turn * covey.size()).all()
    print("fine", comm.Get_rank(), flush=True)  # both end with the interpreter
"""


@unittest.skipUnless(HAS_MPI, WHY_NOT)
class MpiTest(MpiJob):
    def test_build_says_what_it_does(self) -> None:
        path = os.path.join(self.folder.name, "libcovey_mpi.so")
        self.assertIn(f"{shutil.which('mpicc')} makes {path}\n", self.said)
        self.assertRegex(self.said, r"done, and it loads \(\d+\.\d s\)\n")
        self.assertIn(f"export COVEY_PLUGIN_PATH={self.folder.name}\n", self.said)

    def test_operations_of_one_rank(self) -> None:
        self.check_fine(1, OPERATIONS)

    def test_operations_of_two_ranks(self) -> None:
        self.check_fine(2, OPERATIONS)

    def test_operations_of_three_ranks(self) -> None:
        self.check_fine(3, OPERATIONS)

    def test_operations_of_four_ranks(self) -> None:
        self.check_fine(4, OPERATIONS)

    def test_operations_of_eight_ranks(self) -> None:
        self.check_fine(8, OPERATIONS)

    def test_ranks_of_one_host_share_its_memory(self) -> None:
        for code in (OPERATIONS, ON_ONE_HOST):
            self.check_fine(4, code, COVEY_HOST_MEMORY="auto")

    def test_one_rank_keeps_all_of_its_host_from_sharing_memory(self) -> None:
        code = '''
            import os, sys, numpy, covey
            if os.environ["OMPI_COMM_WORLD_RANK"] == sys.argv[2]:
                os.environ["COVEY_HOST_MEMORY"] = "never"
            covey.init()
            covey.allreduce(numpy.ones(3), name="x")
            assert covey.stats()["polls_network"] == 1
            print("fine", covey.rank(), flush=True)
        '''
        for rank in "02":
            self.check_fine(3, code, rank, COVEY_HOST_MEMORY="auto")

    def test_training(self) -> None:
        self.check_fine(2, TRAINING)

    def test_torch_distributed(self) -> None:
        for name in (NAME_ALONE, NAME_BY_IMPORT):
            self.check_fine(3, name + TORCH_DISTRIBUTED)

    def test_who_leaves_is_named(self) -> None:
        out = self.check_fine(3, LEAVES).stdout
        self.assertEqual(out.count("aborted:"), 2, out)
        self.assertEqual(out.count("rank 1"), 2, out)

    def test_a_rank_that_raises_ends_the_job_and_is_named(self) -> None:
        done = self.mpirun(3, RAISES)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("RuntimeError: its own mistake", done.stderr)
        self.assertIn("rank 1 has left the job", done.stderr)

    def test_sums_have_the_bits_of_shared_memory(self) -> None:
        over_mpi = self.mpirun(3, SAME_BITS).stdout.split()
        script = str(pathlib.Path(self.folder.name, "script.py"))
        code, lines, err = run_launcher(["-np", "3", sys.executable, script])
        self.assertEqual(code, 0, err)
        digests = {word for line in lines for word in line.split()[-1:]} | set(over_mpi[1::2])
        self.assertEqual((len(digests), len(over_mpi)), (1, 6), (lines, over_mpi))

    @unittest.skipIf(importlib.util.find_spec("mpi4py") is None, "mpi4py is not installed")
    def test_beside_mpi4py(self) -> None:
        self.check_fine(2, WITH_MPI4PY)

    @unittest.skipIf(importlib.util.find_spec("mpi4py") is None, "mpi4py is not installed")
    def test_mpi4py_comes_later(self) -> None:
        self.check_fine(2, MPI4PY_COMES_LATER)

    def test_one_process_is_a_job_of_one(self) -> None:
        code = "import covey; covey.init(); print('fine', covey.rank(), covey.size() - 1)"
        self.assertEqual(self.mpirun(1, code).stdout, "fine 0 0\n")

    def test_without_the_plug_in_the_way_is_told(self) -> None:
        of_group = 'import torch.distributed as d, covey.torch; d.init_process_group("covey")'
        ways = {"import covey; covey.init()": "", of_group: "or set RANK, WORLD_SIZE"}
        for code, more in ways.items():
            done = self.mpirun(2, code, COVEY_PLUGIN_PATH="/nowhere")
            self.assertNotEqual(done.returncode, 0)
            self.assertIn("covey build mpi makes it", done.stderr)
            self.assertIn(more, done.stderr)

    def test_under_coveyrun_it_is_refused(self) -> None:
        env = {"COVEY_TRANSPORT": "mpi", "COVEY_PLUGIN_PATH": self.folder.name}
        code, out, err = run_launcher(["-np", "2", "sh", "-c", "echo started"], env=env)
        self.assertEqual((code, out, len(err)), (2, [], 1), err)
        self.assertIn("mpirun -np N python SCRIPT", err[0])


class BuildTest(unittest.TestCase):
    def build(self, *arguments: str, **extra: str) -> Any:
        return run_here([sys.executable, "-c", BUILD, *arguments], **extra)

    def check_refused(self, done: Any, *words: str) -> None:
        self.assertEqual((done.returncode, done.stderr.count("\n")), (2, 1), done.stderr)
        for word in ("covey build mpi: ", *words):
            self.assertIn(word, done.stderr)

    def test_without_a_compiler_the_package_is_named(self) -> None:
        self.check_refused(self.build(PATH="/nowhere"), "no mpicc", "install libopenmpi-dev")
        self.check_refused(self.build("--mpicc", "/nowhere/mpicc"), "no program /nowhere/mpicc")

    def test_a_folder_that_cannot_be_written(self) -> None:
        compiler = ["--mpicc", str(shutil.which("true"))]
        done = self.build(*compiler, "--out", "/proc/nowhere")
        self.check_refused(done, "--out /proc/nowhere: cannot write there")

    def test_a_package_that_cannot_be_written(self) -> None:
        with tempfile.TemporaryDirectory() as home:
            with mock.patch.dict(os.environ, XDG_DATA_HOME=home), mock.patch.object(
                build_part, "package_folder", return_value="/proc/nowhere"
            ):
                wanted = os.path.join(home, "covey", "plugins")
                self.assertEqual(build_command._folder(None), (wanted, False))
                with mock.patch.dict(os.environ, COVEY_PLUGIN_PATH=f"/x:{wanted}"):
                    self.assertEqual(build_command._folder(None), (wanted, True))
                os.environ["XDG_DATA_HOME"] = "/proc/nowhere"
                with self.assertRaisesRegex(LaunchError, "name a folder with --out DIR"):
                    build_command._folder(None)

    def test_a_compiler_that_fails(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            compiler = ["--mpicc", str(shutil.which("false"))]
            self.check_refused(self.build(*compiler, "--out", folder), "ended with code 1")
            self.assertEqual(os.listdir(folder), [])


if __name__ == "__main__":
    unittest.main()
