"""The secret of a job: a file that only its owner can read. Its content is never shown, sent, put
into an environment or on a command line."""

from __future__ import annotations

import os
import secrets
import stat

from covey.launch.spec import LaunchError

_BYTES = 32
_LEAST_BYTES = 32
# 32 hexadecimal digits that were drawn have fewer different ones once in 10 million.
_LEAST_DIFFERENT = 8
_MOST_BYTES = 4096


def read(path: str) -> bytes:
    """The secret in the file, without white space around it.

    Raises:
        LaunchError: there is no such file, others than its owner can read or write it, it belongs
            to somebody else, or it is too short, or too uniform, to have been drawn: who talks to
            the rendezvous can try secrets offline.
    """
    try:
        with open(path, "rb") as file:
            info = os.fstat(file.fileno())
            text = file.read(_MOST_BYTES + 1).strip()
    except OSError as error:
        raise LaunchError(f"secret file {path}: {error.strerror}") from error
    if not stat.S_ISREG(info.st_mode):
        raise LaunchError(f"secret file {path} is not a file")
    if info.st_uid not in (os.geteuid(), 0):
        raise LaunchError(f"secret file {path} belongs to user {info.st_uid}, who may know it")
    if info.st_mode & 0o077:
        mode = stat.S_IMODE(info.st_mode)
        raise LaunchError(f"secret file {path} is open to other users (mode {mode:04o}): chmod 600")
    if not _LEAST_BYTES <= len(text) <= _MOST_BYTES:
        raise LaunchError(
            f"secret file {path} holds {len(text)} bytes; a secret has {_LEAST_BYTES} to "
            f"{_MOST_BYTES}"
        )
    if len(set(text)) < _LEAST_DIFFERENT:
        raise LaunchError(
            f"secret file {path} holds {len(set(text))} different characters, which is no secret: "
            "remove it, and `coveyrun --serve` draws one, or write `openssl rand -hex 32` into it"
        )
    return text


def make(path: str) -> bool:
    """Makes the file with a new secret of 256 bits, unless it exists. Returns whether it did.

    Raises:
        LaunchError: the file cannot be written.
    """
    part = f"{path}.{os.getpid()}"
    try:
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with open(descriptor, "w", encoding="ascii") as file:
            file.write(secrets.token_hex(_BYTES) + "\n")
        try:
            os.link(part, path)  # whole or not at all, and never over another
        except FileExistsError:
            return False
        finally:
            os.unlink(part)
    except OSError as error:
        raise LaunchError(f"cannot make the secret file {path}: {error.strerror}") from error
    return True
