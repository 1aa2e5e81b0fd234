"""Goal: a script written for the plain DistributedOptimizer trains under every method there is,
with nothing changed in it.
Method: a job runs the script once for each of some methods, as COVEY_METHOD names them; each rank
sees a part of the features only, so what the ranks know of the others' part they have from
communicating; a method that never exchanges anything must fail."""

from __future__ import annotations

import os
import sys
import tempfile
import unittest
from typing import List

from harness import preload, run_launcher

import covey

preload("torch")

RANKS = 3
SCRIPT = """
import torch, covey.torch as hvd
hvd.init()
torch.manual_seed(1)
part = 4
wanted = 1 + torch.rand(part * hvd.size())
net = torch.nn.Linear(len(wanted), 1, bias=False)
hvd.broadcast_parameters(net.state_dict(), root_rank=0)
optimizer = torch.optim.SGD(net.parameters(), lr=0.2)
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=net.named_parameters())
generator = torch.Generator().manual_seed(hvd.rank())
for step in range(240):
    inputs = torch.zeros(16, len(wanted))
    mine = slice(part * hvd.rank(), part * (hvd.rank() + 1))
    inputs[:, mine] = torch.randn(16, part, generator=generator)
    optimizer.zero_grad()
    loss = (net(inputs).squeeze(1) - inputs @ wanted).square().mean()
    loss.backward()
    optimizer.step()
    if step % 5 == 4:
        hvd.allreduce(loss.detach(), name="loss")
print("error", float((net.weight[0].detach() - wanted).abs().max()))
"""

# One start of torch for several methods.
EACH = """
import os, runpy, sys
import covey
for method in sys.argv[2:]:
    os.environ["COVEY_METHOD"] = method
    runpy.run_path(sys.argv[1], run_name="__main__")
    covey.shutdown()
"""


class OneScriptTest(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.script = os.path.join(folder.name, "unchanged.py")
        with open(self.script, "w", encoding="utf-8") as file:
            file.write(SCRIPT)

    def errors(self, *methods: str) -> List[List[float]]:
        """By method and rank: how far the worst weight is off."""
        command = ["-np", str(RANKS), sys.executable, "-c", EACH, self.script, *methods]
        code, out, err = run_launcher(command)
        self.assertEqual((code, len(out)), (0, RANKS * len(methods)), f"{methods}: {err}")
        ranks = [[float(line.partition("error ")[2]) for line in out if line.startswith(f"[{r}] ")]
                 for r in range(RANKS)]
        return [list(errors) for errors in zip(*ranks)]

    def test_under_every_method(self) -> None:
        methods = [method["name"] for method in covey.methods()]
        methods[methods.index("diloco")] = "diloco:H=4,outer_momentum=0.5"  # 240 steps are few.
        methods += ["eager:admit=0.5,grace=20ms", "allreduce:max_wait=2s",
                    "local:local_steps=8,max_wait=2s",
                    "eager:then=local@80:H=4,then=allreduce@160"]
        for begin in range(0, len(methods), 6):
            some = methods[begin : begin + 6]
            for method, errors in zip(some, self.errors(*some)):
                with self.subTest(method):
                    self.assertLess(max(errors), 0.05)

    def test_what_does_not_communicate_fails(self) -> None:
        (errors,) = self.errors("local:local_steps=100000")
        self.assertGreater(min(errors), 0.5)


if __name__ == "__main__":
    unittest.main()
