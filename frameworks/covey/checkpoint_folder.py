"""A checkpoint on disc: one folder, which is there as a whole or is not there. Internal.

    manifest.json   what it is: method, ranks, where each of them is, the tensors' names, and length
                    and hash of every file, its own included

The other files are a framework's (``covey/torch/plain.py``).

It is written beside its place, under a name with a dot, every file to the disc, and changes place
with the older folder in one step of the file system. Nothing here talks to other ranks.
"""

from __future__ import annotations

import contextlib
import ctypes
import glob
import hashlib
import json
import os
import pathlib
import secrets
import shutil
from typing import Any, BinaryIO, Callable, Dict, Iterator, List, NamedTuple

from covey.errors import BadCheckpoint, InvalidArgument, shown

FORMAT = 1
MANIFEST = "manifest.json"

_CHUNK_BYTES = 1 << 20
_MOST_CHARACTERS = 300  # Of a framework's words for an error.
_HERE, _EXCHANGE = -100, 2  # AT_FDCWD and RENAME_EXCHANGE, of linux/fcntl.h and linux/fs.h.


class Entry(NamedTuple):
    """The manifest's entry of a file."""

    length_bytes: int
    sha256: str


def place_of(path: Any) -> pathlib.Path:
    """Where the folder is to be, by what a user says.

    Raises:
        InvalidArgument: (a ValueError) that is no path.
    """
    if not isinstance(path, (str, bytes, os.PathLike)) or not os.fspath(path):
        raise InvalidArgument(f"{path!r} is no path: name a folder")
    return pathlib.Path(os.path.realpath(os.fsdecode(path)))


def begin(place: pathlib.Path) -> pathlib.Path:
    """Makes the folder that will take that place, and throws away what saves left that were killed.

    Raises:
        OSError: it cannot.
        InvalidArgument: (a ValueError) there is something else at that place.
    """
    if place.exists() and not place.is_dir():
        raise InvalidArgument(f"{place} is a file; a checkpoint is a folder")
    if place.is_dir() and any(place.iterdir()) and not (place / MANIFEST).is_file():
        raise InvalidArgument(
            f"{place} is a folder with other things in it (no {MANIFEST}), which are not to be "
            "overwritten: name another one"
        )
    place.parent.mkdir(parents=True, exist_ok=True)
    for left in place.parent.glob(f".{glob.escape(place.name)}.saving-*"):
        shutil.rmtree(left, ignore_errors=True)
    folder = place.parent / f".{place.name}.saving-{secrets.token_hex(6)}"
    folder.mkdir()
    return folder


class _Hashed:
    """A file that is being written."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self.hash, self.length_bytes = hashlib.sha256(), 0

    def write(self, data: Any) -> int:
        written = memoryview(data).cast("B")
        self.hash.update(written)
        self.length_bytes += len(written)
        self._file.write(written)
        return len(written)

    def flush(self) -> None:
        self._file.flush()


def write(folder: pathlib.Path, name: str, dump: Callable[[Any], None]) -> Entry:
    """Writes what ``dump(file)`` writes to the disc.

    Raises:
        OSError: it cannot.
    """
    with open(folder / name, "xb") as file:
        hashed = _Hashed(file)
        try:
            dump(hashed)
        except RuntimeError as error:  # A writer may hide what went wrong below it.
            raise _below(error) from error
        file.flush()
        os.fsync(file.fileno())
    return Entry(hashed.length_bytes, hashed.hash.hexdigest())


def _below(error: BaseException) -> BaseException:
    """The OSError that it came of, if one is known."""
    at: Any = error
    while at is not None:
        if isinstance(at, OSError):
            return at
        at = at.__cause__ or at.__context__
    return error


def commit(folder: pathlib.Path, place: pathlib.Path, manifest: Dict[str, Any]) -> None:
    """The folder is whole: takes the place of the older one.

    Raises:
        OSError: it cannot; the older folder is still there.
    """
    text = json.dumps({**manifest, "sha256": _hash_of(manifest)}, indent=1)
    with open(folder / MANIFEST, "x", encoding="utf-8") as file:
        file.write(text + "\n")
        file.flush()
        os.fsync(file.fileno())
    _sync(folder)
    if not place.is_dir() or not any(place.iterdir()):
        os.rename(folder, place)  # Takes the place of an empty folder at once.
    elif not _exchange(folder, place):
        shutil.rmtree(_old(place), ignore_errors=True)
        os.rename(place, _old(place))
        os.rename(folder, place)
    _sync(place.parent)
    for former in (folder, _old(place)):
        shutil.rmtree(former, ignore_errors=True)


def _exchange(one: pathlib.Path, other: pathlib.Path) -> bool:
    """Each takes the other's place, at once; False: this system cannot."""
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if rename is None:
        return False
    done: int = rename(_HERE, os.fsencode(one), _HERE, os.fsencode(other), _EXCHANGE)
    return done == 0


def _old(place: pathlib.Path) -> pathlib.Path:
    """Where the old one is for a moment, on a file system that cannot exchange two."""
    return place.parent / f".{place.name}.old"


def _sync(folder: pathlib.Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def abandon(folder: pathlib.Path) -> None:
    """It will not be whole."""
    shutil.rmtree(folder, ignore_errors=True)


def find(place: pathlib.Path) -> pathlib.Path:
    """Where the checkpoint of that place is.

    Raises:
        InvalidArgument: (a ValueError) there is none.
    """
    for folder in (place, _old(place)):
        if (folder / MANIFEST).is_file():
            return folder
    if place.is_dir():
        raise BadCheckpoint(f"{place} is no checkpoint: there is no {MANIFEST} in it")
    if place.exists():
        raise BadCheckpoint(
            f"{place} is a file, and a checkpoint is a folder, with {MANIFEST} in it: what "
            "torch.save() has written, for example, is for torch.load()"
        )
    raise InvalidArgument(f"there is no checkpoint at {place}: {_nearest(place)}")


def _nearest(place: pathlib.Path) -> str:
    if not place.parent.is_dir():
        return f"no folder {place.parent}"
    others: List[str] = sorted(it.parent.name for it in place.parent.glob(f"*/{MANIFEST}"))
    return f"{place.parent} has {', '.join(others[:8]) or 'none'}"


def read_manifest(folder: pathlib.Path) -> Dict[str, Any]:
    """The manifest's content, once it is known to be whole.

    Raises:
        BadCheckpoint: (a ValueError) it is not, or of another format.
    """
    where = folder / MANIFEST
    try:
        manifest = json.loads(where.read_text(encoding="utf-8"))
        number = int(manifest["format"])
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise BadCheckpoint(f"{where} cannot be read: {shown(str(error))}") from error
    if number != FORMAT:
        newer = ": a newer Covey has written it" if number > FORMAT else ""
        raise BadCheckpoint(
            f"{where} is of format {number}, and this Covey reads format {FORMAT}{newer}"
        )
    if manifest.pop("sha256", None) != _hash_of(manifest):
        raise BadCheckpoint(f"{where} has been changed since it was written: its hash is another")
    return dict(manifest)


def _hash_of(manifest: Dict[str, Any]) -> str:
    text = json.dumps(manifest, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def check(folder: pathlib.Path, name: str, entries: Dict[str, Any]) -> None:
    """Whether a file that is not read is whole.

    Raises:
        BadCheckpoint: (a ValueError) it is missing, shorter, longer, or changed.
    """
    with _whole(folder, name, entries):
        pass


def read(
    folder: pathlib.Path, name: str, entries: Dict[str, Any], load: Callable[[BinaryIO], Any]
) -> Any:
    """The content of a file by ``load(file)``, once it is known to be whole.

    Raises:
        BadCheckpoint: (a ValueError) it is missing, shorter, longer, or changed.
    """
    with _whole(folder, name, entries) as file:
        try:
            return load(file)
        except OSError:
            raise
        except Exception as error:  # Of any kind: it is no file of the framework's.
            why = shown(str(error).partition("\n")[0][:_MOST_CHARACTERS])
            raise BadCheckpoint(f"{folder / name} cannot be read: {why}") from error


def _entry(folder: pathlib.Path, said: Any) -> Entry:
    if isinstance(said, list) and len(said) == 2:
        length, digest = said
        if type(length) is int and isinstance(digest, str):
            return Entry(length, digest)
    raise BadCheckpoint(f"{folder / MANIFEST} does not say length and hash of a file")


@contextlib.contextmanager
def _whole(folder: pathlib.Path, name: str, entries: Dict[str, Any]) -> Iterator[BinaryIO]:
    """A file, open at its begin, once it is known to be whole."""
    where = folder / name
    if not isinstance(entries, dict) or name not in entries:
        raise BadCheckpoint(f"{folder / MANIFEST} knows no {name}")
    wanted = _entry(folder, entries[name])
    try:
        # Not blocking: it may be a pipe, whose length is 0.
        with open(os.open(where, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            length_bytes = os.fstat(file.fileno()).st_size
            if length_bytes != wanted.length_bytes:
                kind = "is cut short" if length_bytes < wanted.length_bytes else "is too long"
                raise BadCheckpoint(
                    f"{where} {kind}: {length_bytes} bytes, and {wanted.length_bytes} were written"
                )
            hashed = hashlib.sha256()
            while chunk := file.read(_CHUNK_BYTES):
                hashed.update(chunk)
            if hashed.hexdigest() != wanted.sha256:
                raise BadCheckpoint(
                    f"{where} has been changed since it was written: its hash is another"
                )
            file.seek(0)
            yield file
    except FileNotFoundError as error:
        raise BadCheckpoint(f"{where} is missing") from error
    except OSError as error:
        raise BadCheckpoint(f"{where} cannot be read: {error}") from error
