"""Goal: gradients travel while backward still runs, and the timeline shows it; a steady step asks
no coordinator.

Method: no clock decides. The gradient of the first layer, the last one backward computes, waits in
a hook of the test until an exchange of this step has ended: without overlap that never happens.
"""

from __future__ import annotations

import json
import pathlib
import tempfile
import time
import unittest
from typing import Any, Dict

import torch
from ranks import Pool

import covey
import covey.torch as hvd

LIMIT_S = 60.0


def exchanges() -> int:
    return covey.stats()["exchanges"]


def train_overlapped() -> bool:
    net = torch.nn.Sequential(*[torch.nn.Linear(32, 32) for _ in range(6)])
    hvd.broadcast_parameters(net.state_dict(), root_rank=0)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(net.parameters(), lr=0.1), model=net, bucket_bytes=4096
    )
    seen = []
    before = 0

    def wait_for_an_exchange(gradient: torch.Tensor) -> None:
        until = time.monotonic() + LIMIT_S
        while exchanges() == before and time.monotonic() < until:
            time.sleep(0.001)
        seen.append(exchanges() > before)
        now = covey._native.now_ns()
        covey._native.timeline_span("last gradient", now, now + 1)

    for number in range(4):  # In the first step the buckets are held.
        if number == 1:
            net[0].weight.register_hook(wait_for_an_exchange)
        optimizer.zero_grad()
        before = exchanges()
        net(torch.ones(4, 32) * (hvd.rank() + 1)).sum().backward()
        optimizer.step()
    return all(seen) and len(seen) == 3


def messages_of_steady_steps() -> Dict[str, Any]:
    net = torch.nn.Linear(8, 8)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(net.parameters(), lr=0.1), model=net)

    def step() -> None:
        optimizer.zero_grad()
        net(torch.ones(2, 8)).sum().backward()
        optimizer.step()

    for _ in range(3):
        step()
    before = covey.stats()
    for _ in range(10):
        step()
    after = covey.stats()
    return {key: after[key] - before[key] for key in ("coordinator_messages", "exchanges")}


class OverlapTest(unittest.TestCase):
    def test_the_first_bucket_travels_before_the_last_gradient_is_there(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            # Buckets as small as these travel as one, the last too, if they come within 1 ms.
            apart = {"COVEY_TIMELINE": folder, "COVEY_FUSION_THRESHOLD": "0"}
            pool = Pool(2, __file__, env=apart)
            try:
                self.assertEqual(pool.call(train_overlapped), [True, True])
            finally:
                pool.close()
            for rank in range(2):
                events = json.loads(pathlib.Path(folder, f"rank.{rank}.json").read_text())
                begun = [e["ts"] for e in events if e.get("name") == "grad.0" and "ts" in e]
                last = [e["ts"] for e in events if e.get("name") == "last gradient"]
                self.assertEqual((len(begun) % 4, len(last)), (0, 3), f"rank {rank}")
                first = sorted(begun)[:: len(begun) // 4]  # Event of each step.
                for begin, end in zip(first[1:], sorted(last)):
                    self.assertLess(begin, end)

    def test_a_steady_step_sends_no_coordinator_message(self) -> None:
        pool = Pool(3, __file__)
        try:
            for counted in pool.call(messages_of_steady_steps):
                self.assertEqual(counted["coordinator_messages"], 0)
                self.assertGreaterEqual(counted["exchanges"], 10)
        finally:
            pool.close()


if __name__ == "__main__":
    unittest.main()
