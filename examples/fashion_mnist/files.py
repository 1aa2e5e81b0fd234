"""Fashion-MNIST from Debian's package dataset-fashion-mnist, or scikit-learn's digits instead, as
NumPy arrays.

Nothing is downloaded. Looked at in this order: the folder given, $FASHION_MNIST, where Debian's
package installs it, `.data/` of this repository, and at last the 1,797 digits that come with
scikit-learn (enlarged to 28 x 28 pixels, so that the same network fits).
"""

from __future__ import annotations

import gzip
import os
import pathlib
from typing import Any, NamedTuple, Optional

import numpy

INSTALLED = pathlib.Path("/usr/share/datasets/fashion-mnist")
UNPACKED = pathlib.Path(__file__).resolve().parents[2] / ".data"
TRAIN_IMAGES = "train-images-idx3-ubyte.gz"


class Arrays(NamedTuple):
    """Pictures and their classes.

    pixels: uint8 [n, 28, 28]. labels: int64 [n], 0 to 9.
    """

    pixels: Any
    labels: Any


class Files(NamedTuple):
    """The result of `read`."""

    name: str
    train: Arrays
    test: Arrays


def read(folder: Optional[str] = None) -> Files:
    """Reads the data set. Raises SystemExit with one line when there is none."""
    found = find(folder)
    if found is not None:
        train = _read(found, "train")
        return Files("Fashion-MNIST", train, _read(found, "t10k"))
    return _digits()


def find(folder: Optional[str] = None) -> Optional[pathlib.Path]:
    """The folder that holds Fashion-MNIST, or None. A folder asked for must hold it."""
    asked = folder or os.environ.get("FASHION_MNIST")
    if asked is not None:
        if not (pathlib.Path(asked) / TRAIN_IMAGES).is_file():
            raise SystemExit(f"{asked} has no {TRAIN_IMAGES}")
        return pathlib.Path(asked)
    if (INSTALLED / TRAIN_IMAGES).is_file():
        return INSTALLED
    below = sorted(UNPACKED.rglob(TRAIN_IMAGES)) if UNPACKED.is_dir() else []
    return below[0].parent if below else None


def _read(folder: pathlib.Path, part: str) -> Arrays:
    """The two files of `part` in the format of MNIST: a header of 16 or 8 bytes, then bytes."""
    with gzip.open(folder / f"{part}-images-idx3-ubyte.gz") as file:
        pixels = numpy.frombuffer(bytearray(file.read()), numpy.uint8, offset=16)
    with gzip.open(folder / f"{part}-labels-idx1-ubyte.gz") as file:
        labels = numpy.frombuffer(file.read(), numpy.uint8, offset=8).astype(numpy.int64)
    return Arrays(pixels.reshape(-1, 28, 28), labels)


def _digits() -> Files:
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise SystemExit(
            "no data: apt-get install dataset-fashion-mnist, or pip install scikit-learn"
        ) from None
    digits = load_digits()
    small = (digits.images * (255 / 16)).astype(numpy.uint8)
    pixels = numpy.pad(small.repeat(3, 1).repeat(3, 2), [(0, 0), (2, 2), (2, 2)])
    labels = digits.target.astype(numpy.int64)
    order = numpy.random.default_rng(0).permutation(len(labels))
    test, train = order[:300], order[300:]
    return Files(
        "scikit-learn's digits",
        Arrays(pixels[train], labels[train]),
        Arrays(pixels[test], labels[test]),
    )
