"""Saving and loading by all ranks together, whatever the framework. Internal.

A checkpoint is a folder (``checkpoint_folder.py``). A framework writes files of its own: the mean
of all models, the optimizer, and what each rank has for itself.
"""

from __future__ import annotations

import difflib
import itertools
import pathlib
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

from covey import checkpoint_folder
from covey.errors import BadCheckpoint, InvalidArgument
from covey.meeting import Meeting
from covey.method import text_at

Dump = Callable[[Any], None]
"""Writes a file's content to it."""

_SHARED = "the path has to be in a file system that all ranks share"


class Loaded:
    """The outcome of ``load``.

    Attributes:
        exact: each rank goes on from where it was, by the same method.
        reset: the changed parts, in words; empty if ``exact``.
        steps: how often ``step()`` was called, on this rank (else on the rank that did most).
        version: the optimizer's, likewise.
        method: the full text of the method that it was saved with.
        size: how many ranks saved it.

    A value given to ``save`` by name is ``loaded["epoch"]``; of an object with ``load_state_dict``
    its state dict. :func:`covey.load` makes it, of the folder's ``manifest``; an unknown name
    raises KeyError.
    """

    def __init__(self, manifest: Mapping[str, Any], reset: List[str]) -> None:
        self.method, self.size = str(manifest["method"]), int(manifest["size"])
        self.reset, self.exact = reset, not reset
        self.steps = self.version = 0
        self._also: Dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._also:
            raise KeyError(unknown(name, self._also))
        return self._also[name]

    def __repr__(self) -> str:
        return f"Loaded(exact={self.exact}, steps={self.steps}, reset={self.reset})"


def unknown(name: str, known: Mapping[str, Any]) -> str:
    """The message for a name that a checkpoint has not."""
    near = difflib.get_close_matches(name, known, 1)
    hint = f"; did you mean {near[0]}?" if near else ""
    there = ", ".join(known) or "none"
    return f"the checkpoint has nothing by the name {name}: it has {there}{hint}"


def look(
    meeting: Meeting, place: pathlib.Path, framework: str
) -> Tuple[pathlib.Path, Dict[str, Any]]:
    """Where the checkpoint of that place is, and its manifest, on all ranks.

    Raises:
        BadCheckpoint: (a ValueError) it is not whole, or of another framework.
        InvalidArgument: (a ValueError) there is none, or a rank does not see it.
    """

    def find() -> Tuple[str, Dict[str, Any]]:
        found = checkpoint_folder.find(place)
        manifest = checkpoint_folder.read_manifest(found)
        if framework not in manifest:
            raise BadCheckpoint(f"{found} was saved by another framework than {framework}")
        return str(found), manifest

    found, manifest = meeting.on_lead(find)
    with meeting.part():
        _check_shared(pathlib.Path(found), manifest, meeting.group.ranks[0])
    meeting.agree()
    return pathlib.Path(found), manifest


def _check_shared(found: pathlib.Path, manifest: Mapping[str, Any], lead: int) -> None:
    """Raises InvalidArgument (a ValueError) where this rank's folder is not that of ``lead``."""
    if not (found / checkpoint_folder.MANIFEST).is_file():
        raise InvalidArgument(
            f"{found} was found by rank {lead} and is not to be seen here: {_SHARED}, or be copied "
            "to every host"
        )
    if checkpoint_folder.read_manifest(found) != manifest:
        raise InvalidArgument(
            f"{found} is another checkpoint here than on rank {lead}: {_SHARED}, or be copied anew "
            "to every host"
        )


def first_difference(own: Sequence[Any], theirs: Sequence[Any]) -> Optional[Tuple[int, Any, Any]]:
    """The first place at which two lists differ, and both entries; None for one that is not there.
    None: they are equal."""
    for index, (mine, there) in enumerate(itertools.zip_longest(own, theirs)):
        if mine != there:
            return index, mine, there
    return None


def agree_on_steps(steps: List[int], ranks: List[int]) -> None:
    """Raises InvalidArgument (a ValueError) where ranks that step together are apart."""
    for rank, done in zip(ranks, steps):
        if done != steps[0]:
            raise InvalidArgument(
                f"save: rank {ranks[0]} has done {steps[0]} steps, and rank {rank} {done}: all "
                "call it after the same step"
            )


def write(
    meeting: Meeting, place: pathlib.Path, files: Mapping[str, Dump], manifest: Dict[str, Any]
) -> None:
    """Writes the files of this rank, and with those of the others the whole folder.

    Raises:
        NotSaved: (an OSError) a rank could not write.
        InvalidArgument: (a ValueError) a rank does not see the folder.
    """
    made: Optional[pathlib.Path] = None

    def begin() -> str:
        nonlocal made
        made = checkpoint_folder.begin(place)
        return str(made)

    try:
        where = pathlib.Path(meeting.on_lead(begin))
        entries: Dict[str, Tuple[int, str]] = {}
        with meeting.part():
            if not where.is_dir():
                raise InvalidArgument(
                    f"{where} was made by rank {meeting.group.ranks[0]} and is not to be seen "
                    f"here: {_SHARED}"
                )
            for name, dump in files.items():
                entries[name] = tuple(checkpoint_folder.write(where, name, dump))
        meeting.agree()
        for each in meeting.gather(entries):
            manifest.setdefault("files", {}).update(each)
        meeting.on_lead(lambda: checkpoint_folder.commit(where, place, manifest))
    finally:
        if made is not None:
            checkpoint_folder.abandon(made)  # After commit() there is nothing by that name.


def reset_of(
    manifest: Mapping[str, Any], steps: int, size: int, method: str, has_also: bool
) -> List[str]:
    """The parts of a checkpoint that ``size`` ranks cannot take up by ``method``."""
    said: List[str] = []
    own = manifest["own"]
    if manifest["method"] != method:
        before, now = text_at(manifest["method"], steps), text_at(method, steps)
        said.append(f"method {before} -> {now}, at step {steps}")
    if manifest["size"] != size:
        said.append(f"{manifest['size']} ranks -> {size}")
        if has_also:
            said.append("what was saved by name: that of the first rank, on all")
        if "buffers" in own:
            said.append("buffers: their mean (whole numbers: those of the first rank), on all")
        said.append("random numbers: not set")
    if "parameters" in own:
        said.append("models: the mean of all ranks', on all")
    if "optimizer" in own:
        said.append("the optimizer's momenta and the like: their mean, on all")
    return said
