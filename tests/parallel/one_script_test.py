"""Goal: a script written for the plain DistributedOptimizer trains under every method there is,
with nothing changed in it.
Method: each rank sees a part of the features only, so what the ranks know of the others' part they
have from communicating; a method that never exchanges anything must fail."""

from __future__ import annotations

import os
import sys
import tempfile
import unittest
from typing import List

from harness import run_launcher

import covey

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


class OneScriptTest(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.script = os.path.join(folder.name, "unchanged.py")
        with open(self.script, "w", encoding="utf-8") as file:
            file.write(SCRIPT)

    def errors(self, method: str) -> List[float]:
        """By rank: how far the worst weight is off."""
        command = ["-np", str(RANKS), "--method", method, sys.executable, self.script]
        code, out, err = run_launcher(command)
        self.assertEqual((code, len(out)), (0, RANKS), f"{method}: {err}")
        return [float(line.partition("error ")[2]) for line in sorted(out)]

    def test_under_every_method(self) -> None:
        methods = [method["name"] for method in covey.methods()]
        for method in [*methods, "eager:admit=0.5,grace=20ms",
                       "allreduce:max_wait=2s", "local:local_steps=8,max_wait=2s",
                       "eager:then=local@80:H=4,then=allreduce@160"]:
            with self.subTest(method):
                self.assertLess(max(self.errors(method)), 0.05)

    def test_what_does_not_communicate_fails(self) -> None:
        self.assertGreater(min(self.errors("local:local_steps=100000")), 0.5)


if __name__ == "__main__":
    unittest.main()
