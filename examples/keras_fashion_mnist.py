"""Fashion-MNIST by Keras's fit(), by any method:

    coveyrun -np 4 --method eager python keras_fashion_mnist.py

Each rank trains on its share of the images. The callbacks are Horovod's. At the end all ranks have
the same model, and each evaluates it on its share of the test images. The files of the data set are
those of the example for PyTorch, and so are network and schedule; torch is not needed. By allreduce
2 ranks have an accuracy of 90.59% after 3 epochs, and those of fashion_mnist/train.py one of 90.85%
(one run each, 2026-11-27).
"""

from __future__ import annotations

import argparse
import hashlib
import pathlib
import sys
import time
from typing import Any, Tuple

import keras
import numpy

import covey
import covey.keras as hvd

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "fashion_mnist"))
from files import Arrays, read  # noqa: E402  # pylint: disable=wrong-import-position

MEAN, DEVIATION = 0.2860, 0.3530  # Of Fashion-MNIST's pixels in 0..1.
WARM_UP_EPOCHS = 0.5


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Fashion-MNIST, data parallel, by Keras.")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=64, help="per rank")
    parser.add_argument("--lr", type=float, default=0.04, help="for one rank; times lr_scale()")
    parser.add_argument("--weight-decay", type=float, default=5e-4)
    parser.add_argument("--max-steps", type=int, help="at most so many steps per epoch")
    parser.add_argument("--data", metavar="DIR", help="folder with the four .gz files")
    return parser.parse_args()


def make_model() -> keras.Model:
    """106,122 parameters."""
    return keras.Sequential(
        [
            keras.Input([28, 28, 1]),
            keras.layers.Conv2D(16, 5, strides=2, padding="same", activation="relu"),
            keras.layers.Conv2D(32, 3, padding="same", activation="relu"),
            keras.layers.MaxPooling2D(),
            keras.layers.Flatten(),
            keras.layers.Dense(64, activation="relu"),
            keras.layers.Dense(10),
        ]
    )


def rate_at(epoch: float, epochs: int) -> float:
    """Up linearly during the warm-up (Goyal et al., 2017, arXiv:1706.02677), then down to zero."""
    warm_up = min(WARM_UP_EPOCHS, epochs / 4)
    return min(1.0, (epoch + 0.01) / warm_up, (epochs - epoch) / (epochs - warm_up))


def share(images: Arrays, most: int) -> Tuple[Any, Any]:
    """Pixels [n, 28, 28, 1] and labels [n] of this rank, equally many on each."""
    count = min(len(images.labels) // hvd.size(), most)
    mine = slice(hvd.rank(), hvd.size() * count, hvd.size())
    pixels = images.pixels[mine, :, :, numpy.newaxis].astype("float32")
    return (pixels / 255 - MEAN) / DEVIATION, images.labels[mine]


class Pace(keras.callbacks.Callback):
    """The first rank prints how many images of all ranks each epoch has trained per second."""

    def __init__(self, images: int) -> None:
        super().__init__()
        self._images, self._began = images, 0.0

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._began = time.perf_counter()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        if hvd.rank() == 0:
            seconds = time.perf_counter() - self._began
            print(f"epoch {epoch + 1}: {self._images / seconds:,.0f} images/s", flush=True)


def main() -> None:
    args = parse_arguments()
    hvd.init()
    keras.utils.set_random_seed(hvd.rank())
    dataset = read(args.data)
    model = make_model()
    rate = args.lr * covey.lr_scale()
    sgd = keras.optimizers.SGD(rate, 0.9, nesterov=True, weight_decay=args.weight_decay)
    optimizer = hvd.DistributedOptimizer(sgd)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss, metrics=["accuracy"])
    steps = args.max_steps or sys.maxsize
    pixels, labels = share(dataset.train, steps * args.batch_size)
    model.fit(
        pixels,
        labels,
        batch_size=args.batch_size,
        epochs=args.epochs,
        verbose=2 if hvd.rank() == 0 else 0,
        callbacks=[
            hvd.callbacks.BroadcastGlobalVariablesCallback(0),
            hvd.callbacks.MetricAverageCallback(),
            hvd.callbacks.LearningRateScheduleCallback(
                rate, lambda epoch: rate_at(epoch, args.epochs), staircase=False
            ),
            Pace(len(labels) * hvd.size()),
        ],
    )
    results = model.evaluate(*share(dataset.test, sys.maxsize), verbose=0)
    mean = hvd.allreduce(numpy.array(results), name="evaluation").numpy()
    bits = hashlib.sha256(b"".join(it.tobytes() for it in model.get_weights())).hexdigest()[:8]
    print(
        f"rank {hvd.rank()} of {hvd.size()}: {dataset.name}: loss {mean[0]:.4f}, "
        f"accuracy {100 * mean[1]:.2f}%, model {bits}"
    )


if __name__ == "__main__":
    main()
