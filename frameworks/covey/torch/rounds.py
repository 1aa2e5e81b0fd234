"""An optimizer whose steps wait for enough ranks instead of all. Internal.

``step()`` publishes this rank's gradients, waits until the version of its step has been made, and
then applies every version it has not applied yet, in order: gradients and hyper-parameters from the
version's record. So all ranks do the same updates, and their parameters are equal at equal version,
whoever was late. Versions are made by the core while ranks wait: see ``core/round/README.md``.
"""

from __future__ import annotations

import ctypes
import warnings
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import torch

from covey import _native
from covey.errors import InvalidArgument, Unsupported
from covey.method import ranks_needed
from covey.ops import barrier
from covey.reduce_op import Average, Sum
from covey.torch.bucket import Reduction
from covey.torch.compression import Compression
from covey.torch.layout import BucketPlan, gradient_strides
from covey.torch.reducer import next_prefix
from covey.torch.tensors import CODES

# What travels with a step, where an optimizer has it.
_HYPERS = ("lr", "momentum", "betas", "weight_decay")


class Hypers:
    """The numbers of an optimizer that a version is applied with."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self._optimizer = optimizer

    @property
    def _groups(self) -> List[Dict[str, Any]]:
        return self._optimizer.param_groups  # load_state_dict() makes a new list

    def read(self) -> Tuple[float, ...]:
        """All of them, group by group."""
        numbers: List[float] = []
        for group in self._groups:
            for name in _HYPERS:
                value = group.get(name)
                values = value if isinstance(value, (tuple, list)) else (value,)
                numbers += [float(v) for v in values if v is not None]
        return tuple(numbers)

    def write(self, numbers: Sequence[float]) -> None:
        """Puts back what ``read`` gave, on any rank. Where nothing differs, nothing is touched."""
        if tuple(numbers) == self.read():
            return
        left = iter(numbers)
        for group in self._groups:
            for name in _HYPERS:
                value = group.get(name)
                if value is None:
                    continue
                if isinstance(value, (tuple, list)):
                    group[name] = type(value)(next(left) for _ in value)
                elif isinstance(value, torch.Tensor):
                    value.fill_(next(left))
                else:
                    group[name] = next(left)


class _Span:
    """The gradients of one bucket: where a version is read to, and its views by parameter."""

    def __init__(self, plan: BucketPlan) -> None:
        self.plan = plan
        self.parameters = [slot.parameter for slot in plan.slots]
        self.result = torch.zeros(plan.length, dtype=plan.dtype)
        self.views = self.views_of(self.result)

    def views_of(self, flat: torch.Tensor) -> List[torch.Tensor]:
        """A view for each parameter, then the flags that tell who had a gradient."""
        plan = self.plan
        views = [
            flat.as_strided(slot.parameter.shape, gradient_strides(slot.parameter), slot.offset)
            for slot in plan.slots
        ]
        return views + [flat[plan.flags_offset : plan.flags_offset + len(plan.slots)]]

    def at(self, address: int) -> List[torch.Tensor]:
        """``views_of`` memory of the core."""
        size = self.plan.length * self.result.element_size()
        memory = (ctypes.c_char * size).from_address(address)
        return self.views_of(torch.frombuffer(memory, dtype=self.plan.dtype))

    def give(self) -> None:
        """Gradients are those of the version that was read; None where no rank had one."""
        flags = self.views[-1].tolist()
        for parameter, view, flag in zip(self.parameters, self.views, flags):
            parameter.grad = view if flag != 0 else None


class RoundTrainer:
    """The rounds of one optimizer."""

    def __init__(
        self,
        optimizer: Any,
        plans: Sequence[BucketPlan],
        reduction: Reduction,
        method: str,
    ) -> None:
        """Every member of the group makes one, with the same parameters and options.

        Raises:
            Unsupported: (a ValueError) an option that this method does not go with.
            Mismatch, Exhausted: on every rank: the ranks differ; a rank has no room.
        """
        options = optimizer._covey_options
        check_options(optimizer, options)
        self._optimizer = optimizer
        self._group = reduction.group
        self._densify = options["sparse_as_dense"]
        self._hypers = Hypers(optimizer)
        self._spans = [_Span(plan) for plan in plans]
        self._slots: Dict[int, List[List[torch.Tensor]]] = {}  # By address: the core has three.
        self.applied = 0
        self.overdue = [0] * self._group.size()  # By member: how often it has become so.
        self._missing = (0,) * self._group.size()
        self._tally = optimizer._covey_progress.tally
        self._part = (optimizer._covey_progress.steps + 1) << 32  # Apart from steps of other parts.
        self._needed = ranks_needed(method, self._group.size())
        self._rounds = _native.rounds_open(
            self._group.id,
            next_prefix("rounds", self._group.ranks),
            method,
            reduction.op_code,
            len(self._hypers.read()),
            tuple(CODES[plan.dtype] for plan in plans),
            tuple(plan.length for plan in plans),
        )

    def close(self) -> None:
        """This rank leaves."""
        rounds, self._rounds = self._rounds, 0
        if rounds:
            _native.rounds_close(rounds)

    def __del__(self) -> None:
        if getattr(self, "_rounds", 0):
            self.close()

    def synchronize(self) -> None:
        """It has no place here: a step may apply several versions, or none."""
        raise InvalidArgument(
            "optimizer.synchronize() cannot be used with a method that does not wait for all "
            "ranks: a step applies as many versions as were made meanwhile; call optimizer.step() "
            "alone"
        )

    def step(self, closure: Optional[Callable[[], Any]] = None) -> Any:
        """One step of the optimizer, or several when this rank was late. See the module."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self._write(self._open())
        step = _native.rounds_publish(self._rounds, self._hypers.read())
        with self._tally.waiting(self._part + step, self._needed):
            _native.rounds_wait(self._rounds, step)
        self._apply_all()
        return loss

    def finish(self) -> None:
        """Waits until every gradient counts and applies what is left: then replicas are equal.

        Raises:
            Timeout: after ``max_wait``; the message names the ranks that are missing. Those that
                are there have applied what they have published, and may call it again.
        """
        try:
            _native.rounds_finish(self._rounds)
        finally:
            self._apply_all()
        barrier(self._group)  # Nobody trains on before all know the last version.

    def _open(self) -> List[List[torch.Tensor]]:
        addresses = _native.rounds_spans(self._rounds, len(self._spans))
        if addresses[0] not in self._slots:
            self._slots[addresses[0]] = [
                span.at(address) for span, address in zip(self._spans, addresses)
            ]
        return self._slots[addresses[0]]

    def _write(self, slots: List[List[torch.Tensor]]) -> None:
        """Copies this rank's gradients; zeros where it has none."""
        sources: List[torch.Tensor] = []
        targets: List[torch.Tensor] = []
        with torch.no_grad():
            for span, views in zip(self._spans, slots):
                flags = [float(parameter.grad is not None) for parameter in span.parameters]
                views[-1].copy_(torch.tensor(flags))
                for parameter, view in zip(span.parameters, views):
                    if parameter.grad is None:
                        view.zero_()
                        continue
                    sources.append(self._dense(parameter.grad))
                    targets.append(view)
            if sources:
                torch._foreach_copy_(targets, sources)

    def _dense(self, gradient: torch.Tensor) -> torch.Tensor:
        if gradient.layout is torch.strided:
            return gradient.detach()
        if not self._densify:
            raise Unsupported(
                "a gradient is sparse: pass sparse_as_dense=True to DistributedOptimizer"
            )
        return gradient.to_dense()

    def _apply_all(self) -> None:
        executed = _native.rounds_executed(self._rounds)
        addresses = tuple(span.result.data_ptr() for span in self._spans)
        own = self._hypers.read()
        try:
            while self.applied < executed:
                version = self.applied + 1
                size = self._group.size()
                record = _native.rounds_read(self._rounds, version, addresses, size, len(own))
                leader, hypers = record[1], record[3]
                self._tally.version(version, record[2])
                self._note(version, record[4])
                for span in self._spans:
                    span.give()
                if leader >= 0:
                    self._hypers.write(hypers)
                    self._optimizer._covey_super().step()
                self.applied = version
                self._optimizer._covey_progress.after_update()
        finally:
            self._hypers.write(own)

    def _note(self, version: int, missing: Tuple[int, ...]) -> None:
        """Says who is overdue, each time it becomes so."""
        for index, (before, after) in enumerate(zip(self._missing, missing)):
            if after > 0 and before == 0:
                self.overdue[index] += 1
                self._tally.overdue(index)
                warnings.warn(
                    f"rank {self._group.ranks[index]} was missing at version {version} when "
                    "max_wait was over: it is not waited for until it has kept up for 3 steps; "
                    "its gradients count when it publishes them"
                )
        self._missing = missing


def check_options(optimizer: Any, options: Dict[str, Any]) -> None:
    """Raises Unsupported (a ValueError) for an option that rounds do not go with."""
    wrong = None
    if options["op"] not in (Average, Sum):
        wrong = "op must be Average or Sum"
    elif options["gradient_predivide_factor"] != 1.0:
        wrong = "gradient_predivide_factor must be 1"
    elif options["compression"] is not Compression.none:
        wrong = "compression must be none"
    elif isinstance(optimizer, torch.optim.LBFGS):
        wrong = "LBFGS evaluates its closure as often as it likes, which no step can be made of"
    if wrong is not None:
        raise Unsupported(f"{wrong}, with a method that does not wait for all ranks")
