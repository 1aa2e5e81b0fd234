"""The forms in which a process group's methods are called. Internal.

torch.distributed gives them lists of tensors and an options object. Scripts, and torch itself in
places, also call them with one tensor, and with ``op``, ``root`` and ``timeout`` by themselves:
``group.allreduce(tensor)``, ``group.broadcast(tensor, root=1)``. Names and defaults are torch's.
"""

from __future__ import annotations

from datetime import timedelta
from inspect import Parameter, Signature
from typing import Any, Dict, List, Mapping, NamedTuple, Sequence, Tuple

import torch
import torch.distributed as dist

NO_TIME = timedelta(0)
"""A timeout that is not positive stands for the group's."""
_SUM = dist.ReduceOp.SUM
_NONE = Parameter.empty
_DEFAULTS = {"op": _SUM, "root": _NONE, "timeout": None, "opts": None}


class Options(NamedTuple):
    """The fields that a call may read of its options object in torch."""

    reduceOp: Any = _SUM
    rootRank: int = 0
    timeout: timedelta = NO_TIME


class Form:
    """The parameters of one method, as torch names them.

    Args:
        name: the method's, for messages.
        many: of the form with lists, which an options object may follow.
        one: of the form with one tensor, in the same order. Under another name than in ``many``
            there is one tensor in place of a list. Empty: the same.
        more: what follows before the timeout where there is no options object.
    """

    def __init__(self, name: str, many: str, one: str = "", more: str = "") -> None:
        self._name = name
        lists, ones = many.split(), (one or many).split()
        self.count = len(lists)
        self._with_options = _signature([*lists, "opts"])
        self._of_lists = _signature([*lists, *more.split(), "timeout"])
        self._of_one = _signature([*ones, *more.split(), "timeout"])
        self._single = {i: ones[i] for i in range(self.count) if ones[i] != lists[i]}

    def read(self, given: Sequence[Any], named: Mapping[str, Any]) -> Tuple[List[Any], Any]:
        """The arguments as lists, and the options.

        Raises:
            TypeError: an argument is missing, or there is no such one.
        """
        is_one = any(
            name in named or (len(given) > i and isinstance(given[i], torch.Tensor))
            for i, name in self._single.items()
        )
        if not is_one and self._has_options(given, named):
            values = self._bound(self._with_options, given, named)
            options = values.pop("opts")
            return [*values.values()], Options() if options is None else options
        values = self._bound(self._of_one if is_one else self._of_lists, given, named)
        op, root, timeout = values.pop("op", _SUM), values.pop("root", 0), values.pop("timeout")
        lists = [*values.values()]
        if is_one:  # The list of a rank that gives nothing is empty in both forms.
            lists = [[it] if isinstance(it, torch.Tensor) or it else it for it in lists]
        return lists, Options(op, root, NO_TIME if timeout is None else timeout)

    def _has_options(self, given: Sequence[Any], named: Mapping[str, Any]) -> bool:
        if len(given) > self.count:
            return hasattr(given[self.count], "timeout")
        return named.keys().isdisjoint(_DEFAULTS.keys() - {"opts"})

    def _bound(
        self, signature: Signature, given: Sequence[Any], named: Mapping[str, Any]
    ) -> Dict[str, Any]:
        try:
            bound = signature.bind(*given, **named)
        except TypeError as error:
            raise TypeError(f"{self._name}(): {error}") from None
        bound.apply_defaults()
        return dict(bound.arguments)


def _signature(names: Sequence[str]) -> Signature:
    kind = Parameter.POSITIONAL_OR_KEYWORD
    return Signature([Parameter(it, kind, default=_DEFAULTS.get(it, _NONE)) for it in names])
