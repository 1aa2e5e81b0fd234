"""sshd in every host, with keys that only the cluster knows.

`ssh HOST` works in a host without a flag: /etc/ssh/ssh_config is the cluster's there.
"""

from __future__ import annotations

import os
import pathlib
import shutil
import socket
import subprocess
import time
from typing import List

from lab import linux, network
from lab.refusal import SKIPPED, Refused
from lab.spec import Spec

_CLIENT = "/etc/ssh/ssh_config"
_SHADOW = "/etc/shadow"
_SEPARATION = pathlib.Path("/run/sshd")
_START_LIMIT_S = 20.0

_SERVER_CONFIG = """Port 22
HostKey {folder}/{host}/host_key
AuthorizedKeysFile {folder}/user_key.pub
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
UseDNS no
PidFile none
PrintMotd no
MaxStartups 1000
MaxSessions 1000
AcceptEnv *
SetEnv LAB_CLUSTER={name} LAB_CLUSTER_HOSTS={hosts}
"""

_CLIENT_CONFIG = """Host *
  IdentityFile {folder}/user_key
  IdentitiesOnly yes
  UserKnownHostsFile {folder}/known_hosts
  StrictHostKeyChecking yes
  UpdateHostKeys no
  BatchMode yes
  LogLevel ERROR
"""


def _program() -> str:
    found = shutil.which("sshd", path="/usr/sbin:/usr/local/sbin:/sbin")
    if found is None or shutil.which("ssh-keygen") is None or not os.path.exists(_CLIENT):
        raise Refused("sshd or ssh is missing: apt-get install openssh-server openssh-client, or "
                      "--no-ssh does without", SKIPPED)
    return found


def require(in_user_namespace: bool) -> None:
    """Refuses where no sshd can run."""
    _program()
    if in_user_namespace and os.getuid() == 0:
        raise Refused("sshd cannot run as a root that may not make namespaces: --no-ssh does "
                      "without", SKIPPED)


def _make_key(path: pathlib.Path, comment: str) -> str:
    """Returns the public half."""
    command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", str(path)]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    if made.returncode != 0:
        raise Refused(f"ssh-keygen: {(made.stderr or made.stdout).strip()}")
    return path.with_name(path.name + ".pub").read_text(encoding="ascii").strip()


def write_files(spec: Spec) -> None:
    """Keys and configurations."""
    folder = spec.folder
    _make_key(folder / "user_key", "covey-cluster")
    known: List[str] = []
    for index, host in enumerate(spec.hosts, 1):
        key = _make_key(folder / host / "host_key", host)
        known.append(f"{host},{network.address(index)} {key}")
        (folder / host / "sshd_config").write_text(_SERVER_CONFIG.format(
            folder=folder, host=host, name=folder.name, hosts=",".join(spec.hosts)))
    (folder / "known_hosts").write_text("\n".join(known) + "\n", encoding="ascii")
    (folder / "ssh_config").write_text(_CLIENT_CONFIG.format(folder=folder), encoding="utf-8")
    if os.access(_SHADOW, os.R_OK) and not spec.in_user_namespace:
        _write_shadow(folder / "shadow")


def _write_shadow(path: pathlib.Path) -> None:
    """Without PAM, sshd refuses an account whose password is locked, whatever the key."""
    lines = pathlib.Path(_SHADOW).read_text(encoding="utf-8").splitlines()
    if not any(line.startswith("root:!") for line in lines):
        return
    path.touch(mode=0o600)
    path.write_text("".join(
        line.replace("root:!", "root:*", 1) + "\n" if line.startswith("root:!") else line + "\n"
        for line in lines), encoding="utf-8")


def mount_files(spec: Spec) -> None:
    """In a host: the client's configuration, and what sshd wants to find."""
    linux.mount(str(spec.folder / "ssh_config"), _CLIENT, flags=linux.MS_BIND)
    if spec.in_user_namespace:
        return  # As an ordinary user it wants nothing.
    shadow = spec.folder / "shadow"
    if shadow.exists():
        linux.mount(str(shadow), _SHADOW, flags=linux.MS_BIND)
    if not _SEPARATION.is_dir():
        _add_to_run(spec)


def _add_to_run(spec: Spec) -> None:
    """A /run with a folder `sshd`, and all that the machine's has."""
    copy = spec.folder / "run"
    copy.mkdir(exist_ok=True)
    linux.mount("run", str(copy), "tmpfs", linux.MS_NOSUID | linux.MS_NODEV, "mode=755")
    for entry in _SEPARATION.parent.iterdir():
        to = copy / entry.name
        if entry.is_symlink():
            to.symlink_to(os.readlink(entry))
            continue
        if entry.is_dir():
            to.mkdir()
        else:
            to.touch()
        linux.mount(str(entry), str(to), flags=linux.MS_BIND | linux.MS_REC)
    (copy / _SEPARATION.name).mkdir(mode=0o755)
    linux.mount(str(copy), str(_SEPARATION.parent), flags=linux.MS_MOVE)


def start(spec: Spec, host: str) -> None:
    """Returns when it listens."""
    folder = spec.folder / host
    command = [_program(), "-D", "-f", str(folder / "sshd_config"), "-E", str(folder / "sshd.log")]
    server = subprocess.Popen(command, stdin=subprocess.DEVNULL, cwd="/")
    limit = time.monotonic() + _START_LIMIT_S
    while not _listens():
        if server.poll() is not None or time.monotonic() > limit:
            log = (folder / "sshd.log").read_text(encoding="utf-8", errors="replace").strip()
            raise Refused(f"sshd of host {host} does not start: {log or 'no reason given'}; "
                          "--no-ssh does without")
        time.sleep(0.005)


def _listens() -> bool:
    with socket.socket() as attempt:
        return attempt.connect_ex(("127.0.0.1", 22)) == 0
