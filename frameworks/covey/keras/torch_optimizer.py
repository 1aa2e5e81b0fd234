"""The distributed optimizer of Keras 3 on torch. See also ``covey/tensorflow/optimizer.py``."""

from __future__ import annotations

from typing import Any, List, Optional, Tuple, Type

import keras
import torch

from covey.group import Group, world
from covey.keras.options import check_options, check_passes, with_codec
from covey.keras.torch_trainer import Trainer
from covey.keras.wrapped import WrappedOptimizer, own_class
from covey.local_variables import plain
from covey.method import choose
from covey.reduce_op import Average
from covey.torch.compression import Compression, Compressor

_CODECS = {Compression.none: "", Compression.fp16: "fp16", Compression.bf16: "bf16"}


@own_class
class DistributedOptimizer(WrappedOptimizer):
    """Wraps an optimizer, so that ``apply()`` is a step of a training by all ranks; all make one.

    Model and optimizer become those of rank ``root_rank`` at the first step, after its gradients
    were computed: ``BroadcastGlobalVariablesCallback`` does it before. ``fit()`` calls ``finish()``
    at its end.

    Args:
        optimizer: a Keras 3 optimizer, or its name, such as "sgd". Clipping and weight decay are
            its own, after the exchange. For loss scaling give
            ``keras.optimizers.LossScaleOptimizer(optimizer)``, not the other way round.
        name: of the optimizer.
        device_dense, device_sparse, num_groups, groups, use_locking: accepted for Horovod's sake.
        compression: ``Compression.none``; ``.fp16`` or ``.bf16``: the codec of this name, of
            variables in float32.
        sparse_as_dense: accepted: sparse gradients are always made dense.
        gradient_predivide_factor: with Average: divides gradients before all ranks' are summed up,
            and multiplies after it. Only with a method that sums them up.
        op: Average or Sum, of gradients.
        backward_passes_per_step: so many calls of ``apply()`` add up to one step.
        average_aggregated_gradients: divides the sum of these by their number.
        process_set: the ranks that train together. Another rank trains by itself.
        scale_local_gradients: divides the gradients of local variables by the size of
            ``process_set``: :meth:`register_local_var`.
        method: such as "local:local_steps=8"; None: as COVEY_METHOD says, else "allreduce".
        settings: parameters of the method: ``local_steps=8``, ``codec="int8"``.

    Attributes:
        inner_optimizer: the wrapped one.
        root_rank: the global rank with whose model and optimizer all begin.

    Raises:
        InvalidArgument, NotInitialized, Unsupported: (ValueErrors) wrong here; before ``init()``;
            the message says how else.

    Example:
        >>> optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.1), method="eager")
        >>> model.compile(optimizer, "mse")
    """

    backend = "torch"
    variable = torch.Tensor

    def __init__(
        self,
        optimizer: Any,
        name: Optional[str] = None,
        device_dense: str = "",
        device_sparse: str = "",
        compression: Type[Compressor] = Compression.none,
        sparse_as_dense: bool = False,
        gradient_predivide_factor: float = 1.0,
        op: int = Average,
        backward_passes_per_step: int = 1,
        average_aggregated_gradients: bool = False,
        num_groups: int = 0,
        groups: Any = None,
        process_set: Group = world,
        scale_local_gradients: bool = True,
        use_locking: bool = False,
        *,
        method: Optional[str] = None,
        **settings: object,
    ) -> None:
        del device_dense, device_sparse, sparse_as_dense, use_locking
        if isinstance(optimizer, str):
            optimizer = keras.optimizers.get(optimizer)
        check_options(optimizer, op, gradient_predivide_factor, num_groups, groups)
        uncompressed = choose(method, settings)
        text = with_codec(uncompressed, compression, _CODECS)
        passes = check_passes(backward_passes_per_step)
        super().__init__(
            optimizer, name, op=op, group=process_set, method=text, is_chosen=method is not None,
            factor=gradient_predivide_factor, scale_local=scale_local_gradients,
        )
        self._covey_sum = _Sums(passes, average_aggregated_gradients)
        self._covey_uncompressed = uncompressed

    @torch.no_grad()
    def apply(self, grads: Any, trainable_variables: Any = None) -> None:
        """One step: updates and exchanges what the method says. Every rank calls it equally often,
        unless the method does not wait for all.

        Args:
            grads: a tensor or None (zeros) for each variable.
            trainable_variables: the same at each call; None: those of ``build()``.

        Raises:
            InvalidArgument: (a ValueError) other variables than at the first step.
            Mismatch: on every rank, at the first step: variables, method or op differ.
            CoveyError: as ``covey.numpy.Trainer.step`` says. After one before its update nothing
                has changed, and the next call is this step again; after a later one the next call
                goes on with this step, and takes no gradients.
        """
        gradients = list(grads)
        if not gradients:
            return
        variables = self._prepared(gradients, trainable_variables)
        dense = [
            torch.zeros_like(it) if gradient is None else _dense(gradient)
            for gradient, it in zip(gradients, map(plain, variables))
        ]
        rate = self._rate()
        sums = self._covey_sum.add(dense)
        if sums is not None:
            self._step(variables, sums, [] if rate is None else [float(rate)])

    def _open(self, variables: List[Any]) -> Trainer:
        return Trainer(
            [plain(variable) for variable in variables],
            self._update,
            self._kept(),
            names=[getattr(it, "path", f"variable {i}") for i, it in enumerate(variables)],
            method=self._covey_method,
            op=self._covey_op,
            group=self._covey_group,
            num_hypers=0 if self._rate() is None else 1,
            begin=int(self.iterations),
            root=self.root_rank,
            resumption=self._covey_resumption,
        )

    def _update(self, gradients: List[Any], hypers: Tuple[float, ...]) -> None:
        """An update by the inner optimizer, with the learning rate of these gradients."""
        rate, variables = self._rate(), self._trainable_variables
        near = [
            it.to(plain(one).device) for it, one in zip(self._completed(gradients), variables)
        ]
        if rate is None:
            self.inner_optimizer.apply(near, variables)
            return
        own = float(rate)
        rate.assign(hypers[0])
        try:
            self.inner_optimizer.apply(near, variables)
        finally:
            rate.assign(own)


class _Sums:
    """Gradients of several passes, added up to those of one step.

    Args:
        passes: so many make a step.
        is_mean: the sums are divided by this number.

    Attributes:
        passes, is_mean: these.
    """

    def __init__(self, passes: int, is_mean: bool) -> None:
        self.passes, self.is_mean = passes, is_mean
        self._count = 0
        self._kept: List[torch.Tensor] = []

    def add(self, gradients: List[torch.Tensor]) -> Optional[List[torch.Tensor]]:
        """Adds them. The sums after the last pass of a step, else None."""
        if self.passes == 1:
            return gradients
        if self._count == 0:
            self._kept = [it.clone() for it in gradients]
        else:
            torch._foreach_add_(self._kept, gradients)
        self._count = (self._count + 1) % self.passes
        if self._count > 0:
            return None
        if self.is_mean:
            torch._foreach_div_(self._kept, float(self.passes))
        sums, self._kept = self._kept, []
        return sums

    def abandon(self) -> None:
        """Drops the sums of a step that has not all passes."""
        self._count, self._kept = 0, []


def _dense(gradient: Any) -> torch.Tensor:
    tensor: torch.Tensor = torch.as_tensor(plain(gradient)).detach()
    return tensor.to_dense()
