"""The command line of tools/cluster."""

from __future__ import annotations

import argparse
import json
import pathlib
import shutil
import sys
import uuid
from typing import List, Optional, Tuple

from lab import enter, faults, hub, linux, network, possible, spec, sshd, state
from lab.refusal import SKIPPED, Refused
from lab.state import Cluster

_LIMIT_S = 30.0
_DESCRIPTION = """Makes a cluster of "hosts" on this machine: a network, mount, UTS, IPC and PID
namespace each, with its own /dev/shm, boot ID, address and sshd. The machine's own network is not
touched. Needs root, or unprivileged user namespaces."""
_EXAMPLES = """examples:
  tools/cluster up 3 --rate 1gbit
  tools/cluster exec a ssh b hostname
  tools/cluster fault unplug c
  tools/cluster down
  tools/cluster run 2 -- ssh b hostname

Exit status: that of the command for exec and run, 1 for a refusal, 2 for a wrong option, 77 where
this machine lacks the means."""


def _add_making(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("count", type=int, nargs="?", metavar="N", help="hosts a, b, c and so on")
    parser.add_argument("--hosts", metavar="a,b,c", help="names of the hosts, instead of N")
    parser.add_argument("--rate", metavar="R", help="of each link, both ways, such as 1gbit")
    parser.add_argument("--delay", metavar="D", help="one way between two hosts, such as 5ms")
    parser.add_argument("--loss", metavar="P", help="lost packets, such as 0.1%%")
    parser.add_argument("--mtu", metavar="BYTES", default="1500", help="1500 unless said otherwise")
    parser.add_argument("--shm", metavar="SIZE", default="",
                        help="of each /dev/shm, such as 4g; half the memory unless said otherwise")
    parser.add_argument("--no-ssh", action="store_true", help="no sshd")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="cluster", description=_DESCRIPTION, epilog=_EXAMPLES,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    every = parser.add_subparsers(dest="task", metavar="COMMAND", required=True)

    def add(name: str, text: str, named: bool = True) -> argparse.ArgumentParser:
        one = every.add_parser(name, help=text, description=text)
        if named:
            one.add_argument("--name", help="of the cluster; needed where there are several")
        return one

    _add_making(add("up", "makes a cluster, which stays until `down`"))
    run = add("run", "makes a cluster for one command on its first host: run N [OPTION]... -- CMD")
    _add_making(run)
    execute = add("exec", "runs a command on a host, or on all: exec HOST CMD")
    execute.add_argument("host", metavar="HOST", help="a host, or all")
    execute.add_argument("command", metavar="CMD", nargs=argparse.REMAINDER)
    fault = add("fault", "makes or ends a fault")
    fault.add_argument("fault", metavar="FAULT", choices=sorted(_FAULTS), help=", ".join(_FAULTS))
    fault.add_argument("host", metavar="HOST", help="a host; of heal also all")
    fault.add_argument("--to", metavar="HOST", help="cut: the other host")
    fault.add_argument("--one-way", action="store_true", help="cut: only packets from HOST")
    fault.add_argument("--rate", metavar="R", help="slow: such as 10mbit")
    add("list", "shows clusters and their hosts").add_argument("--json", action="store_true")
    add("down", "ends a cluster").add_argument("cluster", nargs="?", metavar="NAME")
    add("check", "says what this machine can do", named=False)
    return parser


def _make(options: argparse.Namespace, name: str) -> Tuple[Cluster, hub.Lifeline]:
    """A new cluster. It ends with its lifeline."""
    state.check_name(name)
    chosen = spec.host_names(options.count, options.hosts)
    links = spec.links(options.rate, options.delay, options.loss)
    size = spec.shm_size(options.shm) if options.shm else ""
    mtu = spec.mtu(options.mtu)
    for program in ["ip"] + ["tc"] * bool(links["rate"]) + ["nft"] * bool(links["loss"]):
        network.tool(program)
    inside = possible.user_namespace()
    if not options.no_ssh:
        sshd.require(inside)
    folder = state.create(name)
    wanted = spec.Spec(folder=folder, hosts=chosen, mtu=mtu, shm=size, ssh=not options.no_ssh,
                       in_user_namespace=inside, **links)
    try:
        lifeline, said = hub.start(wanted)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    cluster = Cluster(folder, {**said, **links, "mtu": mtu, "ssh": wanted.ssh,
                               "in_user_namespace": inside, "filtered": bool(links["loss"]),
                               "pid_namespace": state.pid_namespace()})
    cluster.write()
    return cluster, lifeline


def up(options: argparse.Namespace) -> int:
    cluster, lifeline = _make(options, options.name or "default")
    lifeline.stay()
    places = ", ".join(f"{host} ({cluster.host(host)['address']})" for host in cluster.hosts)
    print(f"cluster: {cluster.name} is up: {places}")
    return 0


def _end(cluster: Cluster) -> None:
    """All its processes, then its files."""
    cluster.require_here()
    if cluster.alive():
        hub_process = cluster.data["hub"]
        if not linux.kill_and_wait(hub_process["pid"], hub_process["started"], _LIMIT_S):
            raise Refused(f"cluster {cluster.name} does not end: a process of it is stuck in the "
                          "kernel")
    cluster.remove()


def run(options: argparse.Namespace) -> int:
    if not options.command:
        raise Refused("run needs a command: tools/cluster run 2 -- CMD")
    cluster, lifeline = _make(options, options.name or f"run-{uuid.uuid4().hex[:8]}")
    try:
        child = enter.start(cluster, cluster.hosts[0], options.command, lifeline)
        return enter.wait([child])[child]
    finally:
        _end(cluster)


def execute(options: argparse.Namespace) -> int:
    command = options.command[1:] if options.command[:1] == ["--"] else options.command
    if not command:
        raise Refused(f"exec needs a command: tools/cluster exec {options.host} CMD")
    cluster = state.running(options.name)
    if options.host == "all":
        return enter.in_all(cluster, command)
    child = enter.start(cluster, options.host, command)
    return enter.wait([child])[child]


def _cut(cluster: Cluster, options: argparse.Namespace) -> None:
    faults.cut(cluster, options.host, options.to, options.one_way)


_FAULTS = {
    "kill": lambda cluster, options: faults.kill(cluster, options.host),
    "freeze": lambda cluster, options: faults.freeze(cluster, options.host),
    "thaw": lambda cluster, options: faults.thaw(cluster, options.host),
    "unplug": lambda cluster, options: faults.unplug(cluster, options.host),
    "plug": lambda cluster, options: faults.plug(cluster, options.host),
    "cut": _cut,
    "slow": lambda cluster, options: faults.slow(cluster, options.host, options.rate),
    "heal": lambda cluster, options: faults.heal(cluster, options.host),
}


def fault(options: argparse.Namespace) -> int:
    needed = {"cut": "to", "slow": "rate"}.get(options.fault)
    if needed and not getattr(options, needed):
        raise Refused(f"fault {options.fault} needs --{needed} (try --help)")
    cluster = state.running(options.name)
    with cluster.changed():
        if options.host != "all" or options.fault != "heal":
            cluster.host(options.host)
        _FAULTS[options.fault](cluster, options)
    return 0


def _rows(cluster: Cluster) -> List[List[str]]:
    return [[cluster.name, host, cluster.host(host)["address"], str(cluster.host(host)["pid"]),
             ", ".join(faults.states(cluster, host))] for host in cluster.hosts]


def show(options: argparse.Namespace) -> int:
    found = [state.find(options.name)] if options.name else state.clusters()
    if options.json:
        print(json.dumps([{
            "name": cluster.name, "folder": str(cluster.folder), "alive": cluster.alive(),
            **{key: cluster.data.get(key) for key in ("rate", "delay", "loss", "mtu", "ssh")},
            "hosts": [{"name": host, "address": cluster.host(host)["address"],
                       "pid": cluster.host(host)["pid"], "state": faults.states(cluster, host)}
                      for host in cluster.hosts],
        } for cluster in found], indent=1))
        return 0
    rows = [row for cluster in found for row in _rows(cluster)]
    if not rows:
        print("cluster: there is none; tools/cluster up 3 makes one")
        return 0
    rows.insert(0, ["CLUSTER", "HOST", "ADDRESS", "PID", "STATE"])
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    for row in rows:
        print("  ".join([cell.ljust(width) for cell, width in zip(row, widths)] + [row[4]]))
    return 0


def down(options: argparse.Namespace) -> int:
    cluster = state.find(options.cluster or options.name)
    _end(cluster)
    print(f"cluster: {cluster.name} is down")
    return 0


def check(_: argparse.Namespace) -> int:
    found = possible.means()
    for means in found:
        print(f"{means.name + ':':<13}{'yes' if means.works else 'no'}, {means.text}")
    return 0 if all(means.works for means in found[:2]) and len(found) > 1 else SKIPPED


_TASKS = {"up": up, "run": run, "exec": execute, "fault": fault, "list": show, "down": down,
          "check": check}


def _split(arguments: List[str]) -> Tuple[List[str], Optional[List[str]]]:
    """`run`'s command stands after --."""
    if arguments[:1] != ["run"] or "--" not in arguments:
        return arguments, None
    at = arguments.index("--")
    return arguments[:at], arguments[at + 1:]


def main(arguments: List[str]) -> int:
    """Returns the exit status."""
    arguments, command = _split(arguments)
    options = _parser().parse_args(arguments)
    if command is not None or options.task == "run":
        options.command = command
    try:
        if not sys.platform.startswith("linux") or not pathlib.Path("/proc/self/ns").exists():
            raise Refused("there are no namespaces here: it needs Linux", SKIPPED)
        return _TASKS[options.task](options)
    except Refused as error:
        print(f"cluster: {error}", file=sys.stderr)
        return error.status
    except OSError as error:
        print(f"cluster: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("cluster: interrupted; nothing is left", file=sys.stderr)
        return 130
