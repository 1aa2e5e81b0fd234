"""Goal: ranks that srun or torchrun has started become a job at COVEY_RENDEZVOUS, with nothing but
their launcher's variables, an address and a secret, or at the address that torch.distributed is
given; what is missing or wrong is named by init().
Method: processes with the variables that srun and mpirun set (there is no Slurm here), and a real
torchrun. Addresses are files, or ports that are free, so no port is fixed."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import pathlib
import select
import socket
import subprocess
import sys
import tempfile
import unittest
from typing import Dict, List, Optional, Tuple

import warm
from harness import OTHER_SECRET, PLUGIN, PLUGIN_FOLDER, SECRET, WHY_NO_PLUGIN, environment

LIMIT_S = 120.0
SUMS = """
import numpy, os, covey
for life in range(2):
    covey.init()
    total = covey.allreduce(numpy.full(1000, 10.0 ** covey.rank()), op=covey.Sum, name="x")
    covey.shutdown()
covey.init()
print("fine", covey.rank(), covey.size(), covey.local_rank(), int(total[0]), flush=True)
"""
TO_FILE = SUMS.replace("flush=True", "file=open(os.environ['OUT'] + str(covey.rank()), 'w')")
GROUPS = """
import torch, torch.distributed as dist, covey_torch
covey_torch.register()  # As torch does where the wheel is installed.
for turn in range(2):
    dist.init_process_group("covey")
    total = torch.full((9,), 10.0 ** dist.get_rank())
    dist.all_reduce(total)
    dist.destroy_process_group()
print("fine", int(total[0]), flush=True)
"""
LAUNCHERS = {
    "srun": ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
    "mpirun": ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
}


class RanksTestCase(unittest.TestCase):
    forks = False  # Ranks import all themselves.

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.secret = self.write_secret("secret", SECRET)

    def write_secret(self, name: str, text: str, mode: int = 0o600) -> str:
        path = os.path.join(self.folder, name)
        with open(path, "w", encoding="ascii") as file:
            file.write(text)
        os.chmod(path, mode)
        return path

    def variables(self, **extra: Optional[str]) -> Dict[str, str]:
        env = environment(
            OMP_NUM_THREADS="1",
            COVEY_PLUGIN_PATH=PLUGIN_FOLDER,
            COVEY_RENDEZVOUS=f"file:{self.folder}/address",
            COVEY_SECRET_FILE=self.secret,
        )
        env.update({name: value for name, value in extra.items() if value is not None})
        return {name: value for name, value in env.items() if extra.get(name, "") is not None}

    def start(
        self, code: str = SUMS, fork: Optional[bool] = None, **extra: Optional[str]
    ) -> "subprocess.Popen[str]":
        """A rank. `fork`: of a process that has torch; None: as the class has it."""
        is_fork = self.forks if fork is None else fork
        with contextlib.nullcontext() if is_fork else warm.processes():
            process = subprocess.Popen(
                [sys.executable, "-c", code],
                env=self.variables(**extra),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        self.addCleanup(self.end, process)
        return process

    @staticmethod
    def end(process: "subprocess.Popen[str]") -> None:
        process.kill()
        process.communicate()

    def ranks(
        self, launcher: str, size: int, numbers: Optional[List[int]] = None, **extra: Optional[str]
    ) -> "List[subprocess.Popen[str]]":
        rank_name, size_name = LAUNCHERS[launcher]
        every = range(size) if numbers is None else numbers
        return [self.start(**{rank_name: str(r), size_name: str(size)}, **extra) for r in every]

    def finish(self, process: "subprocess.Popen[str]") -> Tuple[int, str, str]:
        out, err = process.communicate(timeout=LIMIT_S)
        return process.returncode, out, err

    def check_raises(self, process: "subprocess.Popen[str]", *words: str) -> None:
        code, _, err = self.finish(process)
        self.assertEqual(code, 1, err)
        for word in words:
            self.assertIn(word, err.strip().splitlines()[-1])


@unittest.skipUnless(PLUGIN, WHY_NO_PLUGIN)
class RanksTest(RanksTestCase):
    def test_three_ranks_of_each_launcher(self) -> None:
        for launcher in LAUNCHERS:
            ranks = self.ranks(launcher, 3)
            for rank, process in enumerate(ranks):
                done = self.finish(process)
                self.assertEqual(done, (0, f"fine {rank} 3 {rank} 111\n", ""))
            self.assertFalse(os.path.exists(f"{self.folder}/address"))

    def test_one_rank_alone(self) -> None:
        (rank,) = self.ranks("srun", 1)
        self.assertEqual(self.finish(rank), (0, "fine 0 1 0 1\n", ""))

    def test_that_every_network_is_bound_is_told(self) -> None:
        (rank,) = self.ranks("srun", 1, COVEY_RENDEZVOUS="0:0")
        code, out, err = self.finish(rank)
        self.assertEqual((code, out), (0, "fine 0 1 0 1\n"), err)
        everywhere = r"0\.0\.0\.0:\d+; 0\.0\.0\.0 stands for every network of this machine"
        self.assertRegex(err, f"covey: rank 0 serves the rendezvous at {everywhere}")

    @unittest.skipIf(importlib.util.find_spec("torch") is None, "torch is not installed")
    def test_torch_distributed_needs_no_address(self) -> None:
        place = LAUNCHERS["srun"]
        ranks = [self.start(GROUPS, **dict(zip(place, (str(rank), "3")))) for rank in range(3)]
        for process in ranks:
            self.assertEqual(self.finish(process), (0, "fine 111\n", ""))

    @unittest.skipIf(importlib.util.find_spec("torch") is None, "torch is not installed")
    def test_ranks_of_torchrun(self) -> None:
        script = pathlib.Path(self.folder, "script.py")
        script.write_text(TO_FILE, encoding="ascii")
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
        out = f"{self.folder}/out"
        done = subprocess.run(
            [*command, "--nproc-per-node", "2", str(script)],
            env=self.variables(OUT=out),
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        for rank in range(2):
            said = pathlib.Path(f"{out}{rank}").read_text(encoding="ascii")
            self.assertEqual(said, f"fine {rank} 2 {rank} 11\n")

    def test_ranks_of_several_hosts_are_one_job(self) -> None:
        elsewhere = "import covey.launch.memory as m; m.host_id = lambda: 'elsewhere'\n"
        for far, local_ranks in ((1, (0, 0, 1)), (2, (0, 1, 0))):
            ranks = [
                self.start(
                    (elsewhere if rank == far else "") + SUMS,
                    SLURM_PROCID=str(rank),
                    SLURM_STEP_NUM_TASKS="3",
                )
                for rank in range(3)
            ]
            for rank, process in enumerate(ranks):
                wanted = (0, f"fine {rank} 3 {local_ranks[rank]} 111\n", "")
                self.assertEqual(self.finish(process), wanted)

    def test_a_rank_with_another_secret_is_refused_and_does_no_harm(self) -> None:
        other = self.write_secret("other", OTHER_SECRET)
        waiting = self.ranks("srun", 2, [0], COVEY_START_TIMEOUT="20s")
        (refused,) = self.ranks("srun", 2, [1], COVEY_SECRET_FILE=other)
        self.check_raises(refused, "does not accept this node's secret")
        (right,) = self.ranks("srun", 2, [1])
        for process in (*waiting, right):
            self.assertEqual(self.finish(process)[0], 0)

    def test_a_rank_that_does_not_come(self) -> None:
        place = {"SLURM_PROCID": "2", "SLURM_STEP_NUM_TASKS": "3", "COVEY_START_TIMEOUT": "60s"}
        early = self.start("print(flush=True)\n" + SUMS, **place)
        early.stdout.readline()  # It looks for the address from now on.
        (first,) = self.ranks("srun", 3, [0], COVEY_START_TIMEOUT="1s")
        self.check_raises(first, "did not form within 1 s", "of 3 nodes have joined; waiting")
        self.assertEqual(self.finish(early)[0], 1)

    def test_two_ranks_with_one_number(self) -> None:
        first, *twins = self.ranks("srun", 3, [0, 1, 1], COVEY_START_TIMEOUT="60s")
        # Either of the two may be first; the other one hears it, as long as ranks are missing.
        (ended,), _, _ = select.select([twin.stdout for twin in twins], [], [], LIMIT_S)
        refused, taken = sorted(twins, key=lambda twin: twin.stdout is not ended)
        self.check_raises(refused, f"node 1 is taken by process {taken.pid} on ")
        (last,) = self.ranks("srun", 3, [2])
        for process in (first, taken, last):
            self.assertEqual(self.finish(process)[0], 0)


@unittest.skipIf(importlib.util.find_spec("torch") is None, "torch is not installed")
class VariablesTest(RanksTestCase):
    """RANK and WORLD_SIZE alone, as for env:// of torch.distributed, of which ranks use the store.
    Three import torch for it, the others are forks of a process that has."""

    forks = True

    @classmethod
    def setUpClass(cls) -> None:
        warm.import_once("torch", environment())

    # Below those that the system gives away: else somebody's connection may have it meanwhile.
    ports = iter(range(20000 + os.getpid() % 10000, 32000))

    def place(self, rank: int, size: int, port: int, **extra: Optional[str]) -> Dict[str, str]:
        place = {"RANK": rank, "WORLD_SIZE": size, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        place = {name: str(value) for name, value in place.items()}
        return {**place, "COVEY_RENDEZVOUS": None, **extra}  # type: ignore[dict-item]

    def free_port(self) -> int:
        for port in self.ports:
            with contextlib.suppress(OSError), socket.create_server(("0.0.0.0", port)):
                return port
        raise AssertionError("no port below 32000 is free")

    def test_three_ranks(self) -> None:
        port = self.free_port()
        ranks = [self.start(fork=False, **self.place(rank, 3, port)) for rank in range(3)]
        for rank, process in enumerate(ranks):
            self.assertEqual(self.finish(process), (0, f"fine {rank} 3 {rank} 111\n", ""))

    def test_ranks_that_srun_starts_without_mpi(self) -> None:
        port = self.free_port()
        slurm = {"SLURM_STEP_NUM_TASKS": "2"}
        ranks = [
            self.start(**self.place(rank, 2, port), **slurm, SLURM_PROCID=str(rank))
            for rank in range(2)
        ]
        for rank, process in enumerate(ranks):
            self.assertEqual(self.finish(process), (0, f"fine {rank} 2 {rank} 11\n", ""))
        by_pmi = self.start(**self.place(0, 2, port), **slurm, SLURM_PROCID="0", PMIX_RANK="0")
        self.check_raises(by_pmi, "transport mpi", "covey build mpi")

    def test_the_address_is_shared_with_torch_distributed(self) -> None:
        theirs = (
            "import torch.distributed as dist\ndist.init_process_group('gloo')\ndist.barrier()\n"
            "dist.destroy_process_group()\n"
        )
        for code in (theirs + SUMS, SUMS + theirs):
            port = self.free_port()
            ranks = [self.start(code, **self.place(rank, 2, port)) for rank in range(2)]
            for rank, process in enumerate(ranks):
                done, out, err = self.finish(process)
                self.assertEqual((done, out), (0, f"fine {rank} 2 {rank} 11\n"), err)

    def test_ranks_of_several_hosts_are_one_job(self) -> None:
        elsewhere = "import covey.launch.memory as m; m.host_id = lambda: 'elsewhere'\n"
        for far, local_ranks in ((1, (0, 0, 1)), (2, (0, 1, 0))):
            port = self.free_port()
            ranks = [
                self.start((elsewhere if rank == far else "") + SUMS, **self.place(rank, 3, port))
                for rank in range(3)
            ]
            for rank, process in enumerate(ranks):
                wanted = (0, f"fine {rank} 3 {local_ranks[rank]} 111\n", "")
                self.assertEqual(self.finish(process), wanted)

    def test_between_hosts_a_secret_keeps_strangers_out(self) -> None:
        elsewhere = "import covey.launch.memory as m; m.host_id = lambda: 'elsewhere'\n"
        own, other = self.write_secret("own", SECRET), self.write_secret("other", OTHER_SECRET)
        for theirs, fine in ((own, True), (other, False)):
            port = self.free_port()
            place = {"COVEY_START_TIMEOUT": "600s" if fine else "5s", "COVEY_LEASE": "2s"}
            ranks = [
                self.start(
                    (elsewhere if rank == 1 else "") + SUMS,
                    **self.place(rank, 2, port, COVEY_SECRET_FILE=(own, theirs)[rank], **place),
                )
                for rank in range(2)
            ]
            for rank, process in enumerate(ranks):
                code, out, err = self.finish(process)
                wanted = (0, f"fine {rank} 2 0 11\n") if fine else (1, "")
                self.assertEqual((code, out), wanted, err)

    def test_ranks_find_out_that_they_are_on_one_host(self) -> None:
        port = self.free_port()
        ranks = [self.start(**self.place(r, 2, port, LOCAL_WORLD_SIZE="1")) for r in range(2)]
        for rank, process in enumerate(ranks):
            self.assertEqual(self.finish(process), (0, f"fine {rank} 2 {rank} 11\n", ""))

    def test_a_rank_that_cannot_listen_is_named_on_all(self) -> None:
        cannot = "import covey.launch.network as n; n.outward = lambda to: '192.0.2.1'\n"
        port = self.free_port()
        ranks = [
            self.start((cannot if rank == 1 else "") + SUMS, **self.place(rank, 2, port))
            for rank in range(2)
        ]
        for process in ranks:
            self.check_raises(process, "Unsupported: rank 1: cannot listen at 192.0.2.1: ")

    def test_a_rank_that_does_not_come_is_named_on_all(self) -> None:
        port = self.free_port()
        ready = "import torch.distributed\nprint(flush=True)\n" + SUMS
        early = self.start(ready, **self.place(1, 3, port, COVEY_START_TIMEOUT="600s"))
        early.stdout.readline()
        first = self.start(**self.place(0, 3, port, COVEY_START_TIMEOUT="5s"))
        for process in (early, first):
            self.check_raises(process, "of 3 ranks 2 did not come within 5 s")

    def test_what_is_missing_or_wrong_is_named(self) -> None:
        port = self.free_port()
        code = "import covey; covey.init(); print(covey.size())"
        for extra, words in (
            ({"MASTER_PORT": None}, "RANK=1 and WORLD_SIZE=2 say that this process is one of 2"),
            ({"MASTER_PORT": "http"}, "MASTER_PORT=http do not say where they meet"),
            ({"RANK": "2"}, "RANK=2 and WORLD_SIZE=2 are no place in a job"),
            ({"COVEY_START_TIMEOUT": "100ms"}, f"did not meet rank 0 at 127.0.0.1:{port}"),
            ({"RANK": "0", "LOCAL_WORLD_SIZE": "x"}, "LOCAL_WORLD_SIZE=x is no number of ranks"),
        ):
            self.check_raises(self.start(code, **{**self.place(1, 2, port), **extra}), words)
        with socket.create_server(("0.0.0.0", 0)) as taken:
            first = self.start(code, **self.place(0, 2, taken.getsockname()[1]))
            self.check_raises(first, "rank 0 cannot serve the job at 127.0.0.1:", "in use")
        alone = self.start(code, **self.place(0, 1, port))
        self.assertEqual(self.finish(alone), (0, "1\n", ""))


class MistakeTest(RanksTestCase):
    def test_what_is_missing_or_wrong_is_named(self) -> None:
        place = {"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "2"}
        open_to_all = self.write_secret("open", SECRET, 0o644)
        for extra, words in (
            ({}, "nothing says which rank this is: start it with torchrun, srun or mpirun"),
            ({**place, "SLURM_PROCID": "2"}, "SLURM_PROCID=2 and SLURM_STEP_NUM_TASKS=2 are no"),
            ({**place, "COVEY_SECRET_FILE": None}, "needs COVEY_SECRET_FILE"),
            ({**place, "COVEY_SECRET_FILE": open_to_all}, "open to other users (mode 0644)"),
            ({**place, "COVEY_PLUGIN_PATH": "/nowhere"}, "libcovey_grpc.so is in none of"),
        ):
            self.check_raises(self.start("import covey; covey.init()", **extra), words)


if __name__ == "__main__":
    unittest.main()
