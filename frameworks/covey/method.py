"""Distributed training methods: which there are, and which one a script, a flag or the environment
chooses. The methods are in the core; adapters ask it for each step."""

from __future__ import annotations

import functools
import json
import math
import os
import sys
from typing import Any, Dict, Iterator, List, Mapping, NamedTuple, Optional, Tuple

from covey import _native
from covey.arguments import group_id, text_of
from covey.errors import CoveyError, InvalidArgument
from covey.group import Group
from covey.notice import tell
from covey.state import state
from covey.topology import Row, row_by_index
from covey.watchdog import where

# The payload of a step: covey_payload of core/api/covey.h; and its time: covey_admission.
NOTHING, GRADIENTS, MODEL, DELTA = 0, 1, 2, 3
ALL, ROUNDS, PAIRS, NEIGHBORS = 0, 1, 2, 3
FOREVER = (1 << 63) - 1

_DEFAULT = "allreduce"
_announced: set = set()  # (init_epoch, line) of what was said: once is enough.


def methods() -> List[Dict[str, Any]]:
    """Every method: name, help, bytes, citation, and its parameters with range and help.

    ``bytes`` is per rank, for P ranks, g bytes of gradients and m of parameters.

    Example:
        >>> [method["name"] for method in covey.methods()]
        ['adpsgd', 'allreduce', 'diloco', 'dpsgd', 'eager', 'local', 'swarm', 'wagma']
    """
    return list(json.loads(_native.methods()))


@functools.lru_cache(maxsize=64)
def parsed(text: str) -> _native.Method:
    """The method that ``text`` chooses, as the core has parsed it.

    Raises:
        InvalidArgument: it chooses none: names what there is and the nearest.
    """
    if not text.isprintable():
        raise InvalidArgument(f"{ascii(text[:80])} chooses no method: it cannot be shown")
    return _native.method_parse(text)


def check(text: str) -> None:
    """Raises InvalidArgument when ``text`` chooses no method: names what there is."""
    parsed(text)


def full_text(text: Optional[str]) -> str:
    """``text`` with every parameter by its full name, empty when it chooses no method.

    None stands for what is configured: then it needs ``init()``.
    """
    try:
        return _native.method_text(_native.method_parse(None) if text is None else parsed(text))
    except CoveyError:
        return ""


def choose(
    name: Optional[str], settings: Mapping[str, object], by: str = "DistributedOptimizer"
) -> str:
    """The text of the method to use, with every parameter by its full name.

    Args:
        name: the script's choice: a name or a whole text; None leaves it to
            ``coveyrun --method``, COVEY_METHOD or ``init(settings=...)``.
        settings: parameters, added to those in the text; ``then`` as the last of them.
        by: the function that has these arguments, for messages.

    Raises:
        InvalidArgument: (a ValueError) no such method or parameter: the message names the nearest.
        NotInitialized: (a ValueError) before ``init()``.
    """
    state.require()
    configured = full_text(None)
    if name is None:
        if settings:
            raise InvalidArgument(
                f"{', '.join(settings)}: {by} has no such argument, and parameters of a method "
                "need method=..."
            )
        return configured
    text = str(name)
    for key, value in sorted(settings.items(), key=lambda item: item[0] == "then"):
        word = str(value).replace(",", "+") if key == "codec" else value
        text += ("," if ":" in text else ":") + f"{key}={word}"
    asked = ", ".join([f"method={name!r}", *(f"{key}={it!r}" for key, it in settings.items())])
    if _chosen_by() == "force":
        if full_text(text) != configured:
            holds = f", ignored: --force-method, so {_configured()} holds"
            _announce("{place} says " + asked + holds)
        return configured
    chosen = _native.method_text(parsed(text))
    if configured != chosen and (configured != _DEFAULT or os.environ.get("COVEY_METHOD")):
        hint = " (--force-method would make the flag win)" if _chosen_by() == "flag" else ""
        _announce(f"{_configured()} ignored: " + "{place} says " + asked + hint)
    return chosen


def settle(settings: Mapping[str, object]) -> Dict[str, object]:
    """The settings of ``init(settings=...)`` that hold: --force-method wins over its method too."""
    kept = dict(settings)
    if os.environ.get("COVEY_METHOD_BY") == "force":
        kept.pop("method", None)
    return kept


def compare(settings: Mapping[str, object]) -> None:
    """Says after ``init(settings=...)`` which of two methods configured for this job is ignored."""
    if "method" not in settings or not os.environ.get("COVEY_METHOD"):
        return
    asked, variable = f"init(settings={{'method': {settings['method']!r}}})", _variable()
    if full_text(str(settings["method"])) == full_text(os.environ["COVEY_METHOD"]):
        return
    if _chosen_by() == "force":
        _announce("{place} says " + asked + f", ignored: --force-method, so {variable} holds")
    else:
        _announce(f"{variable} ignored: " + "{place} says " + asked)


def unused(by: str, but: str = "") -> None:
    """Says, once, that ``by`` trains by allreduce whatever is configured; ``but``: all but that.

    Example:
        >>> unused("DistributedGradientTape")  # doctest: +SKIP
    """
    if state.place is None or full_text(None) == _DEFAULT:
        return
    if but:
        _announce(f"{_configured()} acts on {but}, not on other calls of {by} (" + "{place})")
    else:
        _announce(f"{_configured()} ignored: {by} (" + "{place}) knows no methods but allreduce")


def acts_on(what: str, change: str) -> None:
    """Says, once, that the configured method trains ``what`` although the script does not say so.

    Example:
        >>> acts_on("torch's DistributedDataParallel", "its own allreduce is off")  # doctest: +SKIP
    """
    _announce(f"{_configured()} acts on {what} (" + "{place}): " + change)


def _chosen_by() -> str:
    """Where the configured method comes from: init, variable, flag or force."""
    if "method" in state.settings:
        return "init"
    return os.environ.get("COVEY_METHOD_BY", "variable")


def _configured() -> str:
    """The method configured for this job, as the user wrote it."""
    if _chosen_by() == "init":
        return f"init(settings={{'method': {state.settings['method']!r}}})"
    return _variable()


def _variable() -> str:
    """The text of the flag or the variable, as the user wrote it."""
    text = os.environ.get("COVEY_METHOD") or _DEFAULT
    by = os.environ.get("COVEY_METHOD_BY", "variable")
    return f"COVEY_METHOD={text}" if by == "variable" else f"--method {text}"


def _announce(sentence: str) -> None:
    """Says on rank 0, once, what of this job's choices is not done; {place}: the script's line."""
    file, _, number = where(sys._getframe()).rpartition(" in ")[0].rpartition(":")
    short = os.path.relpath(file)
    place = f"{file if short.startswith(os.pardir) else short}:{number}"
    line = sentence.replace("{place}", place, 1)
    if (state.init_epoch, line) in _announced or state.require().rank != 0:
        return
    _announced.add((state.init_epoch, line))
    tell(line)


class Plan(NamedTuple):
    """The plan of a step by its method: all that an adapter has to know of one.

    Attributes:
        payload: NOTHING, GRADIENTS, MODEL or DELTA.
        in_rounds: whether it does not wait for all ranks: for enough of them, or for none.
        in_pairs: whether it is for none: models are averaged two at a time.
        until: the next version at which another method holds, or a warm-up is over.
        local_steps: of MODEL and DELTA in rounds: steps that a rank does between two of its
            versions; 0: each step is a version.
        with_neighbors: whether models are averaged with those of neighbors instead of all.
        warmup: in rounds: so many versions from this one on wait for all, for max_wait at most.
        max_wait_s: of the method that holds, also in its warm-up, as those below: how long a rank
            waits for the others; 0: as its own steps take; infinite: for ever.
        needed: how many ranks a version waits for; all, where there are no rounds.
        skips_ahead: whether a late rank goes on with the step after the last version.
        clip_norm: the largest norm of the gradients of an update; None: any.
        codec: makes its payload smaller, such as "topk@bits=2+block=512"; "": none.
    """

    payload: int
    in_rounds: bool
    until: int
    in_pairs: bool = False
    local_steps: int = 0
    with_neighbors: bool = False
    warmup: int = 0
    max_wait_s: float = math.inf
    needed: int = 0
    skips_ahead: bool = False
    clip_norm: Optional[float] = None
    codec: str = ""

    @property
    def ends_alone(self) -> bool:
        """Whether ``finish()`` may end without a mean, where ranks are missing: models are averaged
        with neighbors, for which a rank waits so long at most."""
        return self.with_neighbors and self.max_wait_s < math.inf

    @property
    def in_versions(self) -> bool:
        """Whether it has versions of gradients or of models, by which steps are counted."""
        return self.in_rounds and not self.in_pairs and self.payload != DELTA


def plan(text: str, group: int, version: int) -> Plan:
    """The exchange of the members of a group at the end of step ``version``.

    The same on every member, at any time.

    Raises:
        InvalidArgument: (a ValueError) the group has fewer members than the method waits for.
    """
    found = _native.method_plan(parsed(text), group, version)
    payload, admission, until, steps, warmup, wait_ns, needed, skips, clip_norm, codec = found
    return Plan(
        payload,
        admission in (ROUNDS, PAIRS),
        until,
        admission == PAIRS,
        steps,
        admission == NEIGHBORS,
        warmup,
        math.inf if wait_ns < 0 else wait_ns / 1e9,
        needed,
        bool(skips),
        clip_norm or None,
        codec,
    )


def row(text: str, group: Group, version: int) -> Tuple[Row, bool]:
    """The neighbors of this rank at step ``version``, and whether it averages after its update."""
    weights, takes, adapts_first = _native.method_row(parsed(text), group.id, version)
    return row_by_index(group.ranks, group.rank() or 0, weights, takes), bool(adapts_first)


def plans(text: str, group: int) -> Iterator[Tuple[int, Plan]]:
    """Where each part of a training begins, and its plan there: warm-ups, and what ``then=`` names.

    Example:
        >>> [begin for begin, _ in plans("local:warmup_steps=5,then=allreduce@90", 0)]
        [0, 5, 90]
    """
    version = 0
    while version < FOREVER:
        part = plan(text, group, version)
        yield version, part
        version = part.until


def text_at(text: str, version: int) -> str:
    """The method of ``text`` that holds at ``version``, alone."""
    return _native.method_at(parsed(text), version)


def name_of(text: str) -> str:
    """The name of the method that a text of one method chooses."""
    return text.partition(":")[0]


def lr_scale(method: Optional[str] = None, process_set: Optional[Group] = None) -> float:
    """By what to multiply a learning rate that is right for one rank.

    With most methods that is the number of ranks: an update stands for a batch that is so much
    larger. Such a rate needs a warm-up (Goyal et al., 2017, arXiv:1706.02677). It is the factor for
    the mean; with ``op=hvd.Sum`` gradients are as large already, and ``optimizer.lr_scale()`` is 1.

    Args:
        method: as for ``DistributedOptimizer``; None: what is configured.
        process_set: the ranks that train together; None: all.

    Raises:
        InvalidArgument: (a ValueError) there is no such method.
        NotInitialized: (a ValueError) before ``init()``.

    Example:
        >>> sgd = torch.optim.SGD(model.parameters(), lr=0.1 * covey.lr_scale())  # doctest: +SKIP
    """
    place = state.require()
    if process_set is not None:
        group_id(process_set)  # Refuses what is none.
    known = None if method is None else parsed(text_of("method", method))
    text = full_text(None) if known is None else _native.method_text(known)
    return scale_at(text, 0, place.size if process_set is None else process_set.size())


def outlives(text: str, group: int) -> bool:
    """Whether the members of a group go on training when one of them has died: no step waits for
    all but those of a warm-up.

    Example:
        >>> [outlives(text, 0) for text in ("eager", "dpsgd")]  # doctest: +SKIP
        [True, False]
    """
    return all(it.in_rounds or it.payload == GRADIENTS and it.until < FOREVER
               for _, it in plans(text, group))


def scale_at(text: str, version: int, ranks: int) -> float:
    """``lr_scale`` of the method that holds at ``version``."""
    name = name_of(text_at(text, version))
    kind = next(known["lr_scale"] for known in methods() if known["name"] == name)
    return float(ranks if kind == "ranks" else 1)
