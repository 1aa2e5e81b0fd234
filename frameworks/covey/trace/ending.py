"""A launcher's words on its ranks' traces when the job has ended."""

from __future__ import annotations

import os
from typing import List

from covey.errors import InvalidArgument
from covey.trace import merging, words

_MOST_BYTES = 256 << 20  # More takes long: `covey trace merge` does it.
_ENDS = (".json", ".torch.json", ".torch.json.gz")


def told(folder: str, size: int) -> List[str]:
    """Makes one trace of those of `size` ranks in `folder`, and says what is in it; else that there
    is one of each rank."""
    names = [f"rank.{rank}{end}" for end in _ENDS for rank in range(size)]
    paths = [
        path for path in (os.path.join(folder, name) for name in names) if os.path.exists(path)
    ]
    if not paths:
        return []
    apart = f"one trace per rank in {folder}: covey trace merge {folder} makes one of them"
    try:
        if sum(map(os.path.getsize, paths)) > _MOST_BYTES:
            return [apart]
        found = merging.merged(paths)
        whole = os.path.join(folder, merging.NAME)
        merging.write(found, whole)
    except (InvalidArgument, OSError) as error:
        return [apart, f"{error}"]
    return [f"{whole} has all ranks: ui.perfetto.dev shows it", *words.lines(found)]
