"""Jobs with a warm-up, or that go from one method to another, for the tests of ranks that are
stopped or killed there: what their ranks do until there is a file `end`."""

from __future__ import annotations

import math
import os
import signal
import time
import unittest
from typing import Any, Callable, Dict, List, NamedTuple

import torch
import trainings
from nets import batch_of, loss_of, make_net
from ranks import SEED
from watched import Report, Watched, finish
from whole_numbers import Trainer, digest, watch

import covey
import covey.torch as hvd
from covey.torch.trainer.core_trainer import CoreTrainer
from covey.trainer_handle import Verb

WARMUP = 40
STEP_S = 0.002  # Stands for computing: else others are in their thousandth step before it is seen.


class End(NamedTuple):
    """Of a rank that has trained until there was a file `end`."""

    model: str
    version: int
    steps: int
    overdue: List[int]
    error: str
    numbers: List[float]
    seen: Dict[int, str]
    at_end: List[str]  # Of the warm-up: hashes of parameters and of what the optimizer keeps.
    by: str = ""  # The trainer that it has ended with.


def all_of(optimizer: Any) -> str:
    """A hash of the parameters and of what the optimizer keeps."""
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    kept = [optimizer.state[p][key] for p in parameters for key in sorted(optimizer.state[p])]
    return digest([*parameters, *kept])


def note_hand_over(optimizer: Any) -> List[str]:
    """From now on: what is there when the rank goes on with models."""
    hashes: List[str] = []
    whole = CoreTrainer._do

    def noted(self: Any, *action: Any) -> None:
        if action[0] == Verb.COLLECT_MODEL and not hashes:
            hashes.append(all_of(optimizer))
        whole(self, *action)

    CoreTrainer._do = noted  # type: ignore[method-assign]
    return hashes


def count_until(folder: str, method: str, op: int) -> End:
    """Gradients of whole numbers."""
    trainer = Trainer(method, op=op)
    optimizer, report = trainer.optimizer, Report(folder, hvd.rank())
    while report.goes_on:
        trainer.step()
        report.write(optimizer.version, trainings.missing(optimizer))
    error = finish(optimizer)
    model = digest([trainer.parameter])
    overdue = trainings.overdue(optimizer)
    parameters = trainer.parameter.tolist()
    return End(model, optimizer.version, trainer.steps, overdue, error, parameters, trainer.seen,
               [])


def is_done(step: Callable[[], Any]) -> bool:
    """Whether the step has come to its end; else the next call goes on with it."""
    try:
        step()
    except covey.Timeout:
        return False
    return True


def goes_on(report: Report, optimizer: Any) -> bool:
    """Where each step waits for all, all have to do equally many."""
    if optimizer._covey_progress.plan.in_rounds:
        return report.goes_on
    ends = torch.tensor(0 if report.goes_on else 1)
    return int(hvd.allreduce(ends, op=hvd.Max, name="ends")) == 0


def adam_until(folder: str, method: str, stopped: int, stops_at: int) -> End:
    """Adam, with a learning rate that rises in the warm-up and falls like a cosine afterwards."""
    net = make_net()
    adam = torch.optim.Adam(net.parameters(), lr=0.01)
    optimizer = hvd.DistributedOptimizer(adam, model=net, method=method)

    def rate(step: int) -> float:
        return (step + 1) / WARMUP if step < WARMUP else 1 + math.cos(step / 200)

    scheduler = torch.optim.lr_scheduler.LambdaLR(adam, rate)
    seen, at_end = watch(optimizer, list(net.parameters())), note_hand_over(optimizer)
    report = Report(folder, hvd.rank())
    steps = 0
    while goes_on(report, optimizer):
        optimizer.zero_grad()
        loss_of(net, batch_of(steps, hvd.rank())).backward()
        time.sleep(STEP_S)
        steps += 1
        if hvd.rank() == stopped and steps == stops_at:
            os.kill(os.getpid(), signal.SIGSTOP)
        while not is_done(optimizer.step):
            pass  # A method ends, and a rank is missing.
        scheduler.step()
        if not optimizer._covey_progress.plan.in_rounds:  # A late rank has done fewer steps.
            for group in optimizer.param_groups:
                group["lr"] = 0.01 * rate(optimizer.version)
        report.write(optimizer.version, trainings.missing(optimizer))
    error = finish(optimizer)
    return End(digest(net.parameters()), optimizer.version, steps, [], error, [], seen, at_end,
               trainings.by(optimizer))


def apart_until(folder: str, stopped: int, stops_at: int, looks: bool) -> End:
    """After the warm-up each goes on alone: what its model is before finish(). ``looks``: who was
    stopped takes up what there is before its next pass, as at zero_grad()."""
    trainer = Trainer(
        f"local:local_steps=1000000,max_wait=300ms,warmup_steps={WARMUP}", op=hvd.Average
    )
    optimizer, report = trainer.optimizer, Report(folder, hvd.rank())
    while report.goes_on:
        if hvd.rank() == stopped and trainer.steps == stops_at:
            os.kill(os.getpid(), signal.SIGSTOP)
            if looks:
                optimizer._covey_trainer.catch_up()
        time.sleep(STEP_S)
        trainer.step()
        report.write(optimizer.version)
    numbers = trainer.parameter.tolist()
    error = finish(optimizer)
    return End(digest([trainer.parameter]), optimizer.version, trainer.steps, [], error, numbers,
               {}, [])


class WarmupTest(unittest.TestCase):
    """What such tests look at."""

    def check_alike(self, results: List[End]) -> None:
        """In the end, and at each version that two of them have."""
        self.assertEqual([end.error for end in results], [""] * len(results))
        self.assertEqual(len({end.model for end in results}), 1, f"seed {SEED}")
        for end in results[1:]:
            for version in end.seen.keys() & results[0].seen.keys():
                self.assertEqual(end.seen[version], results[0].seen[version], version)


class SwitchTest(WarmupTest):
    """What tests of a rank look at that is missing where one method follows another."""

    def check_switch(
        self, file: str, size: int, stopped: int, method: str, by: str, goes_on: bool = True
    ) -> None:
        """A rank stops at step WARMUP - 30. The others go on past WARMUP, or to 19 and no further;
        when it is back all end by the trainer ``by``, and are equal."""
        with Watched(size, file, adam_until, method, stopped, WARMUP - 30) as job:
            job.wait_until_stopped(stopped)
            for other in set(range(size)) - {stopped}:
                job.wait_for_version(other, WARMUP + 40 if goes_on else 19)
            job.go_on(stopped)
            job.wait_for_version(stopped, WARMUP + 200)
            results = job.end()
        self.assertEqual([end.by for end in results], [by] * size)
        is_alike = by == "gradients" and method.startswith("allreduce")
        self.check_alike([end if is_alike else end._replace(seen={}) for end in results])
