"""The job's shared memory: how its maker tells the place, and how the others open it.

The text is "PROCESS DESCRIPTOR NAME". It may have come through a store that any host of the network
can write to, as PyTorch's is, so it is believed only as far as the kernel confirms it: two numbers,
which name a descriptor of a process whose descriptors this user may see, and behind it memory (no
file) that belongs to this user and has the name, which is drawn for each job. Internal.
"""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import stat

from covey.errors import InvalidArgument

_PLACE = re.compile(r"([0-9]{1,10}) ([0-9]{1,10}) (covey-[0-9a-f]{32})")
_NAME_BYTES = 16
_SHOWN_CHARACTERS = 80


def host_id() -> str:
    """Equal for processes that can open each other's memory: one kernel, one name space of ids.

    Virtual machines that were restored from one snapshot have it in common too: `open_told` tells.
    """
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        boot = file.read().strip()
    return f"{boot} {os.stat('/proc/self/ns/pid').st_ino}"


def make() -> int:
    """Memory to be told of by `place_of`, empty: it can grow, and no process can shorten it under
    others. The descriptor is the caller's to close."""
    name = f"covey-{secrets.token_hex(_NAME_BYTES)}"
    made = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    fcntl.fcntl(made, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL)
    return made


def place_of(descriptor: int) -> str:
    """Where the job's memory is, for `open_told` in another process, while this one keeps it."""
    name = os.readlink(f"/proc/self/fd/{descriptor}")
    return f"{os.getpid()} {descriptor} {name[len('/memfd:') :].split(' ')[0]}"


def open_told(place: str) -> int:
    """The descriptor of the job's memory, the caller's to close. The file is not touched, nor
    opened for reading or writing, before it is known to be such memory of this user.

    Raises:
        InvalidArgument: (a ValueError) there is no such memory; says what is there.
    """
    parts = _PLACE.fullmatch(place)
    if parts is None:
        shown = ascii(place[:_SHOWN_CHARACTERS])
        raise InvalidArgument(f"{shown} does not say where the job's memory is")
    process, descriptor, name = parts.groups()
    path = f"/proc/{process}/fd/{descriptor}"
    try:
        found = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError as error:
        raise InvalidArgument(
            f"cannot open the job's memory, descriptor {descriptor} of process {process}: "
            f"{error.strerror}; is that process this user's and on this machine? (machines "
            "restored from one snapshot look like one until one is started anew)"
        ) from error
    try:
        path = f"/proc/self/fd/{found}"
        info, target = os.fstat(found), os.readlink(path)
        if not stat.S_ISREG(info.st_mode) or target != f"/memfd:{name} (deleted)":
            what = ascii(target[:_SHOWN_CHARACTERS])
            raise InvalidArgument(
                f"descriptor {descriptor} of process {process} is {what}, not the job's memory "
                f"{name}: whoever said so is not of this job"
            )
        if info.st_uid != os.geteuid():
            raise InvalidArgument(
                f"the memory of process {process} belongs to user {info.st_uid}, not to this one "
                f"({os.geteuid()}): it is not joined"
            )
        return os.open(path, os.O_RDWR | os.O_CLOEXEC)
    finally:
        os.close(found)
