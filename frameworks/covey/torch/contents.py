"""The content of a checkpoint, of one rank and of all together. Internal."""

from __future__ import annotations

import types
from collections import OrderedDict, defaultdict
from typing import Any, Dict, List, Mapping, Tuple

import torch

from covey.checkpoints import first_difference
from covey.errors import InvalidArgument
from covey.torch.layout import parameters_of
from covey.torch.method_state import kept, kept_by_method
from covey.torch.optimizer_state import average_state
from covey.torch.plain import digest, plain, signature
from covey.torch.view import mean_buffers, measure

PARTS = ("parameters", "buffers", "optimizer")
"""The parts written once if they are the same on all ranks, else once for all and once for each."""


class Contents:
    """The content of one rank.

    Attributes:
        parts: by word of PARTS: parameters and buffers by name, the optimizer's state dict.
        own: what is each rank's own: random numbers, what codecs keep, and what the caller gave, by
            name.
        names: of the optimizer's parameters, by group.
        digests: of the parts.
        layout: a hash of names, dtypes and shapes.
    """

    def __init__(self, model: torch.nn.Module, optimizer: Any, also: Mapping[str, Any]) -> None:
        """Copies it.

        Raises:
            InvalidArgument: (a ValueError) there is something that a checkpoint cannot hold.
        """
        self._model, self._optimizer = model, optimizer
        self._live = model.state_dict(keep_vars=True)
        self.names = names_of(model, optimizer)
        copies = plain(model.state_dict(), "the model's state_dict()")
        self._metadata = getattr(copies, "_metadata", None)
        self.tensors = signature(copies)
        parameters = {
            name for name, tensor in self._live.items() if isinstance(tensor, torch.nn.Parameter)
        }
        self.parts: Dict[str, Dict[str, Any]] = {
            "parameters": {name: it for name, it in copies.items() if name in parameters},
            "buffers": {name: it for name, it in copies.items() if name not in parameters},
            "optimizer": plain(optimizer.state_dict(), "the optimizer's state_dict()"),
        }
        self.own: Dict[str, Any] = {"random": torch.get_rng_state()}
        more = {**kept(optimizer), **kept_by_method(optimizer)}
        self.own["codec"] = plain(more, "what codecs and the method keep")
        self.own["also"] = {name: _written(name, value) for name, value in also.items()}
        self.digests = [digest(self.parts[part]) for part in PARTS]
        self.layout = digest([list(self.tensors), self.names])

    def whole_model(
        self, parameters: Mapping[str, torch.Tensor], buffers: Mapping[str, torch.Tensor]
    ) -> "OrderedDict[str, Any]":
        """A state dict of the model, with these parameters and buffers in the place of its own."""
        whole: "OrderedDict[str, Any]" = OrderedDict()
        for name in self._live:
            known = self.parts["buffers"].get(name, self.parts["parameters"].get(name))
            whole[name] = parameters.get(name, buffers.get(name, known))
        if self._metadata is not None:
            setattr(whole, "_metadata", self._metadata)
        return whole

    def mean_parameters(self) -> Dict[str, torch.Tensor]:
        """Of those that are trained. All members call it."""
        _, means = measure([self._optimizer], 0.0, exact=True)
        mean_of: Dict[int, torch.Tensor] = {}
        for plans, flats in means:
            for plan, flat in zip(plans, flats):
                for slot in plan.slots:
                    mean_of[id(slot.parameter)] = slot.view(flat).detach().cpu().clone()
        return {name: mean_of[id(it)] for name, it in self._live.items() if id(it) in mean_of}

    def mean_buffers(self) -> Dict[str, torch.Tensor]:
        """Of those of floating-point numbers that differ. All members call it."""
        means = mean_buffers(self._model, self._optimizer)
        return {name: mean.cpu() for name, mean in means.items()}

    def mean_optimizer(self) -> Dict[str, Any]:
        """The optimizer's state dict with means of momenta and the like. All members call it."""
        optimizer = self._optimizer
        held: Dict[Any, Dict[str, Any]] = defaultdict(dict)
        held.update({parameter: dict(kept) for parameter, kept in optimizer.state.items()})
        mean: Any = types.SimpleNamespace(state=held)
        group = optimizer._covey_options["process_set"]
        average_state(mean, optimizer._covey_progress.named, group, "covey.save.state")
        every = enumerate(parameters_of(optimizer))
        state = {number: held[it] for number, it in every if held.get(it)}
        mean_state = plain(state, "the mean of the optimizers")
        return {**self.parts["optimizer"], "state": mean_state}


def names_of(model: torch.nn.Module, optimizer: Any) -> List[List[str]]:
    """Those of the optimizer's parameters in the model, by group.

    Raises:
        InvalidArgument: (a ValueError) one is not in it.
    """
    known = {id(parameter): name for name, parameter in model.named_parameters()}
    names: List[List[str]] = []
    for number, group in enumerate(optimizer.param_groups):
        for place, parameter in enumerate(group["params"]):
            if id(parameter) not in known:
                raise InvalidArgument(
                    f"parameter {place} of group {number} of the optimizer, of shape "
                    f"{list(parameter.shape)}, is not in the model"
                )
        names.append([known[id(parameter)] for parameter in group["params"]])
    return names


def _written(name: str, value: Any) -> Tuple[str, Any]:
    """A value that the caller wants to be kept: the way to put it back, and the value."""
    if hasattr(value, "state_dict") and hasattr(value, "load_state_dict"):
        return "state", plain(value.state_dict(), f"{name}.state_dict()")
    return "value", plain(value, name)


def check_model(manifest: Mapping[str, Any], model: torch.nn.Module) -> None:
    """Raises InvalidArgument (a ValueError) if the checkpoint is of another model."""
    own = signature(model.state_dict())
    theirs = [(name, dtype, tuple(shape)) for name, dtype, shape in manifest["tensors"]]
    found = first_difference(own, theirs)
    if found is not None:
        index, mine, there = found
        raise InvalidArgument(
            f"the checkpoint is of another model: tensor {index} is {_name(there)} in the "
            f"checkpoint, and {_name(mine)} in this model"
        )


def _name(tensor: Any) -> str:
    return "not there" if tensor is None else f"{tensor[0]}, {tensor[1]} {list(tensor[2])}"


def check_optimizer(manifest: Mapping[str, Any], model: torch.nn.Module, optimizer: Any) -> None:
    """Raises InvalidArgument (a ValueError) if the checkpoint is of another optimizer."""
    kind, wanted = type(optimizer).__name__, manifest["optimizer"]["class"]
    if kind != wanted:
        raise InvalidArgument(
            f"the checkpoint is of another optimizer: {wanted}, and this one is {kind}"
        )
    own, theirs = names_of(model, optimizer), manifest["optimizer"]["groups"]
    if len(own) != len(theirs):
        raise InvalidArgument(
            f"the checkpoint's optimizer has {len(theirs)} parameter groups, this one {len(own)}"
        )
    for number, (mine, there) in enumerate(zip(own, theirs)):
        found = first_difference(mine, there)
        if found is not None:
            place, one, other = found
            raise InvalidArgument(
                f"the checkpoint's optimizer trains {other or 'nothing'} as parameter {place} of "
                f"group {number}, and this one {one or 'nothing'}"
            )
