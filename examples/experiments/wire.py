"""How many bytes a rank sends per step, by the method's own account (`covey methods`), were each
rank alone on its host."""

from __future__ import annotations

import math
import re

from covey.bench.method_text import setting
from covey.method import full_text

NUMBER_BITS = 32


def sent(method: str, ranks: int, model_bytes: int) -> float:
    """Bytes per rank and step. An allreduce of m bytes sends 2 m (P-1)/P, as a ring does.

    Args:
        method: its text, or "ddp".
        ranks: P.
        model_bytes: m, of a model of 32-bit numbers.

    Example:
        >>> sent("allreduce", 4, 100), sent("local:H=5", 4, 100), sent("swarm:H=2", 4, 100)
        (150.0, 30.0, 50.0)
    """
    name = method.partition(":")[0]
    if name == "ddp":
        return _allreduce(ranks, model_bytes)
    text = full_text(method)
    size = model_bytes * _bits(text) / NUMBER_BITS
    if name == "local":
        return _allreduce(ranks, size) / int(setting(text, "local_steps", ""))
    if name == "wagma":
        told, every = setting(text, "group_size", ""), int(setting(text, "sync_every", ""))
        group = 2 ** math.floor(math.log2(ranks) / 2 + 0.5) if told == "auto" else int(told)
        return _allreduce(group, size) * (every - 1) / every + _allreduce(ranks, size) / every
    if name == "dpsgd":  # One copy to each neighbor of the exponential graph.
        return size * math.ceil(math.log2(ranks))
    if name == "adpsgd":  # Each rank begins one exchange per step, and is met once on average.
        return 2 * size
    if name == "swarm":  # One of a pair begins: each takes part in one exchange per batch.
        return size / int(setting(text, "local_steps", ""))
    return _allreduce(ranks, size)


def _bits(text: str) -> int:
    """Of a number of a model, by the codec of the method."""
    found = re.search(r"codec=lattice(?:@bits=|@)?(\d*)", text)
    return int(found.group(1) or 8) if found else NUMBER_BITS


def _allreduce(ranks: float, size: float) -> float:
    return 2 * size * (ranks - 1) / ranks
