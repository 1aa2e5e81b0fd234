"""`coveyrun --method` acts on scripts of torch's DistributedDataParallel that do not name Covey.

Method: jobs run such a script with several backends. By local steps that do not end its ranks keep
models of their own; by allreduce all have one; without the flag torch's own class trains.
"""

from __future__ import annotations

import os
import sys
import tempfile
import unittest
from typing import List, Tuple

from harness import preload, run_launcher

preload("torch", once=False)  # It is the import of torch that acts.

SCRIPT = """
import sys
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
if sys.argv[1] == "covey":
    import covey.torch
dist.init_process_group(sys.argv[1])
torch.manual_seed(dist.get_rank())
model = DDP(torch.nn.Linear(3, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    optimizer.zero_grad()
    model(torch.ones(4, 3) * (dist.get_rank() + 1)).square().mean().backward()
    optimizer.step()
print("isinstance", isinstance(model, DDP), type(model).__module__)
weights = [torch.zeros(1, 3) for _ in range(dist.get_world_size())]
dist.all_gather(weights, model.module.weight.detach().clone())
print("same", torch.equal(*weights))
del model, optimizer  # Torch's class that outlives its group of Gloo may abort at the end.
dist.destroy_process_group()
"""


class ByMethodTest(unittest.TestCase):
    def run_script(self, backend: str, *options: str) -> Tuple[List[str], str]:
        """The lines that the ranks print, and stderr."""
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "script.py")
            with open(path, "w", encoding="utf-8") as file:
                file.write(SCRIPT)
            arguments = ["-np", "2", *options, sys.executable, path, backend]
            code, out, errors = run_launcher(arguments)
        said = "\n".join(errors)
        self.assertEqual(code, 0, said)
        told = [line for line in out if "isinstance" in line or "same" in line]
        return [line.partition("] ")[2] for line in told], said

    def test_acts_on_a_plain_script(self) -> None:
        for backend in ("gloo", "covey"):
            for method, same in (("local:local_steps=100", False), ("allreduce", True)):
                with self.subTest(backend=backend, method=method):
                    out, said = self.run_script(backend, "--method", method)
                    self.assertEqual(out.count(f"same {same}"), 2, out)
                    self.assertEqual(out.count("isinstance True covey.torch.ddp"), 2, out)
                    line = f"--method {method} acts on torch's DistributedDataParallel ("
                    self.assertEqual(said.count(line), 1, said)
                    self.assertIn("script.py:10): its own allreduce is off", said)
                    self.assertNotIn("ignored", said)
                    other = said.count("DistributedDataParallel, not on other calls of torch.dist")
                    self.assertEqual(other, int(backend == "covey" and not same), said)

    def test_preloaded_ranks(self) -> None:
        out, _ = self.run_script("gloo", "--preload", "torch", "--method", "local:local_steps=100")
        self.assertEqual(out.count("same False"), 2, out)

    def test_without_the_flag_nothing_changes(self) -> None:
        out, said = self.run_script("gloo")
        self.assertEqual(out.count("isinstance True torch.nn.parallel.distributed"), 2, out)
        self.assertEqual(out.count("same True"), 2, out)
        self.assertNotIn("acts on", said)


if __name__ == "__main__":
    unittest.main()
