"""The state of a cluster between commands: one folder per cluster, with cluster.json in it."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pathlib
import re
import shutil
import stat
from typing import Any, Dict, Iterator, List, Optional

from lab import linux
from lab.refusal import Refused

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,40}")
_FILE = "cluster.json"


def pid_namespace() -> str:
    """Of this process."""
    return os.readlink("/proc/self/ns/pid")


def base() -> pathlib.Path:
    """The folder of this user's clusters, which no other user can write."""
    above = pathlib.Path(os.environ.get("XDG_RUNTIME_DIR") or "/tmp")
    if not above.is_dir() or not os.access(above, os.W_OK) or above.stat().st_uid != os.getuid():
        above = pathlib.Path("/tmp")  # After sudo or su it is often that of another user.
    folder = above / f"covey-cluster-{os.getuid()}"
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise Refused(f"{folder} belongs to or is open to other users: remove it, or set "
                      "XDG_RUNTIME_DIR to a folder of your own")
    return folder


class Cluster:
    """The state of one cluster. `data` is as in cluster.json."""

    def __init__(self, folder: pathlib.Path, data: Dict[str, Any]) -> None:
        self.folder = folder
        self.data = data

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def hosts(self) -> List[str]:
        return list(self.data["hosts"])

    @property
    def hub(self) -> int:
        """The process whose end is the end of the cluster."""
        return int(self.data["hub"]["pid"])

    def elsewhere(self) -> bool:
        """Whether its process IDs are those of another PID namespace, as of a host of a cluster."""
        return self.data.get("pid_namespace", pid_namespace()) != pid_namespace()

    def alive(self) -> bool:
        hub = self.data.get("hub")
        if self.elsewhere():
            return True  # As far as can be told from here.
        return bool(hub) and linux.start_time(hub["pid"]) == hub["started"]

    def require_here(self) -> None:
        """Refuses where its processes cannot be seen."""
        if self.elsewhere():
            raise Refused(f"cluster {self.name} was made in another PID namespace: go there")

    def host(self, name: str) -> Dict[str, Any]:
        """A host by its name."""
        if name not in self.data["hosts"]:
            raise Refused(f"there is no host {name} in cluster {self.name}: its hosts are "
                          + ", ".join(self.hosts))
        return self.data["hosts"][name]

    def live_host(self, name: str) -> Dict[str, Any]:
        """A host whose processes can run."""
        host = self.host(name)
        if not self.host_alive(name):
            raise Refused(f"host {name} is dead: only a new cluster brings it back "
                          f"(tools/cluster down {self.name})")
        if "frozen" in host["faults"]:
            raise Refused(f"host {name} is frozen: tools/cluster fault thaw {name}")
        return host

    def host_alive(self, name: str) -> bool:
        host = self.host(name)
        return linux.start_time(host["pid"]) == host["started"]

    def write(self) -> None:
        part = self.folder / (_FILE + ".part")
        part.write_text(json.dumps(self.data, indent=1) + "\n", encoding="utf-8")
        part.rename(self.folder / _FILE)

    @contextlib.contextmanager
    def changed(self) -> Iterator[None]:
        """Reads the state, lets the caller change it, and writes it; one command at a time."""
        with open(self.folder / "lock", "w", encoding="ascii") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self.data = _read(self.folder)
            yield
            self.write()

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


def _read(folder: pathlib.Path) -> Dict[str, Any]:
    try:
        return json.loads((folder / _FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {"hosts": {}}  # One that is not up yet, or that was killed before it was.


def clusters() -> List[Cluster]:
    """All of this user."""
    found = sorted(path for path in base().iterdir() if path.is_dir())
    return [Cluster(path, _read(path)) for path in found]


def find(name: Optional[str]) -> Cluster:
    """The cluster of this name, or the only one."""
    everything = {cluster.name: cluster for cluster in clusters()}
    if name is None:
        if len(everything) > 1:
            raise Refused(f"there are several clusters, {', '.join(everything)}: choose by --name")
        if not everything:
            raise Refused("there is no cluster: tools/cluster up 3 makes one")
        return next(iter(everything.values()))
    if name not in everything:
        raise Refused(f"there is no cluster {name}: there are {', '.join(everything) or 'none'}")
    return everything[name]


def running(name: Optional[str]) -> Cluster:
    """The same, if its processes are there."""
    cluster = find(name)
    cluster.require_here()
    if not cluster.alive():
        raise Refused(f"cluster {cluster.name} has ended: tools/cluster down {cluster.name} "
                      "removes what is left of it")
    return cluster


def check_name(name: str) -> None:
    """Refuses what is no name of a cluster."""
    if not NAME.fullmatch(name):
        raise Refused(f"{name} is no name of a cluster: letters, digits, '-', '_' and '.', at most "
                      "41")


def create(name: str) -> pathlib.Path:
    """The empty folder of a new cluster, whose name is checked."""
    folder = base() / name
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        old = Cluster(folder, _read(folder))
        if old.alive() or "hub" not in old.data:
            raise Refused(f"cluster {name} exists: tools/cluster down {name} ends it, --name makes "
                          "another beside it") from None
        old.remove()
        folder.mkdir(mode=0o700)
    return folder
