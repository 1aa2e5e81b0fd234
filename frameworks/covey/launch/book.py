"""The book of a job on several hosts: where each rank listens, and the key by which ranks know each
other. A file without a name (memfd), which the ranks of a host inherit: COVEY_BOOK_FD.

    covey book 1
    key <64 hexadecimal digits>
    security tls|auth
    <rank> <lowest rank of its host> <IP address> <port>        a line per rank, in order

The key comes to a host by ssh, or is made there of the job's secret, and is in no command line and
no environment. Ranks share the descriptor's offset, so they read by pread. Internal.
"""

from __future__ import annotations

import fcntl
import hmac
import os
import secrets
from typing import List, NamedTuple, Sequence

SECURITIES = ("tls", "auth")
UNENCRYPTED = (
    "network security auth: what ranks of different hosts send each other is authenticated and not "
    "encrypted"
)
_KEY_BYTES = 32
_SEALS = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE


class Entry(NamedTuple):
    """Where a rank listens. `lowest`: the lowest rank of its host."""

    lowest: int
    address: str
    port: int


def draw_key() -> str:
    """A new key of a job."""
    return secrets.token_hex(_KEY_BYTES)


def derived_key(secret: bytes, drawn: str) -> str:
    """The key of the job with that secret for which `drawn` was drawn: only holders make it."""
    said = drawn.encode("utf-8", "replace")
    return hmac.new(secret, b"covey book 1 " + said, "sha256").hexdigest()


def text_of(key: str, security: str, entries: Sequence[Entry]) -> str:
    """The book of these ranks."""
    assert len(key) == 2 * _KEY_BYTES and security in SECURITIES
    lines: List[str] = ["covey book 1", f"key {key}", f"security {security}"]
    lines += [f"{rank} {e.lowest} {e.address} {e.port}" for rank, e in enumerate(entries)]
    return "\n".join(lines) + "\n"


def make(text: str) -> int:
    """The file, which can no longer be changed. Its descriptor is the caller's to close."""
    made = os.memfd_create("covey-book", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    with open(made, "wb", closefd=False) as file:
        file.write(text.encode("ascii"))
    fcntl.fcntl(made, fcntl.F_ADD_SEALS, _SEALS)
    return made
