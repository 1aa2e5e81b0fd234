"""A host: its init and its namespaces, as seen by no other host. Runs in a child of the hub."""

from __future__ import annotations

import os
import pathlib
import signal
import uuid
from typing import NoReturn

from lab import linux, network, sshd
from lab.spec import Spec

NAMESPACES = ("mnt", "net", "uts", "ipc", "pid")
_BOOT_ID = "/proc/sys/kernel/random/boot_id"
_CGROUPS = "/sys/fs/cgroup"


def write_files(spec: Spec) -> None:
    """Before the hosts start: what is mounted over files of the machine."""
    lines = ["127.0.0.1 localhost", "::1 localhost"]
    for index, host in enumerate(spec.hosts, 1):
        lines.append(f"{network.address(index)} {host}")
        folder = spec.folder / host
        folder.mkdir()
        (folder / "boot_id").write_text(f"{uuid.uuid4()}\n", encoding="ascii")
    (spec.folder / "hosts").write_text("\n".join(lines) + "\n", encoding="ascii")
    if spec.ssh:
        sshd.write_files(spec)


def _mount_all(spec: Spec, host: str) -> None:
    linux.mount("proc", "/proc", "proc", linux.MS_NOSUID | linux.MS_NODEV | linux.MS_NOEXEC)
    linux.mount("shm", "/dev/shm", "tmpfs", linux.MS_NOSUID | linux.MS_NODEV,
                "mode=1777" + (f",size={spec.shm}" if spec.shm else ""))
    linux.mount(str(spec.folder / "hosts"), "/etc/hosts", flags=linux.MS_BIND)
    linux.mount(str(spec.folder / host / "boot_id"), _BOOT_ID, flags=linux.MS_BIND)
    _mount_sys()
    if spec.ssh:
        sshd.mount_files(spec)


def _mount_sys() -> None:
    """/sys/class/net shows the interfaces of the namespace that has mounted it."""
    flags = linux.MS_NOSUID | linux.MS_NODEV | linux.MS_NOEXEC
    try:
        groups = os.open(_CGROUPS, os.O_PATH)
    except OSError:
        return
    try:
        linux.mount("sysfs", "/sys", "sysfs", flags)
        linux.mount(f"/proc/self/fd/{groups}", _CGROUPS, flags=linux.MS_BIND | linux.MS_REC)
    except OSError:
        pass  # A container may forbid it: /sys is then that of the machine.
    finally:
        os.close(groups)


def prepare(spec: Spec, host: str) -> int:
    """The host without its cable. Returns its process ID as the machine sees it."""
    pid = int(os.readlink("/proc/self"))  # This /proc is still the machine's.
    linux.set_name(f"covey-{host}"[:15])
    linux.set_hostname(host)
    linux.loopback_up()
    _mount_all(spec, host)
    return pid


def start(spec: Spec, host: str) -> None:
    """The rest, with the cable: address, rate and sshd."""
    network.configure(spec.hosts.index(host) + 1)
    if spec.rate:
        network.limit("eth0", spec.rate)
    if spec.loss:
        network.single_packets("eth0")
    if spec.in_user_namespace:
        if spec.ssh:
            pathlib.Path("/proc/sys/net/ipv4/ip_unprivileged_port_start").write_text("22")
        # Commands run as the caller, not as root: mpirun and sshd want it so.
        linux.own_identity(0, 0, spec.uid, spec.gid)
    if spec.ssh:
        sshd.start(spec, host)


def reap() -> NoReturn:
    """The work of an init: the host lives as long as it."""
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
    while True:
        reap_ended()
        signal.sigwait([signal.SIGCHLD])


def reap_ended() -> None:
    """All children that have ended."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0] != 0:
            pass
    except ChildProcessError:
        pass
