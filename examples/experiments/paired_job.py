"""What the ranks of `paired.py` do: trainings one after the other, all by the same loop."""

from __future__ import annotations

import contextlib
import math
import time
from typing import Any, ContextManager, Dict, List, NamedTuple

import torch
import torch.distributed
from tasks import TASKS, Data, Part, Task
from torch.nn.parallel import DistributedDataParallel

import covey
import covey.torch as hvd
from covey.inject import Schedule, parse

DDP = "ddp"
WARM_UP = 0.1  # Of the steps.


class Run(NamedTuple):
    """One training.

    Attributes:
        task: the name of what is trained.
        method: a method's text, or DDP.
        lr: the peak of the learning rate.
        steps: of every rank.
        evaluations: so often, at equal distances, the mean of the models is looked at.
        seed: of the weights and of the order of the points.
        inject: delays as `covey.inject` writes them; empty: none, and no sleeping for computing.
        base_s: seconds that a step computes, mostly by sleeping, if anything is injected.
        is_test: looks at the test set, else at the validation split.
    """

    task: str
    method: str
    lr: float
    steps: int
    evaluations: int
    seed: int
    inject: str
    base_s: float
    is_test: bool


def my_batch(part: Part, task: Task, run: Run, step: int) -> Part:
    """Every rank draws the same order and takes its part of it."""
    together = task.batch * hvd.size()
    per_epoch = max(1, len(part.wanted) // together)
    epoch, place = divmod(step, per_epoch)
    generator = torch.Generator().manual_seed(run.seed * 1000 + epoch)
    order = torch.randperm(len(part.wanted), generator=generator)
    return part.of(order[place * together + hvd.rank() : (place + 1) * together : hvd.size()])


def score(model: Any, part: Part, task: Task) -> float:
    """Each rank looks at its share."""
    mine = part.of(slice(hvd.rank(), None, hvd.size()))
    with torch.no_grad():
        count = task.count(model(mine.inputs), mine.wanted).double()
    sums = torch.tensor([float(count), float(len(mine.wanted))], dtype=torch.float64)
    sums = hvd.allreduce(sums, op=hvd.Sum, name="evaluation")
    return task.score(float(sums[0]), float(sums[1]))


class Trainee:
    """A model and its optimizer."""

    def __init__(self, run: Run, task: Task) -> None:
        torch.manual_seed(run.seed)
        self.model: Any = task.make()
        self.optimizer: Any = torch.optim.SGD(
            self.model.parameters(), lr=run.lr, momentum=task.momentum,
            nesterov=task.momentum > 0, weight_decay=task.weight_decay,
        )
        self._is_ddp = run.method == DDP
        self._is_late = run.method.startswith("eager")  # Gradients may be on their way.
        if self._is_ddp:
            self.model = DistributedDataParallel(self.model)
        else:
            self.optimizer = hvd.DistributedOptimizer(
                self.optimizer, model=self.model, method=run.method
            )

    def step(self, task: Task, batch: Part, lr: float) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        self.optimizer.zero_grad()
        task.loss(self.model(batch.inputs), batch.wanted).backward()
        self.optimizer.step()

    def gather_in(self) -> None:
        """Nothing is on its way any more."""
        if self._is_late:
            self.optimizer.finish()

    def mean(self) -> ContextManager[Any]:
        """Within it the model is the exact mean of all ranks' models, and on exit as it was."""
        if self._is_ddp:
            return contextlib.nullcontext()
        return covey.consensus(self.model, exact=True)

    def finish(self) -> None:
        if not self._is_ddp:
            self.optimizer.finish()


def rate(run: Run, step: int) -> float:
    """Up linearly, then down linearly to zero."""
    warm_up = max(1, round(WARM_UP * run.steps))
    return run.lr * min((step + 1) / warm_up, (run.steps - step) / (run.steps - warm_up + 1))


def longest(seconds: float) -> float:
    """Of all ranks'."""
    mine = torch.tensor([seconds], dtype=torch.float64)
    return float(hvd.allreduce(mine, op=hvd.Max, name="seconds"))


def train(run: Run, data: Data) -> Dict[str, Any]:
    """Figures of this rank. By evaluation: seconds until then, without those that looking at
    models took; the score of the mean of all models (not finite: None), in the end that of the
    model that finish() leaves; how far models are apart."""
    task = TASKS[run.task]
    trainee, delays = Trainee(run, task), parse(run.inject) if run.inject else Schedule(())
    part = data.test if run.is_test else data.validation
    each = run.steps // run.evaluations
    seconds, scores, distances = [0.0], [], []
    processor_s, computing_s = 0.0, 0.0
    for step in range(run.steps):
        if step % each == 0:
            hvd.barrier()
            began, processor = time.monotonic(), time.process_time()
        if run.inject:
            time.sleep(max(0.0, run.base_s - computing_s))
        computes = time.monotonic()
        batch = my_batch(data.train, task, run, step)
        computing_s = time.monotonic() - computes
        trainee.step(task, batch, rate(run, step))
        time.sleep(delays.delay(step, hvd.rank(), hvd.size()).seconds)
        if (step + 1) % each == 0:
            trainee.gather_in()
            took, used = time.monotonic() - began, time.process_time() - processor
            seconds.append(seconds[-1] + longest(took))
            processor_s += used
            with trainee.mean() as seen:
                distances.append(0.0 if seen is None else seen.distance)
                scores.append(score(trainee.model, part, task))
    trainee.finish()
    scores[-1] = score(trainee.model, part, task)
    covey.check_replicas(trainee.model)
    known = [one if math.isfinite(one) else None for one in scores]
    apart = [one if math.isfinite(one) else None for one in distances]
    return {"seconds": seconds[1:], "scores": known, "distances": apart,
            "processor_s": processor_s}


def job(runs: List[Run], folder: str) -> List[List[Dict[str, Any]]]:
    """By run, all of one task, the figures of all ranks. On every rank; `folder`: an empty one of
    the job's."""
    hvd.init()
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/gloo", rank=hvd.rank(), world_size=hvd.size()
    )
    task = runs[0].task
    data = TASKS[task].load()
    warm = Run(task, "allreduce", 1e-3, 2, 1, 0, "", 0.0, False)
    for method in dict.fromkeys(run.method for run in runs):  # Done once, so not timed.
        train(warm._replace(method=method), data)
    found = []
    for run in runs:
        found.append(hvd.allgather_object(train(run, data), name="figures"))
    torch.distributed.destroy_process_group()
    return found
