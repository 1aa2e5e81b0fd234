"""The parts of a job. Values only: nothing here starts, opens or reads anything."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Dict, Optional, Sequence

from covey.errors import CoveyError
from covey.launch.worlds import Terms


class LaunchError(CoveyError):
    """The job cannot start. The text is one sentence for the user that typed the command."""


@dataclass(frozen=True)
class Rendezvous:
    """Where several launchers, or ranks that something else has started, become one job.

    Attributes:
        address: HOST:PORT (port 0: any free one, when serving), or file:PATH, the file in which the
            server writes it, in a folder that all nodes see.
        secret_file: file with the job's secret.
        serve: serve the rendezvous as well.
        nodes: number of launchers; 0 when joining: as the server was told.
        node: number of this one; -1: any that is free.
        timeout_s: how long to wait for the others.
        network: as of a HostPlan, for this node.
        security: likewise, the same for all nodes.
        keep_going: a rank that fails does not end the others; likewise.
    """

    address: str
    secret_file: str
    serve: bool = False
    nodes: int = 0
    node: int = -1
    timeout_s: float = 30.0
    network: str = ""
    security: str = "tls"
    keep_going: bool = False


@dataclass(frozen=True)
class Host:
    """A host and how many ranks it has, or may have. `name` is ssh's: USER@ may stand before it."""

    name: str
    slots: int


@dataclass(frozen=True)
class HostPlan:
    """The hosts of a job, and the way to them.

    Attributes:
        hosts: in the order of their ranks, with the number of these as slots.
        ssh: program and arguments that stand before the name of a host.
        python: path of the Python that runs the agents.
        network: interface or network for the ranks; empty: one that the hosts have in common.
        security: of the ranks' connections: as in the book.
        bind_gpus: each rank sees one GPU of its host.
        timeout_s: how long a host may take to answer.
        lease_s: after so long a silence coveyrun or a host counts as dead.
        spare: further hosts, for an elastic job that has lost some of its own.
        script: a command that lists the hosts of such a job; empty: they stay the same.
        slots: of a host for which it prints no number.
    """

    hosts: Sequence[Host]
    ssh: Sequence[str]
    python: str
    network: str = ""
    security: str = "tls"
    bind_gpus: bool = False
    timeout_s: float = 30.0
    lease_s: float = 10.0
    spare: Sequence[Host] = ()
    script: str = ""
    slots: int = 1


@dataclass(frozen=True)
class JobSpec:
    """A command to run as `size` ranks, on this host unless `plan` says otherwise.

    Attributes:
        command: program and arguments, the same for every rank.
        size: number of ranks, at least 1.
        output_dir: folder that gets rank.N/stdout and rank.N/stderr, or None.
        timeline_dir: folder that gets one trace per rank, or None.
        extra_env: variables of the user's (-x) on top of the launcher's own environment.
        settings_env: variables that carry the launcher's own options to the runtime.
        gpus: as CUDA_VISIBLE_DEVICES names them: each rank sees one, in turn. Empty: all see all.
        preload: modules that one process imports, of which the ranks are forks. Empty: each imports
            what it needs.
        keep_going: a rank that fails does not end the others.
        verbose: tell on stderr what the launcher does.
        quiet: say nothing but errors, and the table only when it was asked for.
        program: the launcher's name in its own messages.
        rendezvous: the other launchers of the job; None: there are none.
        plan: the hosts of the job; None: this one.
        elastic: of a job whose ranks may come and go; None: they do not.
    """

    command: Sequence[str]
    size: int
    output_dir: Optional[str] = None
    timeline_dir: Optional[str] = None
    extra_env: Dict[str, str] = field(default_factory=dict)
    settings_env: Dict[str, str] = field(default_factory=dict)
    gpus: Sequence[str] = ()
    preload: Sequence[str] = ()
    keep_going: bool = False
    verbose: bool = False
    quiet: bool = False
    program: str = "coveyrun"
    rendezvous: Optional[Rendezvous] = None
    plan: Optional[HostPlan] = None
    elastic: Optional[Terms] = None


class JobFailed(CoveyError):
    """A job has started and failed."""

    def __init__(self, text: str, rank: int, exit_code: int) -> None:
        """`rank` failed first (-1: none did) and makes the job's exit code."""
        super().__init__(text, peer_rank=rank)
        self.rank = rank
        self.exit_code = exit_code
