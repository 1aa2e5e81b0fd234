"""Goal: scripts that read their place from RANK, WORLD_SIZE and LOCAL_RANK, or from Horovod's
variables, find it under coveyrun, and torch.distributed's env:// works there with every backend;
launchers within a rank of coveyrun are believed.
Method: real jobs. Nobody is told a port."""

from __future__ import annotations

import importlib.util
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest
from typing import Any, Dict, List

from harness import also, environment, run_launcher

from covey.launch.environment import Descriptors, rank_environment
from covey.launch.hosts import places
from covey.launch.spec import JobSpec

WITHOUT_TORCH = unittest.skipIf(importlib.util.find_spec("torch") is None, "no torch here")
PLACE = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
TRAIN = """
import json, os, sys
import torch, torch.distributed as dist
if sys.argv[2] == "covey":
    import covey.torch
dist.init_process_group(sys.argv[2], **json.loads(sys.argv[3]))
rank, local = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
assert (rank, local) == (dist.get_rank(), dist.get_rank())
assert int(os.environ["WORLD_SIZE"]) == dist.get_world_size()
torch.manual_seed(0)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(3, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    optimizer.zero_grad()
    model(torch.full((1, 3), float(rank))).sum().backward()
    optimizer.step()
with open(f"{sys.argv[1]}.{rank}", "w") as file:
    json.dump([dist.get_world_size(), [p.tolist() for p in model.parameters()]], file)
dist.barrier()
dist.destroy_process_group()
if sys.argv[2] == "gloo":
    os._exit(0)  # Its threads may outlive its groups: then the process is aborted at its end.
"""
OWN = """
import os, subprocess, sys
import torch.multiprocessing as mp

def rank(number, out):
    os.environ.update(RANK=str(number), WORLD_SIZE="3")
    import covey, numpy
    for life in range(2):
        covey.init()
        total = covey.allreduce(numpy.ones(2), op=covey.Sum, name="x")
        covey.shutdown()
    with open(f"{out}.{number}", "w") as file:
        file.write(f"{number} of {int(total[0])}")

if __name__ == "__main__":
    mp.spawn(rank, (sys.argv[1],), nprocs=3)
"""


class VariablesTest(unittest.TestCase):
    def made(self, base: Dict[str, str], port: Any = 1, **extra: str) -> Dict[str, str]:
        spec = JobSpec(command=["true"], size=3, extra_env=extra)
        store = None if port is None else ("127.0.0.1", port)
        return rank_environment(base, spec, places([3])[2], "job", Descriptors(3, 4), store)

    def test_every_name_of_a_place(self) -> None:
        env = self.made({"RANK": "7", "WORLD_SIZE": "9"})
        self.assertEqual([env[name] for name in PLACE], ["2", "3", "2", "3"])
        horovod = {name: text for name, text in env.items() if name.startswith("HOROVOD_")}
        names = ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE", "CROSS_RANK", "CROSS_SIZE")
        wanted = dict(zip(map("HOROVOD_{}".format, names), ("2", "3", "2", "3", "0", "1")))
        self.assertEqual(horovod, wanted)

    def test_what_the_user_says_of_the_store_holds(self) -> None:
        for base, port, extra, wanted in (
            ({}, 5, {}, ("127.0.0.1", "5")),
            ({}, None, {}, (None, None)),
            ({"MASTER_PORT": "9"}, 5, {}, ("127.0.0.1", "9")),
            ({"MASTER_ADDR": "a", "MASTER_PORT": "9"}, None, {}, ("a", "9")),
            ({"MASTER_PORT": "9"}, 5, {"MASTER_PORT": "8"}, ("127.0.0.1", "8")),
            # Another launcher's word to this rank of it is not the user's.
            ({"MASTER_PORT": "9", "TORCHELASTIC_RUN_ID": "x"}, 5, {}, ("127.0.0.1", "5")),
            ({"MASTER_PORT": "9", "COVEY_SHM_FD": "3"}, 5, {}, ("127.0.0.1", "5")),
            (
                {"MASTER_PORT": "9", "COVEY_SHM_FD": "3"},
                5,
                {"MASTER_PORT": "8"},
                ("127.0.0.1", "8"),
            ),
        ):
            env = self.made(base, port, **extra)
            self.assertEqual((env.get("MASTER_ADDR"), env.get("MASTER_PORT")), wanted)
            self.assertNotIn("TORCHELASTIC_RUN_ID", env)
        self.assertEqual(self.made({}, RANK="7")["RANK"], "7")


@WITHOUT_TORCH
class PlaceTest(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.out = self.folder / "out"

    def script(self, text: str) -> str:
        path = self.folder / "script.py"
        path.write_text(text, encoding="ascii")
        return str(path)

    def results(self, size: int) -> List[str]:
        return [pathlib.Path(f"{self.out}.{rank}").read_text() for rank in range(size)]

    def run_job(self, *command: str, size: int = 2) -> None:
        env = {"OMP_NUM_THREADS": "1"}
        code, out, err = run_launcher(["-np", str(size), sys.executable, *command], env=env)
        self.assertEqual(code, 0, "\n".join([*out, *err]))

    def test_plain_scripts_train_as_ranks_of_one_job(self) -> None:
        script, results = self.script(TRAIN), []
        for backend, options in (
            ("gloo", {}),
            ("covey", {"init_method": "env://"}),
            *also(("gloo", {"init_method": "env://"}), ("covey", {})),
        ):
            self.run_job(script, str(self.out), backend, json.dumps(options))
            results += self.results(2)
        self.assertEqual(json.loads(results[0])[0], 2)
        self.assertEqual(set(results), {results[0]})

    def test_torchrun_within_a_rank(self) -> None:
        torchrun = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node")
        script = self.script(TRAIN)
        for size, backend in ((3, "covey"), *also((2, "gloo"), (1, "covey"))):
            command = (*torchrun, str(size), script, str(self.out), backend, "{}")
            self.run_job(*command, size=1)
            self.assertEqual([json.loads(text)[0] for text in self.results(size)], [size] * size)

    def test_processes_that_a_rank_starts_with_a_place_of_their_own(self) -> None:
        self.run_job(self.script(OWN), str(self.out), size=1)
        self.assertEqual(self.results(3), [f"{rank} of 3" for rank in range(3)])

    def test_coveyrun_within_a_rank_of_torchrun(self) -> None:
        inner = self.folder / "inner.py"
        inner.write_text(TRAIN, encoding="ascii")
        outer = self.script(
            "import os, subprocess, sys\n"
            "out = sys.argv[1] + os.environ['RANK']\n"
            "command = [sys.executable, '-m', 'covey.cli', 'run', '-np', '2', sys.executable]\n"
            f"sys.exit(subprocess.call([*command, {str(inner)!r}, out, 'gloo', '{{}}']))\n"
        )
        torchrun = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
        done = subprocess.run(
            [sys.executable, *torchrun, outer, str(self.out)],
            env=environment(OMP_NUM_THREADS="1"),
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        for job in range(2):
            for rank in range(2):
                text = pathlib.Path(f"{self.out}{job}.{rank}").read_text()
                self.assertEqual(json.loads(text)[0], 2)


if __name__ == "__main__":
    unittest.main()
