"""The terms of a training, which are equal on all ranks, also of several frameworks. Internal.

Ranks of one framework leave it to their adapter, and to the core, which know more. Where there are
several frameworks, each rank's adapter copies its parameters one by one in their order, and what an
optimizer keeps beside them stays the rank's own: no two frameworks keep the same.
"""

from __future__ import annotations

from typing import Callable, List, NamedTuple, Sequence, Tuple

from covey.errors import Mismatch, Unsupported
from covey.group import Group
from covey.method import GRADIENTS, plan
from covey.names import next_prefix
from covey.notice import is_shown, tell
from covey.objects import allgather_object
from covey.reduce_op import ReduceOp

Parameter = Tuple[str, str, Sequence[int]]
"""Its name, dtype and shape."""


class Terms(NamedTuple):
    """Those of one rank.

    Attributes:
        framework: in words, such as "torch".
        head: all but the parameters, in words that are the same on all ranks.
        parameters: in the order in which they are trained.
        root: the global rank with whose model all begin.
        begin: how many updates this rank's model has had.
        problem: why it cannot train with ranks of other frameworks; "": it can.
    """

    framework: str
    head: str
    parameters: Tuple[Parameter, ...]
    root: int
    begin: int
    problem: str = ""


class Met(NamedTuple):
    """The outcome of a meeting.

    Attributes:
        is_mixed: the ranks have several frameworks.
        hashes: of every member, as it gave it.
        begin: how many updates the root's model has had, where it is mixed.
    """

    is_mixed: bool
    hashes: List[bytes]
    begin: int


def terms_of(
    framework: str,
    parameters: Sequence[Parameter],
    *,
    method: str,
    op: int,
    num_hypers: int,
    root: int,
    begin: int = 0,
    problem: str = "",
) -> Terms:
    """Terms, whose ``num_hypers`` numbers travel with gradients: the learning rates."""
    rates = f"{num_hypers} learning rate{'s' * (num_hypers != 1)} that travel with gradients"
    head = f"method {method}, op {ReduceOp(op).name}, {rates}, the model of rank {root} to begin"
    listed = tuple((name, dtype, tuple(shape)) for name, dtype, shape in parameters)
    return Terms(framework, head, listed, root, begin, problem)


def meet(group: Group, framework: str, terms: Callable[[], Terms], own: bytes = b"") -> Met:
    """All members of ``group`` call it before they train together.

    Args:
        framework: as in ``terms``, which is called where the ranks have several frameworks.
        own: a hash of more that the framework compares by itself.

    Raises:
        Mismatch: on every member: the ranks of several frameworks differ. It names the first
            difference, the ranks, their frameworks and both values.
        Unsupported: (a ValueError) on every member: one of them cannot train with others.
    """
    if group.size() == 1:
        return Met(False, [own], 0)
    name = "DistributedOptimizer"  # The same each time: names are kept for ever.
    known = allgather_object((framework, own), f"{name}.hash", group)
    hashes = [hashed for _, hashed in known]
    if len({word for word, _ in known}) == 1:
        return Met(False, hashes, 0)
    everyone: List[Terms] = allgather_object(terms(), f"{name}.terms", group)
    for rank, each in zip(group.ranks, everyone):
        if each.problem:
            raise Unsupported(
                f"ranks of {_list_of(everyone)} train together, and rank {rank} "
                f"({each.framework}) cannot: {each.problem}"
            )
    difference = _first_difference(group.ranks, everyone)
    if difference:
        raise Mismatch(f"DistributedOptimizer differs between the ranks: {difference}")
    if group.rank() == 0 and is_shown():
        tell(
            f"ranks of {_list_of(everyone)} train together: what an optimizer keeps beside the "
            "model, momenta for example, stays each rank's own"
        )
    return Met(True, hashes, everyone[group.ranks.index(everyone[0].root)].begin)


def mixed_name(group: Group) -> str:
    """The name of a training of ranks of several frameworks, the same on all members."""
    return next_prefix("mixed", group.ranks)


def begin_name(name: str, number: int) -> str:
    """The name by which all get the root's parameter ``number`` in that training."""
    return f"{name}.begin.{number}"


def are_rounded_apart(method: str, group: Group, planned: int) -> bool:
    """Whether ``finish()`` finds models that differ by how each framework rounds its updates: all
    had the same gradients, so that of the core takes them for equal. ``planned``: the version by
    whose plan the next step goes."""
    how = plan(method, group.id, planned)
    return how.payload == GRADIENTS and not how.in_rounds


def end_name(name: str) -> str:
    """In the place of the training's name for ``begin_name``, where all get the root's parameters
    after ``finish()``."""
    return f"{name}.end"


def _list_of(everyone: Sequence[Terms]) -> str:
    names = list(dict.fromkeys(each.framework for each in everyone))
    return f"{', '.join(names[:-1])} and {names[-1]}"


def _first_difference(ranks: Sequence[int], everyone: Sequence[Terms]) -> str:
    """In words; "": there is none."""
    lines = [[("", each.head), *map(_kind, each.parameters)] for each in everyone]
    for place in range(max(map(len, lines))):
        found = [each[place] if place < len(each) else ("", "nothing") for each in lines]
        for number, (_, kind) in enumerate(found):
            if kind != found[0][1]:
                where = f"parameter {place - 1}: " if place > 0 else ""
                first, other = (_said(ranks[i], everyone[i], found[i]) for i in (0, number))
                return f"{where}{first}, {other}"
    return ""


def _kind(parameter: Parameter) -> Tuple[str, str]:
    """Its name, which need not be the same on all ranks, and what has to be."""
    name, dtype, shape = parameter
    return name, f"{dtype} {list(shape)}"


def _said(rank: int, terms: Terms, found: Tuple[str, str]) -> str:
    name, kind = found
    return f"rank {rank} ({terms.framework}) has {f'{name}: ' * bool(name)}{kind}"
