"""Scripts that are drawn, for the tests of trainers: steps, both kinds of finish(), save, load,
consensus and barrier in any order, by any method, while ranks are late or stopped. All ranks run
the same script. Imported by tests and by their ranks; each test brings the trainer (`Training`).

After each strict finish() and each load that follows one all ranks have the same bits and the same
version; after each load those of this rank that were saved. Each script comes to its end. A
consensus and a barrier leave the version as it was. A call that ends with Timeout is made again.
"""

from __future__ import annotations

import abc
import contextlib
import hashlib
import inspect
import os
import pathlib
import random
import signal
import subprocess
import tempfile
import time
import unittest
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple, Type

from ranks import Pool

import covey
from covey.errors import Timeout

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
    "wagma:warmup_steps=5,max_wait={}", "eager:max_wait={},then=wagma@6:max_wait={}",
    "local:H=2,warmup_steps=4,max_wait={}", "diloco:H=2,warmup_steps=4,max_wait={}",
    "wagma:S=1,warmup_steps=3,max_wait={},then=eager@9:max_wait={}",
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


def draw_saves(seed: int) -> Script:
    """Checkpoints in any order, loaded some steps later, once or several times."""
    rng = random.Random(seed)
    method = rng.choice(METHODS).replace("{}", rng.choice(("50ms", "200ms")))
    size, count = rng.choice((2, 2, 3)), 0
    lines: List[Line] = []
    late: Dict[int, Dict[int, float]] = {rank: {} for rank in range(size)}
    for epoch in range(1, 5):
        steps = rng.randint(1, 6)
        count += steps
        lines += [("steps", steps), ("save", epoch)]
        if rng.random() < 0.3:
            lines.insert(-1, (rng.choice(("loose", "finish", "consensus")), epoch))
        if rng.random() < 0.7:
            more = rng.randint(0, 4)
            count += more
            lines += [("steps", more), ("reload", rng.randint(1, epoch))]
        for away in late.values():
            if rng.random() < 0.3:
                away[count - 1] = rng.choice(LATE_S[:2])
    return Script(size, method, [*lines, ("steps", 3), ("finish", 5)], late)


# ---- On the ranks ------------------------------------------------------------------------------


class Training(abc.ABC):
    """The training of one rank. Gradients depend on the model, the rank and the step.

    Attributes:
        timeout: the error of a call that is made again.
    """

    timeout: Type[Exception] = Timeout

    @abc.abstractmethod
    def step(self, number: int) -> None:
        """Step ``number`` of this rank. Called again after a Timeout, it goes on."""

    @property
    @abc.abstractmethod
    def version(self) -> int: ...

    @abc.abstractmethod
    def finish(self, strict: bool) -> None: ...

    @abc.abstractmethod
    def consensus(self) -> None: ...

    @abc.abstractmethod
    def save(self, path: str) -> None: ...

    @abc.abstractmethod
    def load(self, path: str) -> None: ...

    @abc.abstractmethod
    def parameters(self) -> List[Any]:
        """As arrays of NumPy."""


def be_away(seconds: float, is_stopped: bool) -> None:
    if not is_stopped:
        time.sleep(seconds)
        return
    subprocess.Popen(["sh", "-c", f"sleep {seconds}; kill -CONT {os.getpid()}"])
    os.kill(os.getpid(), signal.SIGSTOP)


class _Run:
    """One rank's way through a script."""

    def __init__(self, training: Training, script: Script, folder: str) -> None:
        self.training, self.folder = training, pathlib.Path(folder)
        self.late, self.steps = script.late[covey.rank()], 0
        self.ends: List[End] = []
        self.saved: Dict[str, Tuple[int, str]] = {}  # Version and digest, by path.

    def again(self, call: Callable[..., Any], *args: Any) -> None:
        for _ in range(TRIES):
            with contextlib.suppress(self.training.timeout):
                return call(*args)
        raise AssertionError(f"{TRIES} times Timeout: {call}")

    def step(self) -> None:
        away = self.late.get(self.steps, 0.0)
        if away > 0:
            be_away(away, self.steps % 2 == 0)
        time.sleep(STEP_S)
        self.again(self.training.step, self.steps)
        self.steps += 1

    def do(self, what: str, number: int) -> None:
        path = str(self.folder / f"saved{number}")
        is_loaded = what in ("load", "reload")
        before = self.saved[path] if is_loaded else (self.training.version, "")
        if what == "steps":
            for _ in range(number):
                self.step()
        elif what == "until":
            while self.training.version < number:
                self.step()
        elif what in ("finish", "loose"):
            self.again(self.training.finish, what == "finish")
        elif what == "consensus":
            self.training.consensus()
        elif what == "save":
            self.again(self.training.save, path)
            self.saved[path] = self.training.version, self.digest()
        elif is_loaded:
            self.again(self.training.load, path)
        else:
            covey.barrier()
        if is_loaded:
            assert (self.training.version, self.digest()) == before, (what, before)
        if what in ("consensus", "barrier"):
            assert self.training.version == before[0], (what, self.training.version, before)
        if what in ("finish", "load"):
            self.ends.append((what, self.digest(), self.training.version))

    def digest(self) -> str:
        data = b"".join(it.tobytes() for it in self.training.parameters())
        return hashlib.blake2b(data, digest_size=8).hexdigest()


def run_script(training: Training, script: Script, folder: str) -> List[End]:
    mine = _Run(training, script, folder)
    for what, number in script.lines:
        mine.do(what, number)
    return mine.ends


# ---- In the test -------------------------------------------------------------------------------


def check(
    test: unittest.TestCase,
    run: Callable[[Script, str], List[End]],
    seed: int,
    script: Script,
    env: Optional[Dict[str, str]] = None,
) -> None:
    """Has the ranks of a job call `run`, a function of the test's module, for `script`."""
    print(f"seed {seed}: {script}")
    with test.subTest(seed=seed, method=script.method):
        with tempfile.TemporaryDirectory() as folder:
            pool = Pool(script.size, inspect.getfile(run), env=env)
            try:
                pool.send(run, script, folder)
                ends = pool.collect()
            finally:
                pool.close()
        for end in ends[1:]:
            test.assertEqual(end, ends[0], f"seed {seed}")
