"""The file with the address of a rendezvous, written by its server, for nodes of the same machine.

The folder may be one that others can write to, /tmp for example: their files are neither
followed (symbolic links), nor believed, nor overwritten. Internal.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import stat
from typing import Optional

from covey.launch.spec import LaunchError

_MOST_BYTES = 512
# HOST:PORT and [::1]:PORT, or nothing: the file has just been made.
_ADDRESS = re.compile(r"([\w.-]+|\[[\w:.%]+\]):[0-9]{1,5}|", re.ASCII)


def read(path: str) -> str:
    """The address in the file; empty while there is no file, or nothing in it.

    Raises:
        LaunchError: it is no file with an address, or another user's.
    """
    try:
        # Not blocking: it may be a pipe.
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        with open(os.open(path, flags), "rb") as file:
            _check(path, os.fstat(file.fileno()))
            said = file.read(_MOST_BYTES + 1)
    except FileNotFoundError:
        return ""
    except OSError as error:
        reason = "it is a symbolic link" if os.path.islink(path) else error.strerror
        raise LaunchError(f"cannot read the address in {path}: {reason}") from error
    try:
        address = said.decode("ascii").strip()
    except ValueError:
        address = " "
    if len(said) > _MOST_BYTES or _ADDRESS.fullmatch(address) is None:
        raise LaunchError(f"{path} does not hold an address, but something else: it is left alone")
    return address


def write(path: str, address: str) -> os.stat_result:
    """Makes the file, whole or not at all; for `remove`. An address that a job left there, which
    was killed, is replaced.

    Raises:
        LaunchError: it cannot be written, or something else is there.
    """
    if os.path.lexists(path):
        read(path)
    part = f"{path}.{secrets.token_hex(8)}"
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with open(os.open(part, flags, 0o600), "w", encoding="ascii") as file:
            file.write(address)
            made = os.fstat(file.fileno())
        try:
            os.replace(part, path)
        except OSError:
            os.unlink(part)
            raise
    except OSError as error:
        raise LaunchError(f"cannot write {path}: {error.strerror}") from error
    return made


def remove(path: str, made: Optional[os.stat_result]) -> None:
    """Takes away what `write` has made, unless another job has put its own there."""
    with contextlib.suppress(OSError):
        if made is not None and os.path.samestat(os.lstat(path), made):
            os.unlink(path)


def _check(path: str, info: os.stat_result) -> None:
    if not stat.S_ISREG(info.st_mode):
        raise LaunchError(f"{path} is not a file, so no address is read or written there")
    if info.st_uid != os.geteuid():
        raise LaunchError(
            f"{path} belongs to user {info.st_uid}, not to this one ({os.geteuid()}): what is in "
            "it is not believed, and it is not overwritten; name a file in a folder of your own"
        )
