"""`coveyrun`'s options for jobs on several hosts, and the plan that they make."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import os
import shlex
import sys
from typing import List, Optional, Sequence

from covey.cli.elastic_options import NEEDS_LEAST
from covey.cli.say import say
from covey.cli.values import host_list, port
from covey.launch import hosts
from covey.launch.book import SECURITIES
from covey.launch.discovery import Discovery
from covey.launch.rendezvous_handler import knob_seconds, start_timeout_s
from covey.launch.signals import SignalInbox
from covey.launch.spec import Host, HostPlan, LaunchError


def describe(parser: argparse.ArgumentParser) -> None:
    """Adds them."""
    add = parser.add_argument_group("several hosts, by ssh without a password").add_argument
    add(
        "-H",
        "--hosts",
        type=host_list,
        metavar="HOST:N,...",
        help="hosts with their numbers of ranks, which fill them in this order",
    )
    add(
        "--hostfile",
        "-hostfile",
        metavar="FILE",
        help="the same in a file, with HOST slots=N in each line",
    )
    add(
        "--network",
        metavar="IFACE|CIDR",
        help="the interface or network that ranks use, such as eth1 or 10.0.0.0/8; default: one "
        "that all hosts have, rather that of ssh",
    )
    add(
        "--network-security",
        choices=SECURITIES,
        default="tls",
        help="tls (the default), or auth: what ranks send is authenticated and not encrypted",
    )
    add("--ssh-port", "-p", type=port, metavar="PORT", help="of sshd on the hosts")
    add("--ssh-identity-file", "-i", metavar="FILE", help="the key that ssh uses")
    add("--ssh-args", metavar="ARGS", help="further arguments of ssh, such as '-J gate'")
    add("--ssh", metavar="PROGRAM", default="ssh", help="another program that does what ssh does")
    add(
        "--remote-python",
        metavar="PATH",
        default=sys.executable,
        help="of the Python with Covey there; default: the path of this one",
    )
    for flag in ("--network-interfaces", "--network-interface", "--nics"):
        add(flag, dest="network", help=argparse.SUPPRESS)


def named(arguments: argparse.Namespace) -> Optional[List[Host]]:
    """The hosts that the command names; None: it names none. Raises LaunchError."""
    if arguments.hosts is not None and arguments.hostfile is not None:
        raise LaunchError("-H and --hostfile: say one of them")
    if arguments.hostfile is not None:
        return hosts.read_file(arguments.hostfile)
    return None if arguments.hosts is None else list(arguments.hosts)


def named_or_listed(arguments: argparse.Namespace) -> Optional[List[Host]]:
    """The same, or those that the script lists, as soon as these have -np slots. Raises
    LaunchError, Stopped."""
    if arguments.host_discovery_script is None:
        if arguments.slots_per_host is not None:
            raise LaunchError(
                "--slots-per-host is for --host-discovery-script; say -H HOST:N for each host, or "
                "slots=N in the --hostfile"
            )
        return named(arguments)
    if arguments.hosts is not None or arguments.hostfile is not None:
        raise LaunchError("--host-discovery-script, -H and --hostfile: say one of them")
    if arguments.min_np is None:
        raise LaunchError(NEEDS_LEAST.format("--host-discovery-script"))
    if arguments.num_proc is None:
        raise LaunchError("-np N is missing: so many slots the script has to list for the start")
    size, limit_s = arguments.num_proc, arguments.start_timeout or start_timeout_s()
    script, slots = arguments.host_discovery_script, arguments.slots_per_host or 1

    def tell(line: str) -> None:
        if not arguments.quiet:
            say(arguments.parser.prog, line)

    found = Discovery(script, slots, [], tell)
    with SignalInbox() as inbox, contextlib.closing(found) as discovery:
        return discovery.first(
            lambda its: sum(it.slots for it in its) >= size, limit_s, inbox.pause
        )


def size_of(arguments: argparse.Namespace, found: Optional[Sequence[Host]]) -> int:
    """The number of ranks. Raises LaunchError."""
    if found is None:
        if arguments.num_proc is None:
            raise LaunchError("-np N is missing: the number of ranks")
        if arguments.num_proc > hosts.MOST_RANKS:
            raise LaunchError(f"-np {arguments.num_proc}: a host has 1 to {hosts.MOST_RANKS} ranks")
        return int(arguments.num_proc)
    size = arguments.num_proc or sum(host.slots for host in found)
    hosts.shared_out(found, size)
    return int(size)


def plan_of(
    arguments: argparse.Namespace,
    found: Optional[Sequence[Host]],
    size: int,
    most: Optional[int],
) -> Optional[HostPlan]:
    """The plan of a job on `found`; None: it is on this machine alone. `most`: ranks of an elastic
    job, which may use all slots. Raises LaunchError."""
    if found is None:
        return None
    used = hosts.shared_out(found, size) if most is None else hosts.enough(found, most)
    is_growing = arguments.host_discovery_script is not None
    is_full = sum(host.slots for host in found) == size
    if hosts.all_here(used) and (most is None or (is_full and not is_growing)):
        return None
    if arguments.serve is not None or arguments.join is not None:
        raise LaunchError("-H is for one coveyrun, --serve and --join for several: say either")
    return dataclasses.replace(
        way_to(arguments, used),
        bind_gpus=arguments.bind_gpus,
        spare=list(found)[len(used) :] if most is not None else (),
        script=arguments.host_discovery_script or "",
        slots=arguments.slots_per_host or 1,
    )


def way_to(arguments: argparse.Namespace, found: Sequence[Host]) -> HostPlan:
    """The plan for these hosts, wherever they are. Raises LaunchError."""
    return HostPlan(
        hosts=found,
        ssh=_ssh(arguments),
        python=arguments.remote_python,
        network=arguments.network or "",
        security=arguments.network_security,
        timeout_s=arguments.start_timeout or start_timeout_s(),
        lease_s=knob_seconds("lease"),
    )


def _ssh(arguments: argparse.Namespace) -> Sequence[str]:
    try:
        words = shlex.split(arguments.ssh) or ["ssh"]
        words += shlex.split(arguments.ssh_args or "")
    except ValueError as error:
        raise LaunchError(f"--ssh, --ssh-args: {error}") from error
    if arguments.ssh_port is not None:
        words += ["-p", str(arguments.ssh_port)]
    if arguments.ssh_identity_file is not None:
        words += ["-i", os.path.expanduser(arguments.ssh_identity_file)]
    return words
