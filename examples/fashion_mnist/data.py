"""The data set of `files.py` as tensors of torch."""

from __future__ import annotations

from typing import NamedTuple, Optional

import torch

from files import Arrays, read


class Images(NamedTuple):
    """Pictures and their classes.

    pixels: uint8 [n, 1, 28, 28]. labels: int64 [n], 0 to 9.
    """

    pixels: torch.Tensor
    labels: torch.Tensor


class Dataset(NamedTuple):
    """What `load` returns."""

    name: str
    train: Images
    test: Images


def load(folder: Optional[str] = None) -> Dataset:
    """Reads the data set. Raises SystemExit with one line when there is none."""
    files = read(folder)
    return Dataset(files.name, _tensors(files.train), _tensors(files.test))


def _tensors(arrays: Arrays) -> Images:
    return Images(torch.from_numpy(arrays.pixels).unsqueeze(1), torch.from_numpy(arrays.labels))
