"""A method in plain words: its exchange, the lateness it allows, its costs.

``covey methods`` prints all of it; rank 0 prints the short form when training begins.
"""

from __future__ import annotations

import re
import textwrap
from typing import Any, Dict, List, Set, Tuple

from covey.group import Group
from covey.method import (
    FOREVER,
    GRADIENTS,
    Plan,
    methods,
    name_of,
    outlives,
    plans,
    text_at,
)
from covey.notice import tell
from covey.state import state
from covey.step_stats import configured, note_outlives

WIDTH = 96
_shown: Set[Tuple[int, str]] = set()  # (init_epoch; 0: elastic job, text): once is enough.


def full_summary(method: Dict[str, Any]) -> str:
    """All there is to say of a method, in lines of at most WIDTH characters."""
    lines = [method["name"], *_lines("", method["help"])]
    for label, text in _facts(method):
        lines += _lines(label, text)
    about = " (P ranks; g, m: bytes of gradients, model)"
    lines += _lines("bytes per rank  ", method["bytes"] + about)
    for parameter in method["parameters"]:
        letter = f" ({parameter['letter']})" if parameter["letter"] else ""
        line = f"  {parameter['name']}{letter} = {parameter['default']}"
        if isinstance(parameter["default"], int):  # Else the help says what can be written.
            line += f" {parameter['unit']}, {parameter['minimum']} to {parameter['maximum']}"
        lines.append(line)
        lines += _lines("    ", parameter["help"])
    lines += _lines("source  ", method["citation"])
    return "\n".join(lines)


_TABLE = (
    ("method", lambda method: f"`{method['name']}`"),
    ("what is exchanged", lambda method: method["exchanged"]),
    ("with whom", lambda method: method["partners"]),
    ("late ranks", lambda method: re.split("[:;]", method["late"])[0]),
    ("what rank 0 saves", lambda method: method["saved"]),
    ("learning rate of one rank", lambda method: _FACTORS[method["lr_scale"]]),
    ("parameters", lambda method: ", ".join(filter(None, map(_setting, method["parameters"])))),
)
_FACTORS = {"ranks": "times the ranks, with a warm-up", "one": "as it is"}
_AVERAGED = "gradients averaged over all ranks"  # In a warm-up.
_BOUNDED = ", which are waited for no longer than max_wait"
_OWN_MODELS = (
    "each rank's model is its own until finish(): accuracy and torch.save are of that one model; "
    "covey.consensus(model) has the mean of all, and covey.save writes it"
)
_COMMON = ("warmup_steps", "clip_norm")  # Every method has them.


def table() -> str:
    """All methods, a line of Markdown each."""
    rows = [[name for name, _ in _TABLE], ["---"] * len(_TABLE)]
    rows += [[of(method) for _, of in _TABLE] for method in methods()]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _setting(parameter: Dict[str, Any]) -> str:
    if parameter["name"] in _COMMON:
        return ""
    return f"`{parameter['name']}={parameter['default']}`"


def _facts(method: Dict[str, Any]) -> List[Tuple[str, str]]:
    return [
        ("late ranks      ", method["late"]),
        ("learning rate   ", method["learning_rate"]),
        ("extra memory    ", method["memory"]),
    ]


def _lines(label: str, text: str) -> List[str]:
    first = "  " + label
    rest = " " * len(first)
    return textwrap.wrap(text, WIDTH, initial_indent=first, subsequent_indent=rest)


def announce(text: str, group: Group, gradient_bytes: int) -> None:
    """Where a training begins: its method on rank 0; to the launcher, whether a rank may die."""
    if group.size() > 1 and outlives(text, group.id):
        note_outlives(text)
    show(text, group.size(), gradient_bytes, group.id)


def show(text: str, ranks: int, gradient_bytes: int, group: int) -> None:
    """Prints on rank 0, once, by what method ``ranks`` train, unless that is plain allreduce."""
    wanted = text != "allreduce" or configured("inject") or configured("summary") == "always"
    key = (state.init_epoch if state.elastic is None else 0, text)
    if not wanted or state.require().rank != 0 or key in _shown:
        return
    _shown.add(key)
    lines = start_summary(text, ranks, gradient_bytes, group)
    tell(*lines, label="covey | ")


def start_summary(text: str, ranks: int, gradient_bytes: int, group: int) -> List[str]:
    """The lines of ``show``: for each part of the training its method in short."""
    known = {method["name"]: method for method in methods()}
    lines = [f"method {text}, {ranks} ranks, g = {_bytes(gradient_bytes)} of gradients"]
    begins = list(plans(text, group))
    seen: Set[str] = set()
    for begin, plan in begins:
        part, until = text_at(text, begin), plan.until
        is_warm_up = until < FOREVER and text_at(text, until) == part and _warms_up(plan, begin)
        if len(begins) > 1:
            last = f"to step {until - 1}" if until < FOREVER else "on"
            bounded = _BOUNDED if plan.in_rounds else ""
            what = f"warm-up, {_AVERAGED}{bounded}" if is_warm_up else part
            lines.append(f"from step {begin} {last}: {what}")
        if is_warm_up or part in seen:
            continue
        seen.add(part)
        method = known[name_of(part)]
        lines += _lines("exchanged       ", method["help"])
        if 0 < plan.warmup < until - begin:
            last = begin + plan.warmup - 1
            lines += _lines("warm-up         ", f"to step {last}: {_AVERAGED}{_BOUNDED}")
        for label, fact in _facts(method):
            lines += _lines(label, fact)
        if method["exchanged"].startswith("models"):
            lines += _lines("evaluation      ", _OWN_MODELS)
        if plan.clip_norm is not None:
            what = f"{_clipped(plan)}, to a norm of {plan.clip_norm:g}"
            lines += _lines("clipped         ", what)
    return lines


def _clipped(plan: Plan) -> str:
    if plan.payload == GRADIENTS:
        return "what was averaged, once for each update, alike on all ranks"
    return "each rank's own gradients, before its own step; in a warm-up what was averaged"


def _warms_up(plan: Plan, begin: int) -> bool:
    """Whether a part that begins there is a warm-up, if another of the same method follows."""
    is_whole = begin + plan.warmup == plan.until
    return plan.payload == GRADIENTS and (is_whole or not plan.in_rounds)


def _bytes(count: int) -> str:
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count} B"
