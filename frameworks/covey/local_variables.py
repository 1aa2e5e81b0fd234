"""Variables that stay each rank's own in a training by all ranks. Internal."""

from __future__ import annotations

from typing import Any, Dict, Iterable, List, Union

from covey.arguments import many_of
from covey.errors import InvalidArgument


def plain(variable: Any) -> Any:
    """The framework's own variable, or tensor, of a Keras variable; anything else is what it
    is."""
    value = getattr(variable, "value", None)
    return variable if value is None or callable(value) else value


class VariableSet:
    """A set of variables. A Keras variable and the framework's own one in it are the same."""

    def __init__(self, variables: Iterable[Any] = ()) -> None:
        self._known: Dict[int, Any] = {}
        for variable in variables:
            self.add(variable)

    def add(self, variable: Any) -> None:
        """Adds one."""
        inner = plain(variable)
        self._known[id(inner)] = inner

    def __contains__(self, variable: Any) -> bool:
        return id(plain(variable)) in self._known

    def __len__(self) -> int:
        return len(self._known)


def listed(variables: Union[Any, Iterable[Any], None], what: str, kind: type) -> List[Any]:
    """One variable or several, of Keras or of the framework, whose own are of the type ``kind``;
    None: no variable.

    Raises:
        InvalidArgument: (a ValueError) something is no variable; names it as ``what``.
    """
    if variables is None:
        return []
    several = [variables] if isinstance(plain(variables), kind) else variables
    try:
        found = list(several)
    except TypeError:
        found = [several]
    for one in found:
        if not isinstance(plain(one), kind):
            raise InvalidArgument(f"{what} must hold variables, not {one!r}")
    return found


def trainable_of(local_layers: Any) -> List[Any]:
    """The trainable variables of a Keras layer, or of several; None: no layer.

    Raises:
        InvalidArgument: (a ValueError) something is no layer.
    """
    from keras.layers import Layer  # Keras takes seconds to import.

    if local_layers is None:
        return []
    layers = [local_layers]
    if not isinstance(local_layers, Layer):
        layers = list(many_of(local_layers, "local_layers"))
    for layer in layers:
        if not isinstance(layer, Layer):
            raise InvalidArgument(f"local_layers must hold Keras layers, not {layer!r}")
    return [variable for layer in layers for variable in layer.trainable_weights]


def without_slots_of(local: List[Any], everything: List[Any], kept: List[Any]) -> List[Any]:
    """``kept``, an optimizer's variables, without those that it keeps for ``local`` variables.

    Keras names such a variable after the one that it is for: the longest path that fits is meant.
    One that may be for a variable that is not local stays.

    Args:
        local: Keras variables, some of ``everything``.
        everything: all Keras variables that the optimizer trains.
        kept: Keras variables.
    """
    if not local:
        return kept
    shared = {_head(it) for it in everything if all(it is not other for other in local)}
    heads = sorted(shared.union(map(_head, local)), key=len, reverse=True)

    def is_shared(slot: Any) -> bool:
        head = next((it for it in heads if slot.name.startswith(it)), None)
        return head is None or head in shared

    return [slot for slot in kept if is_shared(slot)]


def _head(variable: Any) -> str:
    name = str(getattr(variable, "path", variable.name))
    return name.replace("/", "_").replace(":", "_") + "_"
