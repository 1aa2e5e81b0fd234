"""The settings in a method's text, for figures drawn without a job; in a job a plan has them.
Internal."""

from __future__ import annotations

import math


def setting(text: str, name: str, otherwise: str) -> str:
    """The value of a parameter in the full text of one method.

    Example:
        >>> setting("local:local_steps=8", "local_steps", "1")
        '8'
    """
    words = text.partition(":")[2].split(",")
    return dict(word.split("=", 1) for word in words if word).get(name, otherwise)


def ranks_needed(text: str, size: int) -> int:
    """How many of ``size`` ranks a version waits for, by the full text of a method in rounds.

    Example:
        >>> ranks_needed("eager:admit=0.5,grace=0s", 5), ranks_needed("allreduce:max_wait=2s", 5)
        (3, 5)
    """
    admit = setting(text, "admit", "all")
    if admit in ("solo", "majority") or admit.startswith("first"):
        return 1
    if admit == "all":
        return size
    return min(size, math.ceil(float(admit) * size) if "." in admit else int(admit))
