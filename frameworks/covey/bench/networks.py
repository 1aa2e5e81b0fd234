"""The networks of `covey bench model`."""

from __future__ import annotations

import torch
import torch.nn.functional as functional
from torch import nn

CLASSES = 1000
WIDTH = 64  # Of a ResNet-18's first convolutions.


class _Block(nn.Module):
    """Two 3x3 convolutions and the short cut around them."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        stride = 1 if inputs == outputs else 2
        self.first = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.first_norm = nn.BatchNorm2d(outputs)
        self.second = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.second_norm = nn.BatchNorm2d(outputs)
        self.short = nn.Sequential()
        if stride != 1:
            convolution = nn.Conv2d(inputs, outputs, 1, stride, bias=False)
            self.short = nn.Sequential(convolution, nn.BatchNorm2d(outputs))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = functional.relu(self.first_norm(self.first(x)))
        return functional.relu(self.second_norm(self.second(y)) + self.short(x))


def resnet18(width: int = WIDTH) -> nn.Module:
    """With WIDTH the network whose parameters `shapes.resnet18` lists."""
    blocks, inputs = [], width
    for outputs in (width, 2 * width, 4 * width, 8 * width):
        blocks += [_Block(inputs, outputs), _Block(outputs, outputs)]
        inputs = outputs
    return nn.Sequential(
        nn.Conv2d(3, width, 7, stride=2, padding=3, bias=False),
        nn.BatchNorm2d(width),
        nn.ReLU(),
        nn.MaxPool2d(3, stride=2, padding=1),
        *blocks,
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8 * width, CLASSES),
    )


class SmallGpt(nn.Module):
    """A decoder-only transformer: 4 layers of width 256, 4 heads, a vocabulary of 4,096."""

    VOCABULARY = 4096
    _WIDTH = 256

    def __init__(self, context: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(self.VOCABULARY, self._WIDTH)
        self.places = nn.Parameter(torch.zeros(context, self._WIDTH))
        layer = nn.TransformerEncoderLayer(
            self._WIDTH, 4, 4 * self._WIDTH, dropout=0.0, batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
        self.head = nn.Linear(self._WIDTH, self.VOCABULARY, bias=False)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(context))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """[batch, context] token numbers -> [batch, vocabulary, context] logits."""
        hidden = self.layers(self.tokens(tokens) + self.places, mask=self.mask, is_causal=True)
        return self.head(hidden).transpose(1, 2)
