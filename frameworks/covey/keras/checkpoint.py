"""Saving a training as a whole, with what its method holds, and going on from there."""

from __future__ import annotations

import hashlib
import importlib
import json
import pathlib
import re
import zipfile
from typing import Any, Dict, List, Mapping, Sequence, Tuple

import keras
import numpy

from covey import _native, checkpoint_folder
from covey.checkpoints import (
    Dump,
    Loaded,
    agree_on_steps,
    first_difference,
    look,
    reset_of,
    write,
)
from covey.errors import InvalidArgument
from covey.group import Group
from covey.keras.mean_model import consensus, optimizer_of
from covey.keras.resumption import Resumption
from covey.meeting import Meeting
from covey.names import next_prefix
from covey.notice import tell
from covey.ops import allreduce
from covey.reduce_op import Average, Max
from covey.trainer_handle import Position

MODEL, OPTIMIZER = "model.npz", "optimizer.npz"
PARTS = ("parameters", "buffers", "optimizer")
"""Written once if they are the same on all ranks, else once for all and once for each."""

Arrays = Dict[str, Any]
_STEP = Position._fields.index("step")


def save(path: Any, model: Any, optimizer: Any = None, **also: Any) -> None:
    """Saves a training as one folder; all ranks call it outside of tf.function, between two steps,
    as in a callback of ``fit()`` at the end of an epoch.

    ``load`` goes on from there with the same numbers by ``allreduce``, ``local``, ``dpsgd``,
    ``eager``, ``wagma`` and ``diloco``, where all ranks come in time. In rounds it is a strict
    ``finish()``. By ``adpsgd`` and ``swarm`` each rank has its own model, with what others have
    made of it, and draws its partners anew. In the folder are ``model.npz`` and ``optimizer.npz``,
    which NumPy reads: the mean of all ranks' models, and of their optimizers.

    Args:
        path: the folder, in a file system that all ranks share.
        model: a Keras model that was compiled with a ``DistributedOptimizer``.
        optimizer: that optimizer; None: the model's.
        **also: numbers, texts, and lists and dicts of them, of each rank.

    Raises:
        NotSaved: (an OSError) a rank could not write; the message says which and why.
        InvalidArgument: (a ValueError) before the first step; something cannot be kept; ranks that
            step together have done unequal numbers of steps.
        Timeout: with a method that has ``max_wait``: a rank has not come.
        Aborted: a rank has died. Whatever is raised, the old checkpoint is whole.

    Example:
        >>> covey.save("run/last", model, epoch=epoch)
    """
    trained = optimizer_of(model if optimizer is None else optimizer, "save")
    trainer = trained.trainer
    if trainer is None:
        raise InvalidArgument("save: this model has not done a step yet")
    trainer.settle()
    meeting = Meeting("save", trainer.group)
    place = pathlib.Path()
    own: Dict[str, Arrays] = {}
    with meeting.part():
        place = checkpoint_folder.place_of(path)
        own = _parts_of(model, trained)
        own["kept"] = {f"kept {name}": it for name, it in trainer.replicated().items()}
        own["also"] = {"also": _as_json(also)}
    meeting.agree()
    positions = _agreed(trainer, meeting.gather(trainer.position()))
    files, apart = _files_of(model, trained, meeting, own)
    manifest = {
        "format": checkpoint_folder.FORMAT,
        "covey": _native.version,
        _framework(): importlib.import_module(keras.backend.backend()).__version__,
        "size": trainer.group.size(),
        "method": trainer.method,
        "positions": positions,
        "own": apart,
        "tensors": _signature(model, trained),
    }
    write(meeting, place, files, manifest)


def _agreed(trainer: Any, positions: List[Sequence[int]]) -> List[Sequence[int]]:
    """Where ranks go on that step together: at one step, in rounds, where a late rank does fewer,
    at that of the rank that has done most. In pairs each has its own.

    Raises:
        InvalidArgument: (a ValueError) they are apart.
    """
    plan = trainer.next_plan()
    if plan is not None and plan.in_pairs:
        return positions
    steps = [it[_STEP] for it in positions]
    if plan is not None and plan.in_rounds:
        return [(*it[:_STEP], max(steps), *it[_STEP + 1 :]) for it in positions]
    agree_on_steps(steps, trainer.group.ranks)
    return positions


def _framework() -> str:
    """The word for it in a checkpoint."""
    backend = keras.backend.backend()
    return backend if backend == "tensorflow" else f"keras on {backend}"


def _files_of(
    model: Any, trained: Any, meeting: Meeting, own: Dict[str, Arrays]
) -> Tuple[Dict[str, Dump], List[str]]:
    """By name what this rank writes, and the parts that each rank has for itself."""
    digests = meeting.gather([_digest(own[part]) for part in PARTS])
    apart = [part for part, *known in zip(PARTS, *digests) if len(set(known)) > 1]
    whole = {part: own[part] for part in PARTS}
    if "parameters" in apart:
        with consensus(trained, exact=True):
            whole["parameters"] = _parts_of(model, trained)["parameters"]
    for part in ("buffers", "optimizer"):
        if part in apart:
            whole[part] = _means(own[part], meeting.group)
    mine: Arrays = {}
    for part in (*apart, "kept", "also"):
        mine.update(own[part])
    files = {_rank_file(meeting.index): _dump(mine)}
    if meeting.leads:
        files[MODEL] = _dump({**whole["parameters"], **whole["buffers"]})
        files[OPTIMIZER] = _dump(whole["optimizer"])
    return files, apart


def load(path: Any, model: Any, optimizer: Any = None) -> Loaded:
    """Goes on from where ``save`` was called; all ranks call it, before the first step of a model
    that is built and compiled.

    First every rank looks whether what it needs is whole and fits; if it is not so on one of them,
    nothing is changed on any. With as many ranks and the same method each goes on where it was.
    Else all begin with the mean model and the mean of the optimizers, at the step that was reached;
    the changed parts are said on stderr by rank 0 and in ``reset``.

    Args:
        path: the folder, in a file system that all ranks share, or a copy of it on every host.
        model: a Keras model, made as it was for ``save``.
        optimizer: its ``DistributedOptimizer``; None: the model's.

    Returns:
        A ``Loaded``; ``loaded["epoch"]`` is what was saved by that name.

    Raises:
        BadCheckpoint: (a ValueError) a file is missing, cut short or changed, or a newer Covey has
            written it. The message names the file.
        InvalidArgument: (a ValueError) there is none, or a rank does not see it; it is of another
            model (the message names the first variable that differs); the model has done a step,
            or is not built.

    Example:
        >>> loaded = covey.load("run/last", model)
        >>> model.fit(images, labels, initial_epoch=loaded["epoch"] + 1, epochs=10)
    """
    trained = optimizer_of(model if optimizer is None else optimizer, "load")
    meeting = Meeting("load", trained.process_set)
    where = pathlib.Path()
    with meeting.part():
        if trained.trainer is not None:
            raise InvalidArgument("call it before the first step of this optimizer")
        if not model.built:
            raise InvalidArgument("the model is not built: give its shape, or call build()")
        if not trained.built:
            trained.build(model.trainable_variables)
        where = checkpoint_folder.place_of(path)
    meeting.agree()

    found, manifest = look(meeting, where, _framework())
    source: Any = None
    with meeting.part():
        _check(manifest, _signature(model, trained))
        source = _Source(found, manifest, meeting, trained.method)
    meeting.agree()
    for variable, array in zip(_variables_of(model, trained), source.arrays(model, trained)):
        variable.assign(array)
    if source.is_exact:
        trained.resume(Resumption(source.position, source.replicated))
    loaded = Loaded(manifest, source.reset)
    loaded.steps, loaded.version = int(source.position[_STEP]), int(source.position[0])
    loaded._also = source.also
    if meeting.leads:
        tell(*(f"load {where}: {line}" for line in source.reset))
    return loaded


class _Source:
    """The parts that one rank takes from a checkpoint.

    Attributes:
        is_exact: this rank goes on where it was.
        position: where it goes on, as ``covey_position``.
        replicated: what the method replicates on all ranks, by name.
        also: what was given to ``save`` by name.
        reset: the changed parts, in words.
    """

    def __init__(
        self, folder: pathlib.Path, manifest: Mapping[str, Any], meeting: Meeting, method: str
    ) -> None:
        """Reads it. Raises BadCheckpoint (a ValueError)."""
        size, entries = meeting.group.size(), manifest["files"]
        is_same_size = manifest["size"] == size
        self.is_exact = is_same_size and manifest["method"] == method
        index = meeting.index if is_same_size else 0
        own = _read(folder, _rank_file(index), entries)
        self._arrays = {**_read(folder, MODEL, entries), **_read(folder, OPTIMIZER, entries)}
        taken = PARTS if self.is_exact else ("buffers",) if is_same_size else ()
        for name, array in own.items():
            if name.partition(" ")[0] in taken:
                self._arrays[name] = array
        for number in range(manifest["size"])[meeting.index :: size]:
            # It may not be needed, but something has gone wrong.
            checkpoint_folder.check(folder, _rank_file(number), entries)
        self.replicated = {
            name.partition(" ")[2]: it for name, it in own.items() if name.startswith("kept ")
        }
        self.also: Dict[str, Any] = json.loads(str(own["also"]))
        positions = manifest["positions"]
        furthest = max(positions, key=lambda it: int(it[_STEP]))
        self.position = tuple(positions[index] if self.is_exact else furthest)
        steps = int(furthest[_STEP])
        has_also = bool(self.also)
        self.reset: List[str] = []
        if not self.is_exact:
            self.reset = reset_of(manifest, steps, size, method, has_also)

    def arrays(self, model: Any, trained: Any) -> List[Any]:
        """For each of the variables, in their order."""
        parts = _parts_of(model, trained)
        likes = {name: like for part in PARTS for name, like in parts[part].items()}
        return [self._arrays[name].view(like.dtype) for name, like in likes.items()]


def _rank_file(index: int) -> str:
    return f"rank{index}.npz"


def _lists_of(model: Any, trained: Any) -> Dict[str, List[Any]]:
    lists = (model.trainable_variables, model.non_trainable_variables, trained.variables)
    return dict(zip(PARTS, map(list, lists)))


def _variables_of(model: Any, trained: Any) -> List[Any]:
    return [it for listed in _lists_of(model, trained).values() for it in listed]


def _parts_of(model: Any, trained: Any) -> Dict[str, Arrays]:
    """Copies, by part and name."""
    return {
        part: {f"{part} {i}": numpy.array(it) for i, it in enumerate(listed)}
        for part, listed in _lists_of(model, trained).items()
    }


def _signature(model: Any, trained: Any) -> List[List[Any]]:
    """Part, word, dtype and shape of each variable. Keras numbers layers through the whole process:
    a name is another one in a model that is made again."""
    return [
        [part, re.split("[/_]", it.path)[-1], str(numpy.array(it).dtype), list(it.shape)]
        for part, listed in _lists_of(model, trained).items()
        for it in listed
    ]


def _check(manifest: Mapping[str, Any], own: List[List[Any]]) -> None:
    """Raises InvalidArgument (a ValueError) if the checkpoint is of another model."""
    found = first_difference(own, manifest["tensors"])
    if found is not None:
        index, mine, there = found
        raise InvalidArgument(
            f"the checkpoint is of another model, or optimizer: variable {index} is "
            f"{there or 'not there'} in the checkpoint, and {mine or 'not there'} here"
        )


def _digest(arrays: Arrays) -> str:
    hashed = hashlib.blake2b(digest_size=16)
    for name, array in arrays.items():
        hashed.update(f"{name} {array.dtype} {array.shape} ".encode())
        hashed.update(array.tobytes())
    return hashed.hexdigest()


def _means(arrays: Arrays, group: Group) -> Arrays:
    """Over all ranks: of floating-point numbers; of whole ones the largest."""
    word = next_prefix("save.tensorflow", group.ranks)
    found: Arrays = {}
    for name, array in arrays.items():
        if array.dtype.kind not in "iub":  # bfloat16 has a kind that says nothing.
            wide = array.astype(numpy.float64)
            mean = allreduce(wide, op=Average, name=f"{word}.{name}", group=group)
        else:
            mean = allreduce(
                array.astype(numpy.int64), op=Max, name=f"{word}.{name}", group=group
            )
        found[name] = mean.astype(array.dtype)
    return found


def _as_json(also: Mapping[str, Any]) -> Any:
    for name, value in also.items():
        try:
            json.dumps(value)
        except (TypeError, ValueError) as error:
            raise InvalidArgument(
                f"{name}: a checkpoint of Keras holds numbers, texts, None, and lists and "
                f"dicts of them ({error})"
            ) from error
    return numpy.array(json.dumps(dict(also)))


def _dump(arrays: Arrays) -> Dump:
    """Writes them as ``numpy.savez`` does, which takes no file that it cannot read."""

    def dump(file: Any) -> None:
        with zipfile.ZipFile(file, "w") as packed:
            for name, array in arrays.items():
                with packed.open(f"{name}.npy", "w", force_zip64=True) as entry:
                    numpy.lib.format.write_array(entry, numpy.asanyarray(array), allow_pickle=False)

    return dump


def _read(folder: pathlib.Path, name: str, entries: Dict[str, Any]) -> Arrays:
    """The arrays of a file, once it is known to be whole. Runs nothing of it."""

    def arrays_of(file: Any) -> Arrays:
        with numpy.load(file, allow_pickle=False) as found:
            return {one: found[one] for one in found.files}

    arrays: Arrays = checkpoint_folder.read(folder, name, entries, arrays_of)
    return arrays
