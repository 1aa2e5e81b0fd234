"""Starting the ranks of a job and watching over them until the last one is gone.

`job.Job` is the launcher: one thread, one loop. The rest are its parts, each usable alone: `spec`
(what to start), `environment` (what a rank is told), `process` (one rank as a process), `rest` (the
processes that it leaves), `output` (lines and their prefixes), `endings` (which signal when),
`report` (the first failure), `outcome` (how the job has ended), `check` (mistakes found before
anything starts), `start` (what comes before the ranks), `ranks` (those that are watched), `where`
(what they wait for), `signals`, `memory` (shared by the ranks of a host), `preload` and `preloaded`
(ranks as forks), `summary` (the table at the end). For a job of several launchers:
`rendezvous_handler` and `formation` (how they become one), `address_file` (where one serves),
`node` (what they tell each other) and `secret`.

For a job on several hosts: `hosts` (names and places), `fleet` (all hosts, from the launcher's
side), `channel` (ssh to one), `identity` (its first message), `wire` (messages), `waiting` (for
several hosts), `remote_rank` (a rank there), `witness` (the vote that decides) and `pulse` (signs
of life); on a host `agent` (answers the launcher), `station` (what the host gives to the job) and
`tending` (its ranks while they run). `network` and `reach` choose and try addresses, `book` tells
them to the ranks, `carried` is the environment that goes along.

For a job whose ranks come and go: `worlds` (who are its ranks), `elastic` (what the ranks are told)
and `door`, `doors` (the way to one, to those of a host); on several hosts `elastic_fleet` (the same
by agents), `workers` (an agent's part), `arrivals` (hosts that come) and `discovery` (which are
to).

`run` (`run_function`, `horovod_arguments`, `guard`; in a rank `call`) calls a Python function on N
ranks.
"""

from __future__ import annotations

import importlib
from typing import Any

_HOMES = {
    "Job": "job",
    "JobFailed": "spec",
    "JobSpec": "spec",
    "LaunchError": "spec",
    "Outcome": "outcome",
    "run": "run_function",
}

__all__ = ["Job", "JobFailed", "JobSpec", "LaunchError", "Outcome", "run"]


def __getattr__(name: str) -> Any:
    """A rank that needs one part imports no other."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
