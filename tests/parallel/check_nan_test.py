"""Goal: coveyrun --check-nan stops a training whose gradients have a NaN before it is mixed, and
says whose it is; without it the script goes on as before.
Method: an unchanged script in which one rank's loss is NaN at its third step."""

from __future__ import annotations

import os
import sys
import tempfile
import unittest
from typing import List

from harness import preload, run_launcher

preload("torch")

SCRIPT = """
import torch, covey.torch as hvd
hvd.init()
net = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Linear(3, 1))
optimizer = hvd.DistributedOptimizer(torch.optim.SGD(net.parameters(), lr=0.1), model=net)
for step in range(4):
    optimizer.zero_grad()
    loss = net(torch.ones(5, 2)).sum()
    if step == 2 and hvd.rank() == 1:
        loss = loss * float("nan")
    loss.backward()
    optimizer.step()
print("came to the end")
"""


class CheckNanTest(unittest.TestCase):
    def run_script(self, *flags: str) -> "tuple[int, List[str], List[str]]":
        with tempfile.TemporaryDirectory() as folder:
            script = os.path.join(folder, "script.py")
            with open(script, "w", encoding="utf-8") as file:
                file.write(SCRIPT)
            return run_launcher(["-np", "2", *flags, sys.executable, script])

    def test_names_rank_parameter_count_and_step(self) -> None:
        code, out, err = self.run_script("--check-nan")
        self.assertNotEqual(code, 0)
        self.assertEqual(out, [])
        told = [line for line in err if "NotFinite" in line]
        self.assertTrue(told, err)
        for line in told:
            self.assertIn("rank 1 has an unfit gradient at step 2: ", line)
            self.assertIn("1 NaN or infinite numbers of 1 in that of 1.bias", line)

    def test_names_them_where_each_rank_does_steps_by_itself(self) -> None:
        # With wagma the others go on without it, and may come to their end.
        for method, ends in (("local:local_steps=2", [[]]),
                             ("wagma:sync_every=2", [[], ["[0] came to the end"]])):
            with self.subTest(method):
                code, out, err = self.run_script("--check-nan", "--method", method)
                self.assertNotEqual(code, 0)
                self.assertIn(out, ends)
                told = [line for line in err if "rank 1 has an unfit gradient at step 2: " in line]
                self.assertTrue([line for line in told if line.startswith("coveyrun:")], err)
                self.assertTrue([line for line in err if "rank 1 (pid" in line], err)

    def test_is_off_unless_asked_for(self) -> None:
        code, out, err = self.run_script()
        self.assertEqual((code, len(out)), (0, 2), err)
