"""Looking for NaN and infinite numbers in gradients before they are mixed: ``check_nan``. Internal.

Off unless ``coveyrun --check-nan``, COVEY_CHECK_NAN=1 or ``init(settings={"check_nan": 1})`` turns
it on. It costs a pass over the gradients, about 0.1 ms per million float32.

Gradients that are averaged are looked at where they leave this rank; where models are averaged,
before this rank's own step.
"""

from __future__ import annotations

from typing import Iterable, List, Optional, Tuple

import torch

from covey import _native
from covey.step_stats import configured
from covey.torch.tensors import CODES

_MOST = 3  # Parameters that are named.
Found = Iterable[Tuple[str, Optional[torch.Tensor]]]


def is_on() -> bool:
    """Whether this rank is configured to look."""
    return configured("check_nan") not in ("", "0")


def count(tensor: torch.Tensor) -> int:
    """How many of its elements are NaN or infinite."""
    if not tensor.is_cpu or tensor.dtype not in CODES:
        return int((~tensor.isfinite()).sum())
    # Its elements are all that lies where it begins, in some order.
    is_dense = torch.ops.aten.is_non_overlapping_and_dense(tensor)
    flat = tensor.detach() if is_dense else tensor.detach().contiguous()
    return int(_native.count_not_finite(CODES[flat.dtype], flat.data_ptr(), flat.numel()))


def unfit(gradients: Found, step: int) -> str:
    """In which of them there are such numbers, in words; empty: in none."""
    words: List[str] = []
    others = 0
    for name, gradient in gradients:
        if gradient is None:
            continue
        values = gradient if gradient.layout is torch.strided else gradient.coalesce().values()
        found = count(values)
        if found == 0:
            continue
        if len(words) == _MOST:
            others += 1
            continue
        words.append(f"{found} NaN or infinite numbers of {values.numel()} in that of {name}")
    if not words:
        return ""
    more = f" and in {others} more" if others else ""
    return f"an unfit gradient at step {step}: {', '.join(words)}{more}"
