"""A model whose ranks train together by a method, for scripts written for torch's
``DistributedDataParallel``: a class with the same arguments, and an optimizer as any other.

The script makes its optimizer from ``model.parameters()``, which becomes a distributed optimizer at
the next forward pass (``ddp_optimizers.py``). Steps in which all ranks wait for gradients are as
torch's: at the end of a backward pass each ``grad`` is the mean over the ranks. In all other steps
``grad`` is this rank's own, and ``opt.step()`` does what the method says.
"""

from __future__ import annotations

import contextlib
import weakref
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple, Type

import torch
from torch.distributed.algorithms.join import Joinable

from covey import basics, elastic_job
from covey.errors import InvalidArgument
from covey.group import Group
from covey.method import GRADIENTS, choose, plan
from covey.torch.compression import Compression, Compressor, check_compression
from covey.torch.ddp_arguments import OF_TORCH, Arguments, default_group, group_of, refuse
from covey.torch.ddp_optimizers import wrapped
from covey.torch.functions import broadcast_parameters
from covey.torch.layout import Named
from covey.torch.optimizer import distribute
from covey.torch.update import settle

_Torchs = torch.nn.parallel.DistributedDataParallel
# As torch.compiler.disable, which would load the compiler now.
_not_compiled: Callable[[Any], Any] = getattr(torch, "_disable_dynamo", lambda function: function)


class DistributedDataParallel(_Torchs):
    """Wraps a module, as torch's class of this name does; ``opt.step()`` acts by ``method``.

    Its first arguments are torch's, of which ``bucket_cap_mb_list``, ``mixed_precision``,
    ``delay_all_reduce_named_params`` and ``param_to_hook_all_reduce`` are refused. Parameters that
    a pass does not use are allowed anyway. Where models may differ between the ranks buffers are
    each rank's own up to ``finish()``, whatever ``broadcast_buffers`` says.

    Args:
        module: the model, with the same parameters on each rank.
        device_ids, output_device: the model's GPU, if it is on one; inputs are moved there.
        broadcast_buffers, forward_sync_buffers: False: each rank keeps its own buffers.
        init_sync: whether all ranks begin with the first one's parameters.
        process_group, device_mesh: of torch's, instead of ``process_set``; a mesh of one dimension.
        bucket_cap_mb: gradients travel together in so many MiB; None: 8.
        dim, find_unused_parameters, static_graph, gradient_as_bucket_view: become attributes.
        check_reduction, skip_all_reduce_unused_params, batched_grad_copy: have no effect.
        method: as of ``DistributedOptimizer``; None: as ``coveyrun --method`` says.
        process_set: the ranks to train with, instead of a ``process_group`` of torch's.
        compression: as of ``DistributedOptimizer``.
        **settings: parameters of the method, such as ``local_steps=8``.

    Raises:
        InvalidArgument, Unsupported: (ValueErrors) an argument that is wrong, or refused.
        Mismatch: the ranks' parameters differ; the message names the first difference.

    Example:
        >>> model = covey.torch.DistributedDataParallel(net, method="local", local_steps=8)
        >>> opt = torch.optim.SGD(model.parameters(), lr=0.1)
        >>> loss(model(inputs)).backward(); opt.step()
        >>> model.finish()
    """

    def __init__(
        self,
        module: torch.nn.Module,
        device_ids: Optional[Sequence[Any]] = None,
        output_device: Any = None,
        dim: int = 0,
        broadcast_buffers: Optional[bool] = None,
        init_sync: bool = True,
        process_group: Any = None,
        bucket_cap_mb: Optional[float] = None,
        find_unused_parameters: bool = False,
        check_reduction: bool = False,
        gradient_as_bucket_view: bool = False,
        static_graph: bool = False,
        delay_all_reduce_named_params: Any = None,
        param_to_hook_all_reduce: Any = None,
        mixed_precision: Any = None,
        device_mesh: Any = None,
        skip_all_reduce_unused_params: bool = False,
        bucket_cap_mb_list: Any = None,
        batched_grad_copy: bool = False,
        forward_sync_buffers: Optional[bool] = None,
        *,
        method: Optional[str] = None,
        process_set: Optional[Group] = None,
        compression: Type[Compressor] = Compression.none,
        **settings: object,
    ) -> None:
        given = Arguments(**{name: it for name, it in locals().items() if name in OF_TORCH})
        torch.nn.Module.__init__(self)  # Not torch's class: it would make its own reducer.
        Joinable.__init__(self)
        basics.init()
        elastic_job.check_inside("a DistributedDataParallel")
        self.method = choose(method, settings, "DistributedDataParallel")
        self.process_set = group_of(given, process_set)
        self.compression = check_compression(compression)
        self.module = module
        self.has_begun = False
        self._optimizers: List["weakref.ref[Any]"] = []
        self._task = -1  # The backward pass of autograd that ends with a reduction.
        given.check(module)
        self._take_over_attributes(given)
        wrapped.add(self, self.trained, _distribute)
        if given.init_sync:
            self._broadcast(module.named_parameters())
            if given.broadcasts_at_first:
                self._broadcast(module.named_buffers())

    def _take_over_attributes(self, given: Arguments) -> None:
        """The attributes of torch's class that scripts read."""
        for name in ("device_ids", "output_device", "dim", "bucket_bytes", "static_graph",
                     "find_unused_parameters", "gradient_as_bucket_view"):
            setattr(self, name, getattr(given, name))
        self.device = next(self.module.parameters()).device
        self.device_type = self.device.type
        self.process_group = given.process_group or default_group()
        self.forward_sync_buffers = given.broadcasts
        self.use_side_stream_for_tensor_copies = True
        self.mixed_precision = self.logger = self.reducer = None
        self.parameters_to_ignore = set(
            getattr(self.module, "_ddp_params_and_buffers_to_ignore", ())
        )
        self.require_backward_grad_sync = self.require_forward_param_sync = True

    @property
    def trained(self) -> List[Named]:
        """Its parameters with their names, but those that torch's class is told to ignore."""
        every = self.module.named_parameters()
        return [(name, it) for name, it in every if name not in self.parameters_to_ignore]

    def _broadcast(self, named: Any) -> None:
        group = self.process_set
        if not group.included() or group.size() == 1:
            return
        kept = {name: it.data for name, it in named if name not in self.parameters_to_ignore}
        broadcast_parameters(kept, group.ranks[0], group)

    def _living(self) -> List[Any]:
        return [it for it in (known() for known in self._optimizers) if it is not None]

    def will_sync_module_buffers(self) -> bool:
        """Whether the next forward pass begins with the first rank's buffers."""
        if not (self.require_forward_param_sync and self.forward_sync_buffers):
            return False
        if next(self.module.buffers(), None) is None:
            return False
        optimizers = self._living()
        if optimizers:
            return all(it._covey_progress.reduces for it in optimizers)
        first = plan(self.method, self.process_set.id, 0)
        return first.payload == GRADIENTS and not first.in_rounds

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        """The module's; where gradients are on it begins a step of training, on all ranks."""
        self._begin_forward()
        if self.device_ids:
            several, named = self.to_kwargs(inputs, kwargs, self.device_ids[0])
            inputs, kwargs = several[0], named[0]
        output = self.module(*inputs, **kwargs)
        if self.require_forward_param_sync:
            self._follow(output)
        return output

    @_not_compiled
    def _begin_forward(self) -> None:
        trains = torch.is_grad_enabled()
        if trains:
            self.has_begun = True
            wrapped.adopt()
        if self.will_sync_module_buffers():
            self._broadcast(self.module.named_buffers())
        self.require_forward_param_sync = trains and self.require_backward_grad_sync

    @_not_compiled
    def _follow(self, output: Any) -> None:
        """A backward pass from ``output`` ends with a reduction, where all ranks wait for it."""
        known = weakref.ref(self)

        def begin(_: torch.Tensor) -> None:
            model = known()
            if model is not None:
                model._begin_backward()

        for tensor in _tensors_in(output):
            if tensor.grad_fn is not None:
                tensor.register_hook(begin)

    def _begin_backward(self) -> None:
        task = torch._C._current_graph_task_id()
        if task == self._task or not self.require_backward_grad_sync:
            return
        self._task = task
        torch.autograd.Variable._execution_engine.queue_callback(self._end_backward)

    def _end_backward(self) -> None:
        task, self._task = self._task, -1
        for optimizer in self._living():
            if optimizer._covey_progress.reduces and optimizer._covey_settled_in != task:
                optimizer._covey_settled_in = task  # Another model may have this optimizer too.
                settle(optimizer)

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Within it backward passes only accumulate, on this rank."""
        wrapped.adopt()
        before, self.require_backward_grad_sync = self.require_backward_grad_sync, False
        try:
            with contextlib.ExitStack() as stack:
                for optimizer in self._living():
                    stack.enter_context(optimizer.no_sync())
                yield
        finally:
            self.require_backward_grad_sync = before

    def finish(self, strict: bool = False) -> None:
        """Makes the parameters the mean over the ranks, if the method has let them differ, and the
        buffers the first rank's.

        To be called by every rank at the end of training, or before it is evaluated or saved;
        training may go on.

        Args:
            strict: as of ``finish`` of ``DistributedOptimizer``, which says what is raised too.
        """
        for optimizer in self._living():
            optimizer.finish(strict)
        if self.forward_sync_buffers:
            self._broadcast(self.module.named_buffers())

    def __getstate__(self) -> Dict[str, Any]:
        # A copy is a model that no optimizer trains yet. Process groups cannot be copied.
        fresh = {"_optimizers": [], "_task": -1, "has_begun": False, "process_group": None}
        return {**self.__dict__, **fresh}

    def __setstate__(self, state: Dict[str, Any]) -> None:
        torch.nn.Module.__setstate__(self, {**state, "process_group": default_group()})

    def _set_static_graph(self) -> None:
        self.static_graph = True

    def _get_ddp_logging_data(self) -> Dict[str, Any]:
        return {}

    register_comm_hook = refuse(
        "register_comm_hook",
        "a method says by itself what travels, and when; compression=, or codec= of the method, "
        "makes gradients or models smaller",
    )
    _register_builtin_comm_hook = register_comm_hook
    _register_buffer_comm_hook = refuse(
        "_register_buffer_comm_hook", "buffers are the first rank's; forward_sync_buffers=False "
        "leaves each rank its own",
    )
    _register_fused_optim = refuse(
        "_register_fused_optim", "an update may need several backward passes, or none: opt.step()"
    )
    join = refuse(
        "join",
        "give each rank equally many batches (drop the rest), or train with method='eager', which "
        "goes on without ranks that are missing for max_wait",
    )
    join_hook = join


def _distribute(optimizer: Any, models: Sequence[DistributedDataParallel]) -> None:
    """Makes ``optimizer``, which trains ``models``, distributed."""
    first = models[0]
    for other in models[1:]:
        if (other.method, other.process_set.ranks) != (first.method, first.process_set.ranks):
            raise InvalidArgument(
                f"{type(optimizer).__name__} trains two models: {first.method!r} of ranks "
                f"{first.process_set.ranks} and {other.method!r} of ranks "
                f"{other.process_set.ranks}: give each an optimizer of its own"
            )
    is_one = len(models) == 1
    named: List[Tuple[str, torch.nn.Parameter]] = [
        (name if is_one else f"{number}.{name}", parameter)
        for number, model in enumerate(models)
        for name, parameter in model.trained
    ]
    optimizer._covey_settled_in = -1
    distribute(
        optimizer,
        first.method,
        named_parameters=named,
        model=first.module if is_one else torch.nn.ModuleList(it.module for it in models),
        compression=first.compression,
        process_set=first.process_set,
        bucket_bytes=first.bucket_bytes,
    )
    for model in models:
        model._optimizers.append(weakref.ref(optimizer))


def _tensors_in(value: Any) -> Iterator[torch.Tensor]:
    """The tensors that a model returns, in containers or by themselves."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _tensors_in(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _tensors_in(item)
    elif hasattr(value, "__dataclass_fields__"):
        yield from _tensors_in(vars(value))
