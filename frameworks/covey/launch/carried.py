"""The environment of a rank on another host: coveyrun's own, but for what belongs to a host.

Internal.
"""

from __future__ import annotations

import re
from typing import Dict, Mapping

OF_HOST = (
    ("HOSTNAME|HOST|HOSTTYPE|MACHTYPE", "the name and kind of the host"),
    ("HOME|USER|LOGNAME|SHELL|MAIL", "the account there, which ssh may have another name for"),
    ("PWD|OLDPWD|SHLVL|_", "of the shell; the working folder is carried by itself"),
    ("TMPDIR|TMP|TEMP|TEMPDIR", "a folder that the other host may not have"),
    ("SSH_.*", "connection and agent of coveyrun's own login"),
    ("DISPLAY|XAUTHORITY|WAYLAND_DISPLAY|DBUS_.*|XDG_.*", "the desktop and session of the login"),
    ("TERM|TERM_.*|COLORTERM|COLUMNS|LINES|LS_COLORS|TMUX.*|STY", "the terminal: ranks have none"),
    ("CUDA_VISIBLE_DEVICES|ROCR_VISIBLE_DEVICES|NVIDIA_.*", "the GPUs of the host; -x sets it"),
    ("SLURM_.*|PMI.*|OMPI_.*|PRTE_.*", "the place of coveyrun in a job of another launcher"),
    ("INVOCATION_ID|JOURNAL_STREAM|NOTIFY_SOCKET", "the service that coveyrun runs in"),
    ("BASH_FUNC_.*|BASH_ENV|ENV|PROMPT_COMMAND|PS[0-9]", "of an interactive shell"),
)
"""Names of variables that are not carried, as regular expressions, and why."""

_OF_HOST = re.compile("|".join(names for names, _ in OF_HOST))


def is_carried(name: str) -> bool:
    """Whether a variable goes to the other hosts."""
    return _OF_HOST.fullmatch(name) is None


def carried(environ: Mapping[str, str]) -> Dict[str, str]:
    """The variables that go to the other hosts."""
    return {name: value for name, value in environ.items() if is_carried(name)}


def arrived(environ: Mapping[str, str], own: Mapping[str, str], folder: str) -> Dict[str, str]:
    """What a command on a host gets: the variables that were carried there; those of the host's
    `own` that were not; the working folder."""
    return {**own, **environ, "PWD": folder}
