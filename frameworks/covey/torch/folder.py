"""The files of a checkpoint that are torch's. Internal.

    model.pt        the state dict of the model: plain torch reads it
    optimizer.pt    the state dict of the optimizer: likewise
    rank0.pt ...    what the members of the group, by their number, have each for itself
"""

from __future__ import annotations

import pathlib
from typing import Any, Callable, Dict

import torch

from covey import checkpoint_folder

MODEL, OPTIMIZER = "model.pt", "optimizer.pt"


def rank_file(index: int) -> str:
    """The file of the member with that number."""
    return f"rank{index}.pt"


def dump(content: Any) -> Callable[[Any], None]:
    """Writes ``content``, which is plain, to a file."""
    return lambda file: torch.save(content, file)


def read(folder: pathlib.Path, name: str, entries: Dict[str, Any]) -> Any:
    """The content of a file, once it is known to be whole. Runs nothing of it.

    Raises:
        BadCheckpoint: (a ValueError) it is missing, shorter, longer, or changed.
    """

    def load(file: Any) -> Any:
        return torch.load(file, map_location="cpu", weights_only=True)

    return checkpoint_folder.read(folder, name, entries, load)
