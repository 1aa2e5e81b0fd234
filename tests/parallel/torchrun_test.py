"""Ranks that torchrun has started: as users of Covey's own functions, and of torch.distributed with
Covey as its backend under DDP.

Method: real torchrun jobs on this host; torch's own Gloo backend is the reference.
"""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

from harness import also, environment

SIZE = 3
FOLDER = pathlib.Path(__file__).resolve().parent
LIMIT_S = 240

OWN_FUNCTIONS = """
import sys, torch, covey.torch as hvd
for life in range(2):
    hvd.init()
    total = hvd.allreduce(torch.ones(3) * (hvd.rank() + 1), op=hvd.Sum, name="total")
    hvd.shutdown()
hvd.init()
with open(f"{sys.argv[1]}.{hvd.rank()}", "w") as file:
    file.write(f"{hvd.size()} {hvd.local_rank()} {hvd.local_size()} {total.tolist()}")
"""

# Rank 1 ends in the first start: before it meets the others, when rank 0 waits for it already, or
# after that.
RESTARTED = """
import os, pathlib, sys, time, torch, torch.distributed as dist, covey.torch as hvd
surface, when, folder = sys.argv[1:]
rank, first = int(os.environ["RANK"]), os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"
go = pathlib.Path(folder, "go")
if first and when == "before" and rank == 1:
    place = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    store = dist.TCPStore(*place, is_master=False)
    keys = store.num_keys()
    go.touch()
    while store.num_keys() == keys:
        time.sleep(0.01)
    os._exit(3)
while first and when == "before" and rank == 0 and not go.exists():
    time.sleep(0.01)
if surface == "own":
    hvd.init()
total = hvd.allreduce(torch.ones(1), op=hvd.Sum) if surface == "own" else torch.zeros(1)
dist.init_process_group("covey")
if rank == 1:
    dist.send(total, 0)
else:
    dist.recv(total)  # From any: by torchrun's store.
total.fill_(1)
dist.all_reduce(total)
if first and rank == 1:
    os._exit(3)
hvd.barrier()
pathlib.Path(folder, f"{rank}").write_text(f"{total.item()}")
"""


def torchrun(size, script, *arguments, options=(), **variables):
    """Runs the job to its end; fails with what it said."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", *options]
    command += ["--nproc-per-node", str(size), str(script), *map(str, arguments)]
    run(command, **variables)


def coveyrun(size, script, *arguments):
    """As torchrun."""
    command = [sys.executable, "-m", "covey.cli", "run", "-np", str(size), sys.executable]
    run([*command, str(script), *map(str, arguments)])


def run(command, **variables):
    """A job to its end."""
    done = subprocess.run(
        command,
        env=environment(OMP_NUM_THREADS="1", **variables),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}")


class TorchrunTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def run_backend(self, start, backend):
        out = self.folder / backend
        start(SIZE, FOLDER / "torchrun_script.py", backend, out)
        return [json.loads(pathlib.Path(f"{out}.{rank}").read_text()) for rank in range(SIZE)]

    def test_distributed_data_parallel_and_collectives_as_over_gloo(self):
        theirs = self.run_backend(torchrun, "gloo")
        reference = {result.pop("model") for result in theirs}.pop()
        for start in (torchrun, *also(coveyrun)):
            with self.subTest(start=start.__name__):
                ours = self.run_backend(start, "covey")
                models = {result.pop("model") for result in ours}
                self.assertEqual(len(models), 1, "the ranks' models differ")
                self.assertAlmostEqual(models.pop(), reference, places=5)
                self.assertEqual(ours, theirs)

    def test_gloo_finds_the_job_of_coveyrun(self):
        self.assertEqual(self.run_backend(coveyrun, "gloo")[2]["size"], SIZE)

    def test_own_functions_find_the_job(self):
        script = self.folder / "script.py"
        script.write_text(OWN_FUNCTIONS)
        for served in ({}, {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}):  # By rank 0, not torchrun.
            with self.subTest(served=served):
                torchrun(SIZE, script, self.folder / "out", **served)
                for rank in range(SIZE):
                    said = pathlib.Path(f"{self.folder / 'out'}.{rank}")
                    self.assertEqual(said.read_text(), f"{SIZE} {rank} {SIZE} [6.0, 6.0, 6.0]")
                    said.unlink()

    def test_ranks_that_torchrun_starts_again(self):
        script = self.folder / "script.py"
        script.write_text(RESTARTED)
        more = also(("own", "after"), ("c10d", "before"))
        for surface, when in (("own", "before"), ("c10d", "after"), *more):
            with self.subTest(surface=surface, when=when), tempfile.TemporaryDirectory() as out:
                torchrun(2, script, surface, when, out, options=("--max-restarts", "1"))
                for rank in range(2):
                    self.assertEqual(pathlib.Path(out, f"{rank}").read_text(), "2.0")


if __name__ == "__main__":
    unittest.main()
