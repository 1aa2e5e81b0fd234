"""Saving a training as a whole, with what its method holds, and going on from there.

A method may have more of a training than parameters and optimizer: contributions that wait in
slots, averages with others that are not taken over, steps that only the core has counted. Rather
than to write these down, they are brought in (``save`` says what that is by each method), and
rounds begin anew on both sides: on ranks that go on after saving, and on ranks that load. So both
do the same from there, bit for bit. An outer momentum goes on; local steps are counted anew.
"""

from __future__ import annotations

import functools
import pathlib
from typing import Any, Dict, List, Mapping, Tuple

import torch

from covey import _native, checkpoint_folder
from covey.checkpoints import Loaded, agree_on_steps, look, reset_of, unknown, write
from covey.errors import InvalidArgument
from covey.meeting import Meeting
from covey.notice import tell
from covey.state import state
from covey.torch import plain
from covey.torch.contents import PARTS, Contents, check_model, check_optimizer
from covey.torch.ddp_optimizers import wrapped
from covey.torch.method_state import kept_by_method, put_back, put_back_to_method
from covey.torch.trainer.training import close_trainer, open_trainer


def save(path: Any, model: torch.nn.Module, optimizer: Any, **also: Any) -> None:
    """Saves a training as one folder; all ranks that ``optimizer`` trains on call it, after a step.

    ``load`` goes on from there as the job that goes on itself: bit for bit, where the method and
    the arithmetic do the same twice. With ``allreduce`` and ``local`` it changes nothing (``local``
    also in the middle of its local steps; what their codecs have left out is saved too). With
    ``eager``, and ``max_wait``, it is a ``finish()``: all gradients count; with ``wagma``, and
    ``local`` by ``max_wait``, too: it averages the models, and the next average of all is
    ``sync_every`` later. With ``adpsgd`` and ``swarm`` each rank has its own model, with what
    others have made of it; local steps and partners begin anew.

    In the folder are ``model.pt`` and ``optimizer.pt``, state dicts that ``torch.load`` reads
    without Covey: of the mean of all ranks' models, with their buffers, and of their momenta. It
    appears, and takes the place of one that was there, at once, when all of it is on the disc.

    Args:
        path: the folder, in a file system that all ranks share.
        model: the module; its parameters include the optimizer's.
        optimizer: a ``DistributedOptimizer``, or that of a ``DistributedDataParallel``.
        **also: further values to be kept, of each rank: objects with ``state_dict()`` (a
            scheduler, a GradScaler), or numbers, texts, tensors, and lists and dicts of them. The
            state of torch's random numbers on the CPU is kept anyhow.

    Raises:
        NotSaved: (an OSError) a rank could not write; the message says which and why.
        InvalidArgument: (a ValueError) something cannot be kept; or called between backward and
            step; or ranks that step together have done unequal numbers of steps.
        Timeout: with a method that has ``max_wait``: a rank has not come. A rank that has come is
            waited for however long it writes.
        Aborted: a rank has died. Whatever is raised, the old checkpoint is whole.

    Example:
        >>> covey.save("run/last", model, optimizer, scheduler=scheduler, epoch=epoch)
    """
    meeting, place = _meet("save", model, optimizer, path)
    positions = meeting.gather(optimizer._covey_progress.position())
    _agree_on_step(optimizer, positions, meeting.group.ranks)
    if optimizer._covey_progress.plan.in_rounds:  # They begin anew, with nothing left outside.
        method_keeps = kept_by_method(optimizer)
        close_trainer(optimizer)
        open_trainer(optimizer)
        put_back_to_method(optimizer, method_keeps)
    contents: Any = None
    with meeting.part():
        contents = Contents(model, optimizer, also)
    meeting.agree()
    files, manifest = _files_of(meeting, contents)
    manifest["method"] = optimizer._covey_progress.method
    manifest["positions"] = positions
    manifest["optimizer"] = {"class": type(optimizer).__name__, "groups": contents.names}
    dumps = {name: functools.partial(torch.save, content) for name, content in files.items()}
    write(meeting, place, dumps, manifest)


def _meet(what: str, model: Any, optimizer: Any, path: Any) -> Tuple[Meeting, pathlib.Path]:
    """All have come, no rank is in a step, and nothing is under way; the folder of ``path``."""
    place = state.require()
    if not hasattr(optimizer, "_covey_progress"):
        wrapped.adopt()  # A DistributedDataParallel may have it, before its first forward pass.
    if not hasattr(optimizer, "_covey_progress"):
        raise InvalidArgument(
            f"{what}: the optimizer is a {type(optimizer).__name__}, not a DistributedOptimizer: "
            "what is trained alone is saved by torch.save()"
        )
    progress, trainer = optimizer._covey_progress, optimizer._covey_trainer
    progress.refuse_mixed(what)
    group = optimizer._covey_options["process_set"]
    if not group.included():
        raise InvalidArgument(
            f"{what}: the optimizer trains on the ranks {group.ranks}, which call it, and this is "
            f"rank {place.rank}"
        )
    if progress.plan.in_rounds:  # The next exchange waits with a limit.
        _check_between_steps(optimizer, what)
    if progress.plan.in_rounds and not progress.plan.in_pairs:
        optimizer.finish(strict=True)
    elif trainer is not None:
        with progress.changing():
            trainer.gather_in()
    meeting, folder = Meeting(what, group), pathlib.Path()
    with meeting.part():
        _check_between_steps(optimizer, what)
        if not isinstance(model, torch.nn.Module):
            kind = type(model).__name__
            raise InvalidArgument(f"{what}: model must be a torch.nn.Module, not a {kind}")
        folder = checkpoint_folder.place_of(path)
    meeting.agree()
    return meeting, folder


def _check_between_steps(optimizer: Any, what: str) -> None:
    """Raises InvalidArgument (a ValueError) inside consensus(), or between backward and step."""
    reducer = optimizer._covey_reducer
    if optimizer._covey_progress.is_viewed:
        raise InvalidArgument(
            f"{what}() inside covey.consensus(), where the parameters are not this rank's own: end "
            "the `with` before"
        )
    if reducer is not None and reducer.in_flight:
        raise InvalidArgument(
            f"{what}() after loss.backward() but before optimizer.step(): call it after step()"
        )


def _agree_on_step(optimizer: Any, positions: List[Dict[str, Any]], ranks: List[int]) -> None:
    """Ranks that step together are at one step, from which they go on: in rounds, where a late rank
    calls ``step()`` less often, that of the rank that has done most. In pairs each has its own."""
    progress = optimizer._covey_progress
    if progress.plan.in_pairs:
        return
    steps = [position["steps"] for position in positions]
    if progress.plan.in_rounds:
        progress.steps = max(steps)
        for position in positions:
            position["steps"] = progress.steps
        return
    agree_on_steps(steps, ranks)


def _files_of(meeting: Meeting, contents: Contents) -> Tuple[Dict[str, Any], Dict[str, Any]]:
    """By name what this rank writes, and what there is to be said of it."""
    digests = meeting.gather((contents.layout, *contents.digests))
    own = [part for part, *known in zip(("layout", *PARTS), *digests) if len(set(known)) > 1]
    if "layout" in own:
        raise InvalidArgument(
            "save: the ranks' models, or optimizers, have different tensors: "
            "covey.check_replicas(model) says which"
        )
    parameters = contents.parts["parameters"]
    moments = contents.parts["optimizer"]
    buffers: Dict[str, Any] = {}
    if "parameters" in own:
        parameters = contents.mean_parameters()
    if "buffers" in own:
        buffers = contents.mean_buffers()
    if "optimizer" in own:
        moments = contents.mean_optimizer()
    mine = {**{part: contents.parts[part] for part in own}, **contents.own}
    files = {plain.rank_file(meeting.index): mine}
    if meeting.leads:
        files[plain.MODEL] = contents.whole_model(parameters, buffers)
        files[plain.OPTIMIZER] = moments
    return files, {
        "format": checkpoint_folder.FORMAT,
        "covey": _native.version,
        "torch": str(torch.__version__),
        "size": meeting.group.size(),
        "own": own,
        "tensors": contents.tensors,
    }


def load(path: Any, model: torch.nn.Module, optimizer: Any, **also: Any) -> Loaded:
    """Goes on from where ``save`` was called; all ranks that ``optimizer`` trains on call it.

    First every rank looks whether what it needs is whole and fits; if it is not so on one of them,
    nothing is changed on any. With as many ranks and the same method each rank goes on where it
    was. Else all begin with the mean model and the mean of momenta and the like, at the step that
    was reached, and what was reset is said on stderr by rank 0 and in ``reset``.

    Args:
        path: the folder, in a file system that all ranks share, or a copy of it on every host.
        model: the module, made as it was for ``save``.
        optimizer: a ``DistributedOptimizer`` of the same class, with the same parameter groups.
        **also: objects to give their state back to, by the names they had: a scheduler.

    Raises:
        BadCheckpoint: (a ValueError) a file is missing, cut short or changed, or a newer Covey has
            written it. Nothing was loaded, on any rank; the message names the file.
        InvalidArgument: (a ValueError) there is none, or a rank does not see it; it is of another
            model (the message names the first tensor that differs) or optimizer; it has nothing by
            a name in ``also``.
        Timeout: with a method that has ``max_wait``: a rank has not come.

    Example:
        >>> loaded = covey.load("run/last", model, optimizer, scheduler=scheduler)
        >>> first = loaded["epoch"] + 1
    """
    meeting, where = _meet("load", model, optimizer, path)
    found, manifest = look(meeting, where, "torch")
    source: Any = None
    with meeting.part():
        check_model(manifest, model)
        check_optimizer(manifest, model, optimizer)
        source = _Source(found, manifest, meeting, optimizer)
        source.check(also)
    meeting.agree()
    loaded = Loaded(manifest, source.reset)
    close_trainer(optimizer)
    with meeting.part(), optimizer._covey_progress.changing():
        source.put(model, optimizer, also)
        optimizer._covey_progress.take_up(source.position)
    open_trainer(optimizer)
    meeting.agree()
    put_back(optimizer, source.kept)
    put_back_to_method(optimizer, source.kept)
    loaded.steps, loaded.version = source.position["steps"], source.position["version"]
    loaded._also = {name: value for name, (_, value) in source.also.items()}
    if meeting.leads:
        tell(*(f"load {where}: {line}" for line in loaded.reset))
    return loaded


class _Source:
    """The parts that one rank takes from a checkpoint."""

    def __init__(
        self, where: pathlib.Path, manifest: Mapping[str, Any], meeting: Meeting, optimizer: Any
    ) -> None:
        """Reads it. Raises BadCheckpoint (a ValueError)."""
        size, own = meeting.group.size(), manifest["own"]
        method = optimizer._covey_progress.method
        self._is_same_size = manifest["size"] == size
        is_exact = self._is_same_size and manifest["method"] == method
        entries = manifest["files"]
        index = meeting.index if self._is_same_size else 0
        part = plain.read(where, plain.rank_file(index), entries)
        self.also: Dict[str, Tuple[str, Any]] = part["also"]
        # Of a checkpoint that an older Covey has written there is none.
        self.kept: Dict[str, torch.Tensor] = part.get("codec", {}) if is_exact else {}
        self._random = part["random"] if self._is_same_size else None
        self._model: Dict[str, Any] = plain.read(where, plain.MODEL, entries)
        if self._is_same_size:
            self._model.update(part.get("buffers", {}))
        if is_exact:
            self._model.update(part.get("parameters", {}))
        if is_exact and "optimizer" in own:
            self._optimizer = part["optimizer"]
        else:
            self._optimizer = plain.read(where, plain.OPTIMIZER, entries)
        read = {plain.rank_file(i) for i in range(size if self._is_same_size else 1)}
        read |= {plain.MODEL, plain.OPTIMIZER}
        if is_exact and "optimizer" in own:
            read.remove(plain.OPTIMIZER)
        for name in sorted(set(entries) - read)[meeting.index :: size]:
            # It is not needed, but something has gone wrong.
            checkpoint_folder.check(where, name, entries)
        positions = manifest["positions"]
        self.position = positions[index] if is_exact else _joint(positions)
        steps, has_also = _joint(positions)["steps"], bool(self.also)
        self.reset = [] if is_exact else reset_of(manifest, steps, size, method, has_also)

    def check(self, also: Mapping[str, Any]) -> None:
        """Raises InvalidArgument (a ValueError) for a name that the checkpoint has not."""
        for name, target in also.items():
            if name not in self.also:
                raise InvalidArgument(unknown(name, self.also))
            if not hasattr(target, "load_state_dict") or self.also[name][0] != "state":
                raise InvalidArgument(
                    f"{name} was saved as a value, or is one: it is loaded[{name!r}] afterwards"
                )

    def put(self, model: torch.nn.Module, optimizer: Any, also: Mapping[str, Any]) -> None:
        """Changes the model, the optimizer and what else there is."""
        model.load_state_dict(self._model)
        optimizer.load_state_dict(self._optimizer)
        for name, target in also.items():
            target.load_state_dict(self.also[name][1])
        if self._random is not None:
            torch.set_rng_state(self._random)


def _joint(positions: List[Dict[str, Any]]) -> Dict[str, Any]:
    """Where all are that begin with one model."""
    return {
        "steps": max(position["steps"] for position in positions),
        "version": max(position["version"] for position in positions),
        "parted": False,
    }
