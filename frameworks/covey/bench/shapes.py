"""Shapes of gradients: those of ResNet, and many small ones.

The parameters of ResNet (He et al., 2015, arXiv:1512.03385) as shapes, in the usual order.

ResNet-50: 161 tensors, 25,557,032 elements. ResNet-18: 62 tensors, 11,689,512 elements.
"""

from __future__ import annotations

from typing import List, Tuple

Shape = Tuple[int, ...]
CLASSES = 1000


def _convolution(outputs: int, inputs: int, width: int) -> List[Shape]:
    """A convolution without bias and the two vectors of its batch normalisation."""
    return [(outputs, inputs, width, width), (outputs,), (outputs,)]


def resnet50() -> List[Shape]:
    """Bottleneck blocks: 3, 4, 6 and 3 of them."""
    shapes, inputs = _convolution(64, 3, 7), 64
    for blocks, width in ((3, 64), (4, 128), (6, 256), (3, 512)):
        for block in range(blocks):
            shapes += _convolution(width, inputs, 1)
            shapes += _convolution(width, width, 3)
            shapes += _convolution(4 * width, width, 1)
            if block == 0:
                shapes += _convolution(4 * width, inputs, 1)
            inputs = 4 * width
    return shapes + [(CLASSES, inputs), (CLASSES,)]


def many_small() -> List[Shape]:
    """1,000 tensors of 256 bytes: the case for fusion."""
    return [(64,)] * 1000


def resnet18() -> List[Shape]:
    """Basic blocks: two of each width."""
    shapes, inputs = _convolution(64, 3, 7), 64
    for width in (64, 128, 256, 512):
        for block in range(2):
            shapes += _convolution(width, inputs, 3)
            shapes += _convolution(width, width, 3)
            if block == 0 and inputs != width:
                shapes += _convolution(width, inputs, 1)
            inputs = width
    return shapes + [(CLASSES, inputs), (CLASSES,)]
