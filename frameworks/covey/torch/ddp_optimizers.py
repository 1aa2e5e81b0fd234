"""The optimizers of wrapped models (``ddp.py``), which scripts make as any others. Internal.

Torch tells nobody that an optimizer was made, so its constructor is observed from the first wrapped
model on; optimizers that were made before are found among the objects that live. They become
distributed at the next forward pass that trains, in the order in which they were made, which is
the same on all ranks. Where several have the same parameters the newest has them.
"""

from __future__ import annotations

import functools
import gc
import types
import weakref
from typing import Any, Callable, Dict, List, Set, Tuple

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.utils.weak import WeakTensorKeyDictionary

from covey.errors import InvalidArgument
from covey.state import state
from covey.torch.layout import parameters_of
from covey.torch.options import is_sharded

Distribute = Callable[[Any, List[Any]], None]


class Wrapped:
    """The parameters of all wrapped models of this process, and its optimizers."""

    def __init__(self) -> None:
        self._owners: "WeakTensorKeyDictionary" = WeakTensorKeyDictionary()
        self._distribute: Distribute = lambda *_: None
        self._is_watching = False
        self._known: "weakref.WeakSet[Any]" = weakref.WeakSet()
        self._inner: "weakref.WeakSet[Any]" = weakref.WeakSet()  # Their owners step them.
        self._fresh: List[Any] = []  # Weak references, in the order in which they were made.

    def add(
        self, model: Any, named: List[Tuple[str, torch.nn.Parameter]], distribute: Distribute
    ) -> None:
        """``model`` trains the parameters ``named``; ``distribute(optimizer, models)`` makes an
        optimizer of such models distributed."""
        self._distribute = distribute
        if not self._is_watching:
            self._is_watching = True
            self._watch()
        owner = weakref.ref(model)
        for _, parameter in named:
            self._owners[parameter] = owner

    def _watch(self) -> None:
        """Notes all optimizers that are there, and each new one."""
        made = torch.optim.Optimizer.__init__

        @functools.wraps(made)
        def observed(optimizer: torch.optim.Optimizer, *args: Any, **kwargs: Any) -> None:
            made(optimizer, *args, **kwargs)
            self._note(optimizer)

        torch.optim.Optimizer.__init__ = observed  # type: ignore[method-assign]
        for it in gc.get_objects():
            if issubclass(type(it), torch.optim.Optimizer) and "param_groups" in vars(it):
                self._note(it)
        register_optimizer_step_pre_hook(_refuse_stray)

    def _note(self, optimizer: Any) -> None:
        if optimizer not in self._known:
            self._known.add(optimizer)
            self._fresh.append(weakref.ref(optimizer))
            if "step" not in vars(optimizer):  # Else a scheduler has put it there.
                optimizer.step = types.MethodType(_step_by_closure, optimizer)

    def is_inner(self, optimizer: Any) -> bool:
        """Whether another optimizer steps this one."""
        return optimizer in self._inner

    def models_of(self, optimizer: Any) -> List[Any]:
        """The wrapped models that have parameters of ``optimizer``."""
        found: Dict[int, Any] = {}
        for parameter in parameters_of(optimizer):
            owner = self._owners.get(parameter)
            model = None if owner is None else owner()
            if model is not None:
                found.setdefault(id(model), model)
        return list(found.values())

    def adopt(self) -> None:
        """Makes those distributed that were made since the last call.

        Raises:
            InvalidArgument: (a ValueError) an optimizer has parameters of no wrapped model too.
        """
        taken: Set[int] = set()
        chosen = []
        fresh = [it for it in (reference() for reference in self._fresh) if it is not None]
        self._fresh = []
        self._inner.update(it.optim for it in fresh if is_sharded(it))
        for optimizer in (it for it in reversed(fresh) if it not in self._inner):
            mine = {id(parameter) for parameter in parameters_of(optimizer)}
            models = [] if is_distributed(optimizer) else self.models_of(optimizer)
            if models and not mine & taken and not shares_groups(optimizer):
                self._refuse_outside(optimizer)
                chosen.append((optimizer, models))
            if models or is_distributed(optimizer):
                taken |= mine
        for optimizer, models in reversed(chosen):
            self._distribute(optimizer, models)

    def _refuse_outside(self, optimizer: Any) -> None:
        for g, group in enumerate(optimizer.param_groups):
            for i, parameter in enumerate(group["params"]):
                owner = self._owners.get(parameter)
                if parameter.requires_grad and (owner is None or owner() is None):
                    raise InvalidArgument(
                        f"{type(optimizer).__name__}: parameter {i} of group {g}, of shape "
                        f"{list(parameter.shape)}, is in no covey.torch.DistributedDataParallel, "
                        "and others of the same optimizer are: wrap its module too, or give it an "
                        "optimizer of its own"
                    )


def is_distributed(optimizer: Any) -> bool:
    """Whether it is a DistributedOptimizer."""
    return hasattr(optimizer, "_covey_reducer")


def shares_groups(optimizer: Any) -> bool:
    """Whether a distributed one has its groups: it was made from ``optimizer``, or is inside it."""
    return any(it.param_groups is optimizer.param_groups for it in state.optimizers())


def _step_by_closure(optimizer: Any, *args: Any, **kwargs: Any) -> Any:
    """The step of an optimizer that is not distributed, or not yet: the forward pass that makes it
    so may be in the closure."""
    if (args or kwargs.get("closure") is not None) and wrapped.models_of(optimizer):
        wrapped.adopt()
    return type(optimizer).step(optimizer, *args, **kwargs)


def _refuse_stray(optimizer: Any, *_: Any) -> None:
    """Before each step of any optimizer: it must not train a wrapped model by itself."""
    if is_distributed(optimizer) or shares_groups(optimizer) or wrapped.is_inner(optimizer):
        return
    if any(model.has_begun for model in wrapped.models_of(optimizer)):
        raise InvalidArgument(
            f"{type(optimizer).__name__}.step(): it trains a DistributedDataParallel, and other "
            "ranks would not hear of it: make the optimizer before the forward pass whose gradient "
            "it applies; of two with the same parameters make the second after the last step of "
            "the first, or pass copies through covey.torch.DistributedOptimizer"
        )


wrapped = Wrapped()
"""The wrapped models of this process."""
