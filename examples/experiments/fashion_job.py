"""What the ranks of `fashion.py` do: trainings one after the other, all by the same loop."""

from __future__ import annotations

import pathlib
import sys
import time
from typing import Any, Dict, List, NamedTuple

import torch
import torch.distributed
import torch.nn.functional as functional
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import covey
import covey.torch as hvd
from covey.inject import Schedule, parse

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "fashion_mnist"))
from data import Images, load  # noqa: E402

DDP = "ddp"
BATCH = 64  # Per rank.
HELD_BACK = 10_000  # Of the training images: the validation split.
WARM_UP = 0.1  # Of the steps.


class Run(NamedTuple):
    """One training.

    Attributes:
        method: a method's text, or DDP.
        lr: the peak of the learning rate.
        steps: of every rank.
        evaluations: so often, at equal distances, replicas are made equal and looked at.
        seed: of the weights and of the order of the images.
        inject: delays as `covey.inject` writes them; empty: none, and no sleeping for computing.
        base_s: seconds that a step computes, mostly by sleeping.
        is_test: looks at the test set, else at the validation split.
    """

    method: str
    lr: float
    steps: int
    evaluations: int
    seed: int
    inject: str
    base_s: float
    is_test: bool


class Data(NamedTuple):
    """On every rank all images, as they are and as the network takes them."""

    train: Images
    validation: Images
    test: Images


def read_data() -> Data:
    found = load()

    def part(images: Images, some: slice) -> Images:
        pixels = (images.pixels[some].flatten(1).float() / 255 - 0.286) / 0.353
        return Images(pixels, images.labels[some])

    kept = len(found.train.labels) - min(HELD_BACK, len(found.train.labels) // 5)
    return Data(
        part(found.train, slice(0, kept)),
        part(found.train, slice(kept, None)),
        part(found.test, slice(None)),
    )


def make_model() -> nn.Module:
    """101,770 parameters."""
    return nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))


def my_batch(images: Images, run: Run, step: int) -> torch.Tensor:
    """Indices: every rank draws the same order and takes its part of it."""
    together = BATCH * hvd.size()
    per_epoch = max(1, len(images.labels) // together)
    epoch, place = divmod(step, per_epoch)
    generator = torch.Generator().manual_seed(run.seed * 1000 + epoch)
    order = torch.randperm(len(images.labels), generator=generator)
    return order[place * together + hvd.rank() : (place + 1) * together : hvd.size()]


def accuracy(model: nn.Module, images: Images) -> float:
    """In percent, each rank looking at its share."""
    mine = slice(hvd.rank(), None, hvd.size())
    pixels, labels = images.pixels[mine], images.labels[mine]
    with torch.no_grad():
        right = (model(pixels).argmax(dim=1) == labels).sum().double()
    counts = torch.tensor([float(right), float(len(labels))], dtype=torch.float64)
    counts = hvd.allreduce(counts, op=hvd.Sum, name="evaluation")
    return 100 * float(counts[0] / counts[1])


class Trainee:
    """A model, its optimizer, and how replicas become equal."""

    def __init__(self, run: Run) -> None:
        torch.manual_seed(run.seed)
        self.model: Any = make_model()
        self.optimizer: Any = torch.optim.SGD(
            self.model.parameters(), lr=run.lr, momentum=0.9, nesterov=True, weight_decay=5e-4
        )
        if run.method == DDP:
            self.model = DistributedDataParallel(self.model)
            self.finish = hvd.barrier
        else:
            self.optimizer = hvd.DistributedOptimizer(
                self.optimizer, model=self.model, method=run.method
            )
            self.finish = self.optimizer.finish

    def step(self, images: Images, batch: torch.Tensor, lr: float) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        self.optimizer.zero_grad()
        output = self.model(images.pixels[batch])
        functional.cross_entropy(output, images.labels[batch]).backward()
        self.optimizer.step()


def rate(run: Run, step: int) -> float:
    """Up linearly, then down linearly to zero."""
    warm_up = max(1, round(WARM_UP * run.steps))
    return run.lr * min((step + 1) / warm_up, (run.steps - step) / (run.steps - warm_up + 1))


def train(run: Run, data: Data) -> Dict[str, Any]:
    """Figures of this rank: seconds until each evaluation, without those, and the accuracy."""
    trainee, delays = Trainee(run), parse(run.inject) if run.inject else Schedule(())
    images = data.test if run.is_test else data.validation
    each = run.steps // run.evaluations
    seconds: List[float] = [0.0]
    processor_s, accuracies, computing_s = 0.0, [], 0.0
    for step in range(run.steps):
        if step % each == 0:
            hvd.barrier()
            began, processor = time.monotonic(), time.process_time()
        if run.inject:
            time.sleep(max(0.0, run.base_s - computing_s))
        computes = time.monotonic()
        batch = my_batch(data.train, run, step)
        computing_s = time.monotonic() - computes
        trainee.step(data.train, batch, rate(run, step))
        time.sleep(delays.delay(step, hvd.rank(), hvd.size()).seconds)
        if (step + 1) % each == 0:
            trainee.finish()
            seconds.append(seconds[-1] + time.monotonic() - began)
            processor_s += time.process_time() - processor
            accuracies.append(accuracy(trainee.model, images))
    covey.check_replicas(trainee.model)
    return {"seconds": seconds[1:], "accuracies": accuracies, "processor_s": processor_s}


def job(runs: List[Run], folder: str) -> List[List[Dict[str, Any]]]:
    """By run the figures of all ranks. On every rank; `folder`: an empty one of the job's."""
    hvd.init()
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/gloo", rank=hvd.rank(), world_size=hvd.size()
    )
    data = read_data()
    warm = Run("allreduce", 0.01, 2, 1, 0, "", 0.0, False)
    for method in dict.fromkeys(run.method for run in runs):  # Done once, so not timed.
        train(warm._replace(method=method), data)
    found = []
    for run in runs:
        found.append(hvd.allgather_object(train(run, data), name="figures"))
    torch.distributed.destroy_process_group()
    return found
