"""Scripts that are drawn: steps, both kinds of finish(), save, load, consensus and barrier in any
order, by any method, while ranks are late or stopped. All ranks run the same script.

Method: after each strict finish() and each load all ranks have the same bits and the same version,
and each script comes to its end. A call that ends with Timeout is made again.
"""

from __future__ import annotations

import os
import pathlib
import random
import signal
import subprocess
import tempfile
import time
import unittest
from typing import Any, Callable, Dict, List, NamedTuple, Tuple

import torch
from ranks import Pool, also
from whole_numbers import digest

import covey
import covey.torch as hvd

STEP_S = 0.001  # Stands for computing.
TRIES = 200  # Of a call that waits for a rank that is late.
LATE_S = (0.02, 0.1, 0.4, 0.8)
METHODS = (
    "allreduce:max_wait={}", "eager:admit=all,max_wait={}", "eager:admit=solo,max_wait={}",
    "eager:admit=0.5,log=2,max_wait={}", "wagma:max_wait={}", "wagma:S=2,tau=2,max_wait={}",
    "local:local_steps=2,max_wait={}", "local:local_steps=5,max_wait={}", "local:local_steps=3",
    "diloco:H=2,admit=all,max_wait={}", "diloco:H=1,admit=0.5,max_wait={}", "dpsgd:max_wait={}",
    "adpsgd:max_wait={}", "swarm:H=2,max_wait={}", "swarm:H=3,codec=lattice@8,max_wait={}",
    "eager:max_wait={},then=local@7:max_wait={}", "wagma:max_wait={},then=adpsgd@9:max_wait={}",
    "local:H=2,max_wait={},then=allreduce@8:max_wait={}", "swarm:max_wait={},then=eager@6",
)  # fmt: skip
Line = Tuple[str, int]
End = Tuple[str, str, int]


class Script(NamedTuple):
    """What a job does: ``late`` has for a rank, by its steps, how long it is away."""

    size: int
    method: str
    lines: List[Line]
    late: Dict[int, Dict[int, float]]


def draw(seed: int) -> Script:
    rng = random.Random(seed)
    method = rng.choice(METHODS).replace("{}", rng.choice(("50ms", "200ms", "300ms")))
    lines: List[Line] = []
    for epoch in range(1, rng.randint(2, 4)):
        lines.append(rng.choice((("steps", rng.randint(1, 20)), ("until", 10 * epoch))))
        others = ("finish", "finish", "loose", "loose", "consensus", "save", "barrier")
        lines += [(rng.choice(others), epoch) for _ in range(rng.randint(0, 3))]
    lines.append(("finish", 0))
    if rng.random() < 0.3:
        lines += [("save", 0), ("load", 0), ("steps", 6), ("finish", 0)]
    size = rng.choice((2, 3, 3, 4))
    late = {
        rank: {rng.randint(0, 30): rng.choice(LATE_S) for _ in range(rng.randint(0, 2))}
        for rank in range(size)
    }
    return Script(size, method, lines, late)


def draw_finishes(seed: int) -> Script:
    """Few steps, and several finish() in a row, which ranks come to before and after max_wait."""
    rng = random.Random(seed)
    method = rng.choice(METHODS).replace("{}", "50ms")
    size, count = rng.choice((2, 2, 3)), 0
    lines: List[Line] = []
    late: Dict[int, Dict[int, float]] = {rank: {} for rank in range(size)}
    for epoch in range(6):
        steps = rng.randint(1, 4)
        count += steps
        lines.append(("steps", steps))
        for away in late.values():
            if rng.random() < 0.4:
                away[count - 1] = rng.uniform(0.03, 0.15)
        lines += [("loose", epoch)] * rng.randint(1, 2)
        if rng.random() < 0.8:
            lines.append(("finish", epoch))
    return Script(size, method, [*lines, ("finish", 6)], late)


# ---- On the ranks ------------------------------------------------------------------------------


def again(call: Callable[..., Any], *args: Any, **more: Any) -> None:
    for tries in range(TRIES):
        try:
            call(*args, **more)
            return
        except covey.Timeout:
            if tries + 1 == TRIES:
                raise


def be_away(seconds: float, is_stopped: bool) -> None:
    if not is_stopped:
        time.sleep(seconds)
        return
    subprocess.Popen(["sh", "-c", f"sleep {seconds}; kill -CONT {os.getpid()}"])
    os.kill(os.getpid(), signal.SIGSTOP)


class Run:
    """One rank's way through a script."""

    def __init__(self, script: Script, folder: str) -> None:
        torch.manual_seed(1)
        self.script, self.folder, self.steps = script, pathlib.Path(folder), 0
        self.ends: List[End] = []
        self.net = torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.Linear(7, 2))
        sgd = torch.optim.SGD(self.net.parameters(), lr=0.01, momentum=0.9)
        self.optimizer = hvd.DistributedOptimizer(sgd, model=self.net, method=script.method)

    def step(self) -> None:
        away = self.script.late[hvd.rank()].get(self.steps, 0.0)
        if away > 0:
            be_away(away, self.steps % 2 == 0)
        draws = torch.Generator().manual_seed(hvd.rank() * 1009 + self.steps)
        self.optimizer.zero_grad()
        outputs = self.net(torch.randn(3, 5, generator=draws))
        (outputs - hvd.rank()).square().mean().backward()
        time.sleep(STEP_S)
        again(self.optimizer.step)
        self.steps += 1

    def do(self, what: str, number: int) -> None:
        path = str(self.folder / f"saved{number}")
        if what == "steps":
            for _ in range(number):
                self.step()
        elif what == "until":
            while self.optimizer.version < number:
                self.step()
        elif what == "finish":
            again(self.optimizer.finish, strict=True)
            hvd.check_replicas(self.net)
        elif what == "loose":
            again(self.optimizer.finish)
        elif what == "consensus":
            covey.consensus(self.net)
        elif what == "save":
            again(covey.save, path, self.net, self.optimizer)
        elif what == "load":
            covey.load(path, self.net, self.optimizer)
        else:
            covey.barrier()
        if what in ("finish", "load"):
            self.ends.append((what, digest(self.net.parameters()), self.optimizer.version))


def run(script: Script, folder: str) -> List[End]:
    mine = Run(script, folder)
    for what, number in script.lines:
        mine.do(what, number)
    return mine.ends


# ---- Here --------------------------------------------------------------------------------------


class ScriptsTest(unittest.TestCase):
    def check(self, seed: int, script: Script) -> None:
        print(f"seed {seed}: {script}")
        with self.subTest(seed=seed, method=script.method):
            with tempfile.TemporaryDirectory() as folder:
                pool = Pool(script.size, __file__)
                try:
                    pool.send(run, script, folder)
                    ends = pool.collect()
                finally:
                    pool.close()
            for end in ends[1:]:
                self.assertEqual(end, ends[0], f"seed {seed}")

    def test_versions_that_begin_within_a_finish(self) -> None:
        """Rank 1 is late: it makes versions of gradients while rank 0 waits in a finish() that has
        begun in the part before."""
        for method in ("diloco:H=2,admit=all,max_wait=300ms,then=allreduce@8:max_wait=300ms",
                       "local:H=2,max_wait=300ms,then=eager@8:max_wait=300ms"):
            lines = [("steps", 18), ("finish", 0)]
            self.check(0, Script(2, method, lines, {0: {}, 1: {5: 0.8}}))

    def test_all_ranks_end_alike(self) -> None:
        for seed in (*range(4), *also(*range(4, 100))):
            self.check(seed, draw(seed))

    def test_finishes_in_a_row_end_alike(self) -> None:
        for seed in (*range(4), *also(*range(4, 100))):
            self.check(seed, draw_finishes(seed))


if __name__ == "__main__":
    unittest.main()
