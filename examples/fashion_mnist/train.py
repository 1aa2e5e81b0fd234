"""Trains a small convolutional network on Fashion-MNIST with data-parallel SGD.

    coveyrun -np 4 python train.py          four workers
    python train.py                         the same script, alone

Every rank starts from rank 0's weights, works on its share of each epoch and averages its gradients
with the others' while backward still runs. At the end all ranks hold the same bits, and rank 0
prints what each rank did and draws fashion_mnist.png.
"""

from __future__ import annotations

import argparse
import os
import time
from typing import Any, Dict, List, Tuple

import torch
import torch.nn.functional as functional
from torch import nn

import covey
import covey.torch as hvd
from data import Dataset, Images, load

MEAN, DEVIATION = 0.2860, 0.3530  # of Fashion-MNIST's pixels in 0..1
WARM_UP_EPOCHS = 0.5


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Fashion-MNIST, data parallel.")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=64, help="per rank")
    parser.add_argument("--lr", type=float, default=0.04, help="for one rank; times lr_scale()")
    parser.add_argument("--weight-decay", type=float, default=5e-4)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--max-steps", type=int, help="at most so many steps per epoch")
    parser.add_argument("--data", metavar="DIR", help="folder with the four .gz files")
    parser.add_argument("--out", default=".", metavar="DIR", help="folder for fashion_mnist.png")
    return parser.parse_args()


def make_model() -> nn.Module:
    """106,122 parameters."""
    return nn.Sequential(
        nn.Conv2d(1, 16, kernel_size=5, stride=2, padding=2),
        nn.ReLU(),
        nn.Conv2d(16, 32, kernel_size=3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * 7 * 7, 64),
        nn.ReLU(),
        nn.Linear(64, 10),
    )


def to_input(pixels: torch.Tensor) -> torch.Tensor:
    return (pixels.float() / 255 - MEAN) / DEVIATION


def waited_s() -> float:
    """Seconds this rank has been blocked in operations since init."""
    return covey.stats()["blocked_ns"] / 1e9


class Schedule:
    """The learning rate: up linearly during the warm-up, then down linearly to zero.

    The peak is the rate for one rank times lr_scale(), with most methods the number of ranks (the
    batch is so much larger). It needs the warm-up (Goyal et al., 2017, arXiv:1706.02677).
    """

    def __init__(self, optimizer: torch.optim.Optimizer, steps: int, warm_up_steps: int) -> None:
        self.optimizer, self.steps, self.warm_up_steps = optimizer, steps, warm_up_steps
        self.peak = optimizer.param_groups[0]["lr"]
        self.done = 0

    def step(self) -> None:
        up = (self.done + 1) / max(1, self.warm_up_steps)
        down = (self.steps - self.done) / max(1, self.steps - self.warm_up_steps)
        for group in self.optimizer.param_groups:
            group["lr"] = self.peak * min(1.0, up, down)
        self.done += 1


def my_batches(images: Images, epoch: int, args: argparse.Namespace) -> List[torch.Tensor]:
    """Indices of this rank's batches: every rank draws the same order and takes its part of it."""
    generator = torch.Generator().manual_seed(args.seed * 1000 + epoch)
    order = torch.randperm(len(images.labels), generator=generator)
    steps = len(order) // (args.batch_size * hvd.size())
    steps = min(steps, args.max_steps or steps)
    mine = order[hvd.rank() :: hvd.size()]
    return list(mine[: steps * args.batch_size].split(args.batch_size))


def evaluate(model: nn.Module, test: Images) -> Tuple[float, float]:
    """Mean loss and accuracy over the whole test set, each rank looking at its share."""
    model.eval()
    sums = torch.zeros(3, dtype=torch.float64)
    pixels, labels = test.pixels[hvd.rank() :: hvd.size()], test.labels[hvd.rank() :: hvd.size()]
    with torch.no_grad():
        for some, wanted in zip(pixels.split(500), labels.split(500)):
            output = model(to_input(some))
            sums[0] += functional.cross_entropy(output, wanted, reduction="sum").double()
            sums[1] += (output.argmax(dim=1) == wanted).sum()
            sums[2] += len(wanted)
    model.train()
    sums = hvd.allreduce(sums, op=hvd.Sum, name="evaluation")
    return float(sums[0] / sums[2]), float(sums[1] / sums[2])


def train_epoch(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    schedule: Schedule,
    train: Images,
    batches: List[torch.Tensor],
) -> float:
    """One pass over this rank's batches. Returns its mean loss."""
    total = torch.zeros(())
    for batch in batches:
        schedule.step()
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(to_input(train.pixels[batch])), train.labels[batch])
        loss.backward()
        optimizer.step()
        total += loss.detach()
    return float(total) / max(1, len(batches))


def train(data: Dataset, args: argparse.Namespace) -> Tuple[nn.Module, List[Dict], Dict]:
    """Returns the model, one row per epoch, and this rank's figures for the closing table."""
    torch.manual_seed(args.seed)
    model = make_model()
    optimizer: Any = torch.optim.SGD(
        model.parameters(),
        lr=args.lr * hvd.lr_scale(),
        momentum=0.9,
        nesterov=True,
        weight_decay=args.weight_decay,
    )
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)

    per_epoch = len(my_batches(data.train, 0, args))
    warm_up = int(WARM_UP_EPOCHS * per_epoch) if args.epochs > 1 else per_epoch // 4
    schedule = Schedule(optimizer, args.epochs * per_epoch, warm_up)
    rows, mine = [], {"rank": hvd.rank(), "steps": 0, "seconds": 0.0, "waiting": 0.0}
    for epoch in range(args.epochs):
        batches = my_batches(data.train, epoch, args)
        began, waited = time.perf_counter(), waited_s()
        loss = train_epoch(model, optimizer, schedule, data.train, batches)
        optimizer.finish()  # where the method lets replicas differ, they are equal from here on
        seconds, waiting = time.perf_counter() - began, waited_s() - waited
        mine["steps"] += len(batches)
        mine["seconds"] += seconds
        mine["waiting"] += waiting
        test_loss, accuracy = evaluate(model, data.test)
        images = len(batches) * args.batch_size * hvd.size()
        rows.append({"loss": loss, "test_loss": test_loss, "accuracy": accuracy})
        if hvd.rank() == 0:
            print(
                f"epoch {epoch + 1}/{args.epochs}  loss {loss:.3f}  test loss {test_loss:.3f}  "
                f"accuracy {accuracy:.2%}  {images / seconds:,.0f} images/s  "
                f"waiting {waiting:.1f} of {seconds:.1f} s"
            )
    return model, rows, mine


def print_table(ranks: List[Dict], batch_size: int) -> None:
    """What every rank did; the last column compares the hashes of the parameters."""
    print("rank  steps  images/s  waiting s  computing s  parameters")
    for row in ranks:
        speed = row["steps"] * batch_size / max(row["seconds"], 1e-9)
        computing = row["seconds"] - row["waiting"]
        same = "equal" if row["hash"] == ranks[0]["hash"] else "DIFFERENT"
        print(
            f"{row['rank']:4}  {row['steps']:5}  {speed:8,.0f}  {row['waiting']:9.1f}  "
            f"{computing:11.1f}  {row['hash']} {same}"
        )


def parameters_hash(model: nn.Module) -> str:
    """Eight digits that differ when any bit of any parameter differs."""
    value = 0
    for parameter in model.parameters():
        for word in parameter.detach().view(torch.int32).flatten().tolist():
            value = (value * 1000003 + word) & 0xFFFFFFFF
    return f"{value:08x}"


def draw(rows: List[Dict], path: str, title: str) -> None:
    """The training curves as a picture, where matplotlib is installed."""
    try:
        import matplotlib
    except ImportError:
        print(f"no {path}: matplotlib is not installed")
        return
    matplotlib.use("Agg")
    from matplotlib import pyplot

    epochs = range(1, len(rows) + 1)
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    left.plot(epochs, [row["loss"] for row in rows], "o-", label="training (rank 0)")
    left.plot(epochs, [row["test_loss"] for row in rows], "s-", label="test")
    left.set(xlabel="epoch", ylabel="loss")
    left.legend()
    right.plot(epochs, [100 * row["accuracy"] for row in rows], "s-", color="tab:green")
    right.set(xlabel="epoch", ylabel="test accuracy, %")
    for axes in (left, right):
        axes.grid(alpha=0.3)
        axes.set_xticks(list(epochs))
    figure.suptitle(title)
    figure.savefig(path, dpi=120)
    print(f"wrote {path}")


def main() -> None:
    args = parse_arguments()
    began = time.perf_counter()
    hvd.init()
    data = load(args.data)
    model, rows, mine = train(data, args)
    covey.check_replicas(model)  # raises, naming the tensor, when a bit differs between ranks
    mine["hash"] = parameters_hash(model)
    ranks = hvd.allgather_object(mine, name="closing table")
    if hvd.rank() == 0:
        print_table(ranks, args.batch_size)
        accuracy, seconds = rows[-1]["accuracy"], time.perf_counter() - began
        workers = "1 rank" if hvd.size() == 1 else f"{hvd.size()} ranks"
        title = f"{data.name}: {accuracy:.2%} after {seconds:.0f} s with {workers}"
        print(title)
        os.makedirs(args.out, exist_ok=True)
        draw(rows, os.path.join(args.out, "fashion_mnist.png"), title)


if __name__ == "__main__":
    main()
