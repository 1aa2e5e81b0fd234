"""A rank's own update while its model is averaged with its neighbors' (``order=cwa``). Internal.

The step is x <- W x - u(x_i): whatever an update reads of the parameters, such as weight decay, it
reads of this rank's own, where its gradients were taken. So the average is taken back and kept as
what it changes, and added again after the update. Where an update reads no parameters it can as
well be done on the average: then nothing is kept.
"""

from __future__ import annotations

from typing import Any, List, Optional, Sequence

import torch

# Of these, without weight decay, an update is made of gradients and what is kept of them alone.
_BLIND = (
    torch.optim.SGD,
    torch.optim.Adam,
    torch.optim.AdamW,
    torch.optim.Adamax,
    torch.optim.NAdam,
    torch.optim.RAdam,
    torch.optim.Adagrad,
    torch.optim.Adadelta,
    torch.optim.RMSprop,
    torch.optim.Rprop,
)


def reads_parameters(optimizer: Any) -> bool:
    """Whether the update that comes may depend on the parameters."""
    known = optimizer._covey_class.__mro__[1] in _BLIND
    return not known or any(group.get("weight_decay", 1) != 0 for group in optimizer.param_groups)


class OwnUpdate:
    """That of one rank; ``begin``, ``take_back`` and ``add`` in turn."""

    def __init__(self, parameters: Sequence[torch.Tensor]) -> None:
        self._parameters = parameters
        self._own: Optional[List[torch.Tensor]] = None
        self._change: Optional[List[torch.Tensor]] = None

    @torch.no_grad()
    def begin(self) -> None:
        """An average of the parameters is about to be made; called again it is the same one."""
        if self._own is None:
            self._own = [parameter.detach().clone() for parameter in self._parameters]

    @torch.no_grad()
    def take_back(self) -> None:
        """It was made: the parameters are this rank's own once more."""
        own, self._own = self._own, None
        if own is None:
            return
        self._change = torch._foreach_sub(list(self._parameters), own)
        for parameter, value in zip(self._parameters, own):
            parameter.copy_(value)

    def forget(self) -> None:
        """It was not made, and is not waited for any more."""
        self._own = None

    @torch.no_grad()
    def add(self) -> None:
        """The update is done: the average is added."""
        change, self._change = self._change, None
        if change is not None:
            torch._foreach_add_(list(self._parameters), change)
