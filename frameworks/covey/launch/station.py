"""A host's part of a job: the command's surroundings, its memory, its listeners, its ranks.

Internal.
"""

from __future__ import annotations

import dataclasses
import os
import selectors
import shutil
import socket
import sys
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence

from covey.launch import reach, witness
from covey.launch.carried import arrived
from covey.launch.check import check_command, check_writable_folder, has_traces
from covey.launch.environment import gpus_of
from covey.launch.hosts import Place
from covey.launch.process import RankProcess
from covey.launch.spec import JobSpec, LaunchError
from covey.launch.start import HostPart, Starter, StorePort, make_memory
from covey.launch.summary import Summary
from covey.launch.workers import Workers


class Station:
    """One host's part of a job. Close it when the ranks have ended.

    Attributes:
        witnesses: by rank, the socket of its requests for witness records; none where all ranks
            are on one host.
        workers: of an elastic job, whose witnesses these are; None: it is none, or does not run.
    """

    def __init__(self, job: Dict[str, Any]) -> None:
        """`job`: the message, see fleet.py."""
        self._job = job
        self._places = [Place(**place) for place in job["places"]]
        self._listeners: List[socket.socket] = []
        self._environ: Dict[str, str] = {}
        self._spec = JobSpec(size=len(self._places), **job["spec"])
        self._port = StorePort()
        self.summary = Summary()
        self.witnesses: Dict[int, socket.socket] = {}
        self.workers: Optional[Workers] = None
        self._starter = Starter()
        self._start: Dict[str, Any] = {}  # The message.

    @property
    def store_port(self) -> Optional[int]:
        """A free port for a store that rank 0 may serve."""
        return self._port.number

    def enter(self) -> None:
        """Goes to the folder of the command, and looks whether it can run there. Raises
        LaunchError."""
        folder = self._job["cwd"]
        try:
            os.chdir(folder)
        except OSError as error:
            raise LaunchError(
                f"cannot enter the working folder {folder}: {error.strerror}; start coveyrun in a "
                "folder that every host has"
            ) from error
        spec = self._spec
        self._environ = arrived(self._job["environ"], os.environ, folder)
        environ = {**self._environ, **spec.extra_env}
        for name in (name for name in environ if name.startswith("COVEY_")):
            os.environ[name] = environ[name]  # The memory of the job has settings too.
        check_command(spec.command, spec.size, spec.program, environ, self._is_own(environ))
        if spec.timeline_dir is not None:
            check_writable_folder("--timeline", spec.timeline_dir)
        if self._job["bind_gpus"]:
            self._spec = dataclasses.replace(spec, gpus=gpus_of(environ))

    def _is_own(self, environ: Dict[str, str]) -> bool:
        """Whether the command's Python is this one, which has the package."""
        found = shutil.which(self._spec.command[0], path=environ.get("PATH"))
        same = environ.get("PYTHONPATH", "") == os.environ.get("PYTHONPATH", "")
        return same and found == sys.executable

    def listen(self) -> List[List[Any]]:
        """[address, port] of a new listener for each rank, but for those of an elastic job, and of
        one that the other hosts try. Raises LaunchError."""
        address = self._job["address"]
        count = 0 if self._job["elastic"] else len(self._places)
        self._listeners = reach.listen(address, count + 1)
        return [[address, listener.getsockname()[1]] for listener in self._listeners]

    def start(
        self,
        message: Dict[str, Any],
        wait: Callable[[Any], None],
        watching: Sequence[selectors.BaseSelector],
    ) -> Iterator[RankProcess]:
        """Starts the ranks, one after the other. `wait`: until there is something to read there;
        `watching`: as of `Workers`. Raises LaunchError, and what `wait` raises."""
        spec, store, self._start = self._spec, message["store"], message
        self._listeners.pop().close()  # It has been tried.
        if self._job["elastic"]:
            self.workers = Workers(self._job["address"], watching)
            self.witnesses = self.workers.witnesses
            first = [place for place in self._places if place.rank in message["ranks"]]
            yield from self._more(first, wait)
            return
        while self._listeners and not message["book"]:
            self._listeners.pop().close()
        memory = make_memory(spec.size)
        theirs = [self._witness(place.rank) for place in self._places] if message["book"] else []
        try:
            part = HostPart(self._places, memory, message["book"], self._listeners, store, theirs)
            yield from part.start(spec, self._environ, (message["job"], self.summary.fd), wait)
        finally:
            os.close(memory)
            for it in theirs:
                it.close()

    def more(self, number: int, wait: Callable[[Any], None]) -> RankProcess:
        """Starts a worker of an elastic job. Errors as of `start`."""
        its = [place for place in self._places if place.rank == number]
        (process,) = self._starter.retried(lambda: list(self._more(its, wait)))
        return process

    def _more(
        self, chosen: Sequence[Place], wait: Callable[[Any], None]
    ) -> Iterator[RankProcess]:
        assert self.workers is not None
        doors = [self.workers.doors.open(place.rank) for place in chosen]
        names, store = (self._start["job"], self.summary.fd), self._start["store"]
        part = HostPart(chosen, -1, store=store, doors=doors, starter=self._starter)
        return part.start(self._spec, self._environ, names, wait) if chosen else iter(())

    def _witness(self, rank: int) -> socket.socket:
        """A new socket for requests for witness records: the rank's end."""
        self.witnesses[rank], theirs = witness.way()
        return theirs

    def has_traces(self) -> bool:
        """Whether there are traces in the folder for them."""
        return has_traces(self._spec.timeline_dir)

    def close(self) -> None:
        """May be called again."""
        for listener in self._listeners:
            listener.close()
        self._starter.close()
        if self.workers is not None:
            self.workers.close()
        for it in self.witnesses.values():
            it.close()
        self._port.close()
        self.summary.close()
