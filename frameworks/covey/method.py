"""Distributed training methods: which there are, and which one a script, a flag or the environment
chooses. What a method does is in the core; adapters ask it for each step."""

from __future__ import annotations

import json
import os
import sys
from typing import Any, Dict, List, Mapping, Optional

from covey import _native
from covey.errors import InvalidArgument
from covey.state import state

# What a step exchanges: covey_payload of core/covey.h; and when: covey_admission.
NOTHING, GRADIENTS, MODEL = 0, 1, 2
ALL, ROUNDS = 0, 1

_DEFAULT = "allreduce"
_announced: set = set()  # (life, texts) of what was said: once is enough.


def methods() -> List[Dict[str, Any]]:
    """Every method: name, help, bytes, citation, and its parameters with range and help.

    ``bytes`` is per rank, for P ranks, g bytes of gradients and m of parameters.

    Example:
        >>> [method["name"] for method in covey.methods()]
        ['allreduce', 'eager', 'local', 'wagma']
    """
    return list(json.loads(_native.methods()))


def check(text: str) -> None:
    """Raises InvalidArgument when ``text`` chooses no method: names what there is."""
    _native.method_check(text)


def full_text(text: Optional[str]) -> str:
    """``text`` with every parameter by its full name, empty when it chooses no method.

    None stands for what this rank was told: then it needs ``init()``.
    """
    return str(_native.method_text(text))


def choose(name: Optional[str], settings: Mapping[str, object]) -> str:
    """The text of the method to use, with every parameter by its full name.

    Args:
        name: what the script asks for: a name or a whole text; None leaves it to
            ``coveyrun --method``, COVEY_METHOD or ``init(settings=...)``.
        settings: parameters, added to those in the text.

    Raises:
        InvalidArgument: (a ValueError) no such method or parameter: the message names the nearest.
        NotInitialized: (a ValueError) before ``init()``.
    """
    state.require()
    told = full_text(None)
    if name is None:
        if settings:
            raise InvalidArgument(
                f"{', '.join(settings)}: DistributedOptimizer has no such argument, and parameters "
                "of a method need method=..."
            )
        return told
    text = str(name)
    for key, value in settings.items():
        text += ("," if ":" in text else ":") + f"{key}={value}"
    check(text)
    chosen = full_text(text)
    if told != chosen and (told != _DEFAULT or "COVEY_METHOD" in os.environ):
        _announce(chosen, told)
    return chosen


def _announce(chosen: str, told: str) -> None:
    """Says on rank 0, once, that what was told to this job is not what it does."""
    if (state.life, chosen, told) in _announced or state.require().rank != 0:
        return
    _announced.add((state.life, chosen, told))
    frame = sys._getframe(1)
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).startswith("covey"):
        frame = frame.f_back
    place = f"{frame.f_code.co_filename}:{frame.f_lineno}"
    sys.stderr.write(
        f"covey: the script asks for the method {chosen} ({place}); {told}, which --method or "
        "COVEY_METHOD asks for, is ignored\n"
    )


def payload(text: str, group: int, version: int) -> int:
    """What the members of a group exchange at the end of step `version`: NOTHING, GRADIENTS, MODEL.

    The same on every member, at any time.
    """
    return int(_native.method_plan(text, group, version)[0])


def goes_in_rounds(text: str, group: int) -> bool:
    """Whether the method waits for enough ranks instead of all."""
    return bool(_native.method_plan(text, group, 0)[1] == ROUNDS)
