"""The secret of a job: a file that only its owner can read. Its content is never shown, sent, put
into an environment or on a command line."""

from __future__ import annotations

import os
import re
import secrets
import stat

from covey.launch.spec import LaunchError

_BYTES = 32
_MOST_BYTES = 4096
# As CheckSecret of ops/control/secret.h, which says why.
_HEX = re.compile(rb"[0-9A-Fa-f]*")
_HEX_DIGITS = 64
_BASE64 = re.compile(rb"[A-Za-z0-9+/_-]{43,}={0,2}")
# 64 hexadecimal digits that were drawn have fewer different ones once in 10^15.
_LEAST_DIFFERENT = 8


def read(path: str) -> bytes:
    """The secret in the file, without white space around it.

    Raises:
        LaunchError: there is no such file, it is a symbolic link or no file, others than its owner
            can read or write it, it belongs to another user, or its content was not drawn: a client
            of the rendezvous can try secrets offline.
    """
    try:
        # Not blocking: it may be a pipe.
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        with open(os.open(path, flags), "rb") as file:
            info = os.fstat(file.fileno())
            regular = stat.S_ISREG(info.st_mode)
            text = file.read(_MOST_BYTES + 1).strip() if regular else b""
    except OSError as error:
        link = "it is a symbolic link; name the file itself"
        why = link if os.path.islink(path) else error.strerror
        raise LaunchError(f"secret file {path}: {why}") from error
    if not regular:
        raise LaunchError(f"secret file {path} is not a file")
    if info.st_uid not in (os.geteuid(), 0):
        raise LaunchError(f"secret file {path} belongs to user {info.st_uid}, who may know it")
    if info.st_mode & 0o077:
        mode = stat.S_IMODE(info.st_mode)
        raise LaunchError(f"secret file {path} is open to other users (mode {mode:04o}): chmod 600")
    if not _was_drawn(text):
        raise LaunchError(
            f"secret file {path} does not hold 32 drawn bytes as 64 hexadecimal digits or as "
            "base64: whoever connects could guess it. Remove it, and `coveyrun --serve` makes one, "
            "or write what `openssl rand -hex 32` gives into it"
        )
    return text


def _was_drawn(text: bytes) -> bool:
    """Whether it has the form of 32 drawn bytes or more; how it was made cannot be seen."""
    if _HEX.fullmatch(text) is not None:
        has_form = len(text) >= _HEX_DIGITS
    else:
        has_form = _BASE64.fullmatch(text) is not None
    repeats = text in (text + text)[1:-1]
    is_short = len(text) <= _MOST_BYTES
    return has_form and is_short and not repeats and len(set(text)) >= _LEAST_DIFFERENT


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
