"""Faults of hosts and links, and their ends. cluster.json remembers them for `list`."""

from __future__ import annotations

import os
import signal
from typing import Callable, List, Optional

from lab import linux, network, trial
from lab.refusal import Refused
from lab.state import Cluster

_LIMIT_S = 30.0


def _within(cluster: Cluster, pid: int, kinds: List[str], function: Callable[[], None]) -> None:
    """Runs a function in namespaces of a process of the cluster."""
    groups = [linux.Namespaces(cluster.hub, ["user"])] if cluster.data["in_user_namespace"] else []
    groups.append(linux.Namespaces(pid, kinds))

    def inside() -> None:
        for group in groups:
            group.enter()
        function()

    refusal = trial.refusal_of(inside)
    for group in groups:
        group.close()
    if refusal is not None:
        raise refusal


def _in_hub(cluster: Cluster, function: Callable[[], None]) -> None:
    _within(cluster, cluster.hub, ["net"], function)


def _in_host(cluster: Cluster, name: str, function: Callable[[], None]) -> None:
    _within(cluster, cluster.host(name)["pid"], ["net"], function)


def _signal_all(cluster: Cluster, name: str, number: signal.Signals) -> None:
    """All processes of a host but its init, at one moment: kill(2) with -1 misses no fork."""

    def kill_all() -> None:
        child = os.fork()
        if child == 0:
            try:
                os.kill(-1, number)
            except ProcessLookupError:
                pass  # There is none.
            finally:
                os._exit(0)
        os.waitpid(child, 0)

    _within(cluster, cluster.host(name)["pid"], ["pid"], kill_all)


def kill(cluster: Cluster, name: str) -> None:
    """Everything on the host ends, without a word to its peers."""
    host = cluster.host(name)
    if not linux.kill_and_wait(host["pid"], host["started"], _LIMIT_S):
        raise Refused(f"host {name} does not end: a process of it is stuck in the kernel")
    host["faults"] = {}


def freeze(cluster: Cluster, name: str) -> None:
    """No process runs; the kernel still answers for the host."""
    cluster.live_host(name)
    _signal_all(cluster, name, signal.SIGSTOP)
    cluster.host(name)["faults"]["frozen"] = True


def thaw(cluster: Cluster, name: str) -> None:
    if "frozen" not in cluster.host(name)["faults"]:
        raise Refused(f"host {name} is not frozen")
    _signal_all(cluster, name, signal.SIGCONT)
    del cluster.host(name)["faults"]["frozen"]


def unplug(cluster: Cluster, name: str) -> None:
    """The bridge's side of the link goes down."""
    _need_alive(cluster, name)
    _in_hub(cluster, lambda: network.set_port(cluster.host(name)["index"], False))
    cluster.host(name)["faults"]["unplugged"] = True


def plug(cluster: Cluster, name: str) -> None:
    if "unplugged" not in cluster.host(name)["faults"]:
        raise Refused(f"host {name} is not unplugged")
    _in_hub(cluster, lambda: network.set_port(cluster.host(name)["index"], True))
    del cluster.host(name)["faults"]["unplugged"]


def slow(cluster: Cluster, name: str, rate: Optional[str]) -> None:
    """Another rate for one host, both ways."""
    _need_alive(cluster, name)
    bits = network.rate(rate or "")
    _limit(cluster, name, lambda device: network.limit(device, bits))
    cluster.host(name)["faults"]["slow"] = rate


def cut(cluster: Cluster, name: str, other: Optional[str], one_way: bool) -> None:
    """Packets from `name` to `other` are dropped; unless one way, those back too."""
    cluster.host(other or "")
    if name == other:
        raise Refused(f"a host is not cut from itself: --to names another than {name}")
    for source, target in [(name, other)] if one_way else [(name, other), (other, name)]:
        cuts = cluster.host(source)["faults"].setdefault("cut to", [])
        if target not in cuts:
            cuts.append(target)
    _filter(cluster)


def heal(cluster: Cluster, name: str) -> None:
    """Ends the cuts and the slowness of a host; `all`: of every host."""
    names = cluster.hosts if name == "all" else [name]
    for host in names:
        faults = cluster.host(host)["faults"]
        faults.pop("cut to", None)
        if faults.pop("slow", None) and cluster.host_alive(host):
            bits = cluster.data["rate"]
            _limit(cluster, host, lambda device: network.limit(device, bits) if bits
                   else network.unlimit(device))
    for host in cluster.hosts:
        faults = cluster.host(host)["faults"]
        left = [target for target in faults.pop("cut to", []) if target not in names]
        if left:
            faults["cut to"] = left
    _filter(cluster)


def _limit(cluster: Cluster, name: str, change: Callable[[str], None]) -> None:
    index = cluster.host(name)["index"]
    end = f"cable{index}" if cluster.data["delay"] else f"port{index}"
    _in_host(cluster, name, lambda: change("eth0"))
    _in_hub(cluster, lambda: change(end))


def _filter(cluster: Cluster) -> None:
    address = {host: cluster.host(host)["address"] for host in cluster.hosts}
    cuts = [[address[host], address[target]] for host in cluster.hosts
            for target in cluster.host(host)["faults"].get("cut to", [])]
    if cuts or cluster.data["filtered"]:
        _in_hub(cluster, lambda: network.filter_packets(cluster.data["loss"], cuts))
        cluster.data["filtered"] = True


def _need_alive(cluster: Cluster, name: str) -> None:
    if not cluster.host_alive(name):
        raise Refused(f"host {name} is dead: it has no link any more")


def states(cluster: Cluster, name: str) -> List[str]:
    """The states of a host, for `list`."""
    if cluster.elsewhere():
        return ["elsewhere"]
    if not cluster.alive() or not cluster.host_alive(name):
        return ["dead"]
    said = []
    for fault, value in cluster.host(name)["faults"].items():
        if isinstance(value, list):
            said.append(f"{fault} {','.join(value)}")
        else:
            said.append(fault if value is True else f"{fault} {value}")
    return said or ["running"]
