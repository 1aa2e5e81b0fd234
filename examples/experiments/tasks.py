"""What is trained in the paired experiments: data, model, loss, and how well a model does."""

from __future__ import annotations

import pathlib
import sys
from typing import Any, Callable, Dict, NamedTuple, Tuple

import torch
import torch.nn.functional as functional
from torch import nn

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "fashion_mnist"))
from data import Images, load  # noqa: E402


class Part(NamedTuple):
    """Inputs with what is to be found of each."""

    inputs: torch.Tensor
    wanted: torch.Tensor

    def of(self, some: Any) -> "Part":
        return Part(self.inputs[some], self.wanted[some])


class Data(NamedTuple):
    """The same on every rank."""

    train: Part
    validation: Part
    test: Part


class Task(NamedTuple):
    """One training problem, and how long its steps take.

    Attributes:
        title: for the picture.
        base_s: seconds that a step computes, mostly by sleeping.
        delay_us: by which one random rank is late in each step.
        steps: of all methods at equal samples, and of those that wait for all in any case; a
            multiple of the evaluations and, divided by them, odd: models are looked at in the
            middle of their local steps.
        batch: per rank.
        rates: the grid of learning rates, one for all methods.
        momentum, weight_decay: of SGD, momentum is Nesterov's.
        unit: of the score.
        is_better_above: whether more of it is better.
        margin: how much worse is not inferior yet.
        target: a score, fixed beforehand.
        load: its data.
        make: its model.
        loss: of outputs and what was wanted.
        count: what is summed over points for the score.
        score: of the sum, and how many points there are.
    """

    title: str
    base_s: float
    delay_us: int
    steps: int
    batch: int
    rates: Tuple[float, ...]
    momentum: float
    weight_decay: float
    unit: str
    is_better_above: bool
    margin: float
    target: float
    load: Callable[[], Data]
    make: Callable[[], nn.Module]
    loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
    count: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
    score: Callable[[float, float], float]


# ---- Fashion-MNIST -----------------------------------------------------------------------------

_HELD_BACK = 10_000  # Of the training images: the validation split.


def _images() -> Data:
    found = load()

    def part(images: Images, some: slice) -> Part:
        pixels = (images.pixels[some].flatten(1).float() / 255 - 0.286) / 0.353
        return Part(pixels, images.labels[some])

    kept = len(found.train.labels) - min(_HELD_BACK, len(found.train.labels) // 5)
    return Data(
        part(found.train, slice(0, kept)),
        part(found.train, slice(kept, None)),
        part(found.test, slice(None)),
    )


def _classifier() -> nn.Module:
    """101,770 parameters."""
    return nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))


def _right(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return (outputs.argmax(dim=1) == labels).sum()


# ---- Hyperplane regression ---------------------------------------------------------------------

_FEATURES, _POINTS, _OTHERS = 1024, 32768, 8192


def _points() -> Data:
    """Of a plane with noise of variance 1."""
    plane = torch.randn(_FEATURES, generator=torch.Generator().manual_seed(0))

    def part(seed: int, count: int) -> Part:
        generator = torch.Generator().manual_seed(seed)
        inputs = torch.randn(count, _FEATURES, generator=generator)
        return Part(inputs, inputs @ plane + torch.randn(count, generator=generator))

    return Data(part(1, _POINTS), part(2, _OTHERS), part(3, _OTHERS))


class _Plane(nn.Module):
    """1,024 parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.zeros(_FEATURES))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return inputs @ self.weights


def _squares(outputs: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    return (outputs - values).square().sum()


TASKS: Dict[str, Task] = {
    "fashion": Task(
        title="Fashion-MNIST", base_s=0.020, delay_us=60_000, steps=234, batch=64,
        rates=(0.05, 0.1, 0.2, 0.4), momentum=0.9, weight_decay=5e-4,
        unit="% accuracy", is_better_above=True, margin=0.5, target=86.5,
        load=_images, make=_classifier, loss=functional.cross_entropy, count=_right,
        score=lambda right, points: 100 * right / points,
    ),
    # eager-SGD's, times x 0.1. The score is by how much the mean square error is above the noise.
    "hyperplane": Task(
        title="hyperplane regression", base_s=0.0325, delay_us=30_000, steps=126, batch=256,
        rates=(0.0125, 0.025, 0.05, 0.1), momentum=0.0, weight_decay=0.0,
        unit="% excess error", is_better_above=False, margin=0.5, target=5.0,
        load=_points, make=_Plane, loss=functional.mse_loss, count=_squares,
        score=lambda squares, points: 100 * (squares / points - 1),
    ),
}
