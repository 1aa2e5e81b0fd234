"""What a job consists of. Values only: nothing here starts, opens or reads anything."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Dict, Optional, Sequence

from covey.errors import CoveyError


class LaunchError(CoveyError):
    """The job cannot start. The text is one sentence for the person who typed the command."""


@dataclass(frozen=True)
class JobSpec:
    """A command to run as `size` ranks on this host.

    Attributes:
        command: program and arguments, the same for every rank.
        size: number of ranks, at least 1.
        output_dir: folder that gets rank.N/stdout and rank.N/stderr, or None.
        timeline_dir: folder that gets one trace per rank, or None.
        extra_env: variables of the user's (-x) on top of the launcher's own environment.
        settings_env: variables that carry the launcher's own options to the runtime.
        verbose: tell on stderr what the launcher does.
        program: the launcher's name in its own messages.
    """

    command: Sequence[str]
    size: int
    output_dir: Optional[str] = None
    timeline_dir: Optional[str] = None
    extra_env: Dict[str, str] = field(default_factory=dict)
    settings_env: Dict[str, str] = field(default_factory=dict)
    verbose: bool = False
    program: str = "coveyrun"


class JobFailed(CoveyError):
    """A job has started and failed."""

    def __init__(self, text: str, rank: int, exit_code: int) -> None:
        """`rank` failed first (-1: none did) and makes the job's exit code."""
        super().__init__(text, peer_rank=rank)
        self.rank = rank
        self.exit_code = exit_code
